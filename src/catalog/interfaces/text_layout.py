"""Text laid out for a terminal: measured in columns, prose wrapped, code and tables unchanged."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from catalog.interfaces.plain_text import safe

LEAST_COLUMNS = 20
_COMMAND = re.compile(  # quoted, or up to the end of a clause
    r"'(?:catalog|pip) [^'\n]*'"
    r"|(?<!\S)(?:catalog|pip)(?: (?:'[^'\n]*'|\"[^\"\n]*\"|[^\s'\",;()]+))+"
)
_LABEL = re.compile(r"(?<=\S)  +")  # blanks after the name of a value
_TAB = 4  # columns of a tab in a line that is cut
_JOINER, _EMOJI_STYLE = "\u200d", "\ufe0f"
_WORD = re.compile(r"\S+")
_FENCE = re.compile(r"\s{0,3}(?:```|~~~)")
_HEADING = re.compile(r"\s{0,3}#{1,6}\s")
_ITEM = re.compile(r"\s*(?:[-*+•–▪]|\d{1,3}[.)]|#\.|>)\s+")
_VERBATIM = re.compile(
    r"    |\t"  # code
    r"|\s*[|+╭│├╰┌└]"  # a table, or lines drawn with signs
    r"|\s*(?:\$|>>>|\.\.\.)\s"  # a session at a prompt
    r"|\s*([-=~^*_#])\1{2,}+[\s=-]*+\Z"  # a rule
    r"|\s*[\w.-]{1,40}\s*[:=](?:\s|\Z)"  # a field and its value
    r"|.*\S[ \t]{3,}\S"  # columns
)
_FLOWS_ON = re.compile(r"\s*[^\W\d_]|\s*[\"'“‘«(`*_]")
_NARROWEST_BLOCK = 40  # columns; shorter lines were not broken to fit a page
_NOT_FIRST = frozenset("。、，．！？：；）」』】〉》〕・ー…”’)]},.!?:;")
_NOT_LAST = frozenset("（「『【〈《〔“‘([{")
_SOURCE_TYPES_TEXT = """
    py pyi js mjs ts tsx jsx c h cc cpp hpp cs java kt go rs rb php pl r lua swift scala sh bash
    zsh ps1 bat sql css scss json jsonl ndjson yaml yml toml ini cfg conf xml csv tsv tex"""
_SOURCE_TYPES = frozenset(_SOURCE_TYPES_TEXT.split())


def display_width(text: str) -> int:
    """Return how many columns the text takes: two for a wide character, none for a mark."""
    if text.isascii():
        return len(text)
    return sum(_columns(char) for char in text)


def _columns(char: str) -> int:
    if char == _EMOJI_STYLE:
        return 1  # makes the sign before it, of one column, an emoji of two
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def shorten(text: str, width: int) -> str:
    """Return the text, cut to ``width`` columns with an ellipsis if it is longer."""
    if display_width(text) <= width:
        return text
    return f"{text[: _fitting(text, 0, len(text), width - 1)].rstrip()}…"


def wrap(text: str, width: int, indent: str = "", *, breaks_words: bool = True) -> list[str]:
    """Return one line of text as lines of at most ``width`` columns, all but the first indented.

    Unless it ``breaks_words``, a longer word makes its line as much wider.
    """
    if not text.strip():
        return [""]
    if display_width(text) <= width:
        return [text]
    lead = text[: len(text) - len(text.lstrip())]
    words = list(_atoms(text, [(0, len(text))]))
    room = max(LEAST_COLUMNS, width - display_width(indent))
    first, *others = _fill(text, words, room - display_width(lead), breaks_words=breaks_words)
    return [
        lead + _written(text, first),
        *(indent + _written(text, line) for line in others),
    ]


def fit(text: str, width: int | None, indent: str = "    ") -> str:
    """Return a message with lines of at most ``width`` columns; unchanged without a width.

    Further lines are indented more than the first. Paths, links and commands to copy stay whole.
    """
    if width is None:
        return text
    lines = []
    for line in text.split("\n"):
        whole = _COMMAND.sub(lambda found: found[0].replace(" ", "\0"), line)
        whole = _LABEL.sub(lambda found: found[0].replace(" ", "\0"), whole, count=1)
        lead = line[: len(line) - len(line.lstrip())]
        lines += wrap(whole, width, lead + indent, breaks_words=False)
    return "\n".join(lines).replace("\0", " ")


class Atom(NamedTuple):
    """A part of a text that is not broken; ``is_apart``: there is a blank before it."""

    start: int
    end: int
    is_apart: bool


@dataclass(frozen=True, slots=True)
class Block:
    """Lines of a text, as ``[start, end)``, that are laid out together; prose may be wrapped."""

    lines: tuple[tuple[int, int], ...]
    is_prose: bool

    @property
    def start(self) -> int:
        """Return where the first line begins."""
        return self.lines[0][0]

    @property
    def end(self) -> int:
        """Return where the last line ends."""
        return self.lines[-1][1]


def visible_text(text: str) -> str:
    """Return the text, safe to print and of the same length, its lines ended by line feeds."""
    return safe(text.replace("\r\n", " \n").replace("\r", "\n"))


def is_source(file_type: str) -> bool:
    """Return whether each line of files of that type has a meaning by itself."""
    return file_type.lower() in _SOURCE_TYPES


def find_blocks(text: str, *, is_code: bool, in_fence: bool = False) -> list[Block]:
    """Return the blocks of a text: paragraphs, list items, code, tables, blank lines.

    ``is_code``: all of it is code; ``in_fence``: it begins inside a fenced block.
    """
    blocks: list[Block] = []
    lines: list[tuple[int, int]] = []
    start = 0

    def close() -> None:
        if lines:
            blocks.extend(_paragraphs(text, lines))
            lines.clear()

    for line in text.split("\n"):
        span = (start, start + len(line))
        start = span[1] + 1
        is_fence = _FENCE.match(line) is not None
        if is_fence or in_fence or is_code or not line.strip() or _VERBATIM.match(line):
            close()
            blocks.append(Block((span,), is_prose=False))
        elif _HEADING.match(line):
            close()
            blocks.append(Block((span,), is_prose=True))
        else:
            if _ITEM.match(line):
                close()
            lines.append(span)
        in_fence ^= is_fence
    close()
    return blocks


def _paragraphs(text: str, lines: Sequence[tuple[int, int]]) -> Iterator[Block]:
    """Yield the lines in blocks; a line continues the previous one if that had no room for it.

    No room means that its first word would make that line longer than the longest line.
    """
    widths = [display_width(text[start:end].rstrip()) for start, end in lines]
    longest = max(widths)
    block = [lines[0]]
    for line, width in zip(lines[1:], widths, strict=False):
        words = text[line[0] : line[1]].split(maxsplit=1)
        is_full = longest >= _NARROWEST_BLOCK and width + 1 + display_width(words[0]) > longest
        if is_full and _FLOWS_ON.match(text, line[0]):
            block.append(line)
        else:
            yield Block(tuple(block), is_prose=True)
            block = [line]
    yield Block(tuple(block), is_prose=True)


def fill_block(text: str, block: Block, width: int) -> list[list[Atom]]:
    """Return a block of prose as lines of at most ``width`` columns."""
    return _fill(text, list(_atoms(text, block.lines)), width)


def hanging_indent(text: str, block: Block) -> str:
    """Return blanks as wide as the mark of a list item; "" for other blocks."""
    sign = _ITEM.match(text, block.start, block.end)
    return "" if sign is None else " " * display_width(sign.group().lstrip())


def cut_line(text: str, start: int, end: int, first_match: int, width: int) -> tuple[int, int]:
    """Return the part of a line that fits, with room for ellipses; it contains the match."""
    if display_width(text[start:end].expandtabs(_TAB)) <= width:
        return start, end
    stop = _fitting(text, start, end, width - 1)
    if first_match < stop:
        return start, stop
    begin, used = first_match, 0
    while begin > start and (used := used + _columns(text[begin - 1])) < width // 3:
        begin -= 1
    rest = display_width(text[begin:end])
    return begin, end if rest < width else _fitting(text, begin, end, width - 2)


def _atoms(text: str, lines: Sequence[tuple[int, int]]) -> Iterator[Atom]:
    """Yield the words of the lines; between wide characters a line may be broken anywhere."""
    before = None
    for line_start, line_end in lines:
        is_first = True
        for word in _WORD.finditer(text, line_start, line_end):
            start = word.start()
            is_apart = before is not None
            if is_first and before is not None:  # no blank where lines of Chinese are joined
                is_apart = not (_is_wide(text[before - 1]) and _is_wide(text[start]))
            is_first = False
            for at in range(start + 1, word.end()):
                if _may_break(text, at):
                    yield Atom(start, at, is_apart)
                    start, is_apart = at, False
            yield Atom(start, word.end(), is_apart)
            before = word.end()


def _is_wide(char: str) -> bool:
    return _columns(char) == 2


def _may_break(text: str, at: int) -> bool:
    before, after = text[at - 1], text[at]
    if not (_is_wide(before) or _is_wide(after)) or _is_joined(text, at):
        return False
    return before not in _NOT_LAST and after not in _NOT_FIRST


def _is_joined(text: str, at: int) -> bool:
    """Return whether a cut would separate a character from its marks, or parts of an emoji."""
    is_mark = _columns(text[at]) == 0 or text[at] == _EMOJI_STYLE
    return is_mark or text[at - 1] == _JOINER or 0x1F3FB <= ord(text[at]) <= 0x1F3FF


def _fill(
    text: str, atoms: Sequence[Atom], width: int, *, breaks_words: bool = True
) -> list[list[Atom]]:
    lines: list[list[Atom]] = [[]]
    used = 0
    for atom in _split_long(text, atoms, width) if breaks_words else atoms:
        size = display_width(text[atom.start : atom.end])
        gap = 1 if atom.is_apart and lines[-1] else 0
        if lines[-1] and used + gap + size > width:
            lines.append([])
            used = gap = 0
        lines[-1].append(atom)
        used += gap + size
    return lines


def _split_long(text: str, atoms: Sequence[Atom], width: int) -> Iterator[Atom]:
    for atom in atoms:
        start, is_apart = atom.start, atom.is_apart
        left = display_width(text[start : atom.end])
        while left > width:
            stop = _fitting(text, start, atom.end, width)
            yield Atom(start, stop, is_apart)
            left -= display_width(text[start:stop])
            start, is_apart = stop, False
        yield Atom(start, atom.end, is_apart)


def _fitting(text: str, start: int, end: int, width: int) -> int:
    """Return the end of the text that fits into the columns, at least one character.

    Joined characters are separated only if nothing else fits.
    """
    used, at = 0, start
    while at < end:
        used += _TAB if text[at] == "\t" else _columns(text[at])
        if used > width:
            break
        at += 1
    cut = at
    while start < cut < end and _is_joined(text, cut):
        cut -= 1
    return max(at if cut == start else cut, start + 1)


def _written(text: str, atoms: Sequence[Atom]) -> str:
    words = (
        f"{' ' if atom.is_apart and at else ''}{text[atom.start : atom.end]}"
        for at, atom in enumerate(atoms)
    )
    return "".join(words)
