"""Finds headings, code fences and tables in Markdown, line by line, with exact offsets.

It follows CommonMark where a heading or a fence may stand. It is more forgiving in one point:
a fence inside a list ends at its closing line even if the lines between are not indented,
because that is what people mean.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass

from catalog.core.documents import Heading
from catalog.ingest.chunking.boundaries import Line, iter_lines
from catalog.ingest.readers.base import one_line

_LONGEST = 1000

_CODE = re.compile(r"(`+)(.+?)(?<!`)\1(?!`)")
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
_HELD = re.compile("\ue000(\\d+)\ue001")
_NO_MARKS = dict.fromkeys((0xE000, 0xE001))
_MARKDOWN = (
    (re.compile(r"!?\[([^\[\]]*)\]\((?:[^()]|\([^()]*\))*\)"), r"\1"),  # image, link
    (re.compile(r"!?\[([^\[\]]*)\]\((?:[^()]|\([^()]*\))*\)"), r"\1"),  # a link round an image
    (re.compile(r"!?\[([^\[\]]+)\]\[[^\[\]]*\]"), r"\1"),  # reference
    (re.compile(r"<((?:https?|mailto|ftp):[^<>\s]+)>"), r"\1"),
    (re.compile(r"</?[A-Za-z][^<>]*>"), ""),
    (re.compile(r"\s*\{[#.:][^{}]*\}\s*\Z"), ""),  # {#anchor}
    (re.compile(r"(\*{1,3})(?=\S)([^*]*[^*\s])\1"), r"\2"),
    (re.compile(r"(~~)(?=\S)([^~]*[^~\s])\1"), r"\2"),
    # No identifier between the underscores: __init__ is a name, not a bold "init".
    (re.compile(r"(?<!\w)(_{1,3})(?=\S)([^_]*\s[^_]*[^_\s])\1(?!\w)"), r"\2"),
    (re.compile(r"(?<![\w_])_(?=[^_\s])([^_\s]+)_(?![\w_])"), r"\1"),
)
_RST = (
    (re.compile(r"`([^`<>]+?)\s*<[^`<>]*>`__?"), r"\1"),  # `text <address>`_
    (re.compile(r":[\w.+:-]+:`~?([^`<>]+?)(?:\s*<[^`<>]*>)?`"), r"\1"),  # :role:`text <target>`
    (re.compile(r"``(.+?)``"), r"\1"),
    (re.compile(r"`([^`]+)`(?:__?)?"), r"\1"),
    (re.compile(r"(\*{1,2})(?=\S)([^*]*[^*\s])\1"), r"\2"),
    (re.compile(r"(?<=\w)__?(?!\w)"), ""),  # reference_
    (re.compile(r"\|(\w[^|]*)\|"), r"\1"),
)


def plain_markdown(markup: str) -> str:
    """A Markdown heading as plain text on one line; what stands in backticks stays as it is."""
    held: list[str] = []

    def hold(value: str) -> str:
        held.append(value)
        return f"\ue000{len(held) - 1}\ue001"

    text = markup[:_LONGEST].translate(_NO_MARKS)
    text = _CODE.sub(lambda found: hold(found.group(2).strip()), text)
    text = _ESCAPED.sub(lambda found: hold(found.group(1)), text)
    text = html.unescape(_apply(text, _MARKDOWN))
    text = _HELD.sub(lambda found: held[int(found.group(1))], text)
    return " ".join(text.split())


def plain_rst(markup: str) -> str:
    """A reStructuredText title as plain text on one line."""
    return " ".join(_apply(markup[:_LONGEST], _RST).split())


def _apply(text: str, rules: tuple[tuple[re.Pattern[str], str], ...]) -> str:
    for pattern, replacement in rules:
        text = pattern.sub(replacement, text)
    return text


_LIST_ITEM = re.compile(r"[ ]*(?:[-*+]|\d{1,9}[.)])(?:[ \t]+|$)")
_FENCE = re.compile(r"(`{3,}(?=[^`]*$)|~{3,})")
_RAW_HTML = re.compile(r"<(?:(!--)|(pre|script|style|textarea)(?=[\s>]|$))", re.IGNORECASE)
_CELL = re.compile(r"\s*:?-+:?\s*")
_INDENT = 3
"""Spaces by which a block may be indented and still not be code."""
_LONGEST_SETEXT = 3
"""Lines of an underlined heading: a longer paragraph above a rule is a paragraph above a rule."""


@dataclass(frozen=True, slots=True)
class MarkdownOutline:
    """The structure of a text: headings in order, and spans that should not be cut."""

    headings: tuple[Heading, ...] = ()
    atomic: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True)
class _Fence:
    start: int
    mark: str
    indent: int

    def is_closed_by(self, body: str, indent: int) -> bool:
        return (
            indent <= self.indent + _INDENT
            and len(body) >= len(self.mark)
            and body.strip(self.mark[0]) == ""
        )


@dataclass(slots=True)
class _Raw:
    closer: str

    def is_closed_by(self, body: str, indent: int) -> bool:  # noqa: ARG002
        return self.closer in body.casefold()


def scan(text: str, start: int = 0) -> MarkdownOutline:
    """The outline of ``text`` from offset ``start`` on, in time linear in the text."""
    scanner = _Scanner(text)
    for line in iter_lines(text, start):
        scanner.feed(line)
    return scanner.finish()


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._headings: list[Heading] = []
        self._atomic: list[tuple[int, int]] = []
        self._open: _Fence | _Raw | None = None
        self._paragraph: list[Line] = []
        self._is_continued = False
        """Inside a list item or quotation: a line may continue it, and be no paragraph."""
        self._list_indent = 0
        self._table: tuple[int, int] | None = None

    def feed(self, line: Line) -> None:
        raw = self._text[line.start : line.end]
        body = raw.strip()
        if self._open is not None:
            self._inside(line, body, _indent(raw))
        elif not body:
            self._end_block()
        elif self._table is not None and "|" in body:
            self._table = (self._table[0], line.end)
        else:
            self._end_table()
            self._block(line, raw, body)

    def finish(self) -> MarkdownOutline:
        self._end_block()
        if isinstance(self._open, _Fence):
            self._atomic.append((self._open.start, len(self._text)))
        return MarkdownOutline(tuple(self._headings), tuple(self._atomic))

    def _inside(self, line: Line, body: str, indent: int) -> None:
        if self._open is None or not self._open.is_closed_by(body, indent):
            return
        if isinstance(self._open, _Fence):
            self._atomic.append((self._open.start, line.end))
        self._open = None

    def _block(self, line: Line, raw: str, body: str) -> None:
        indent = _indent(raw)
        if indent == 0 and body[0].isalpha() and not self._is_continued:
            self._list_indent = 0
            self._continue_paragraph(line)
            return
        if indent <= self._list_indent + _INDENT and self._opens(line, body, indent):
            return
        if indent > _INDENT:
            if self._paragraph:
                self._continue_paragraph(line)
            return
        if not (self._atx(line, body) or self._underline(line, body) or self._rule(body)):
            self._other(line, raw, body, indent)

    def _opens(self, line: Line, body: str, indent: int) -> bool:
        fence = _FENCE.match(body)
        if fence is not None:
            self._end_block()
            self._open = _Fence(line.start, fence.group(1), indent)
            return True
        raw = _RAW_HTML.match(body)
        if raw is None:
            return False
        self._end_block()
        block = _Raw("-->" if raw.group(1) else f"</{raw.group(2).casefold()}>")
        self._open = None if block.is_closed_by(body[raw.end() :], indent) else block
        return True

    def _atx(self, line: Line, body: str) -> bool:
        rest = body.lstrip("#")
        level = len(body) - len(rest)
        if not 1 <= level <= 6 or (rest and not rest[0].isspace()):
            return False
        self._end_block()
        content = rest.strip()
        closed = content.rstrip("#")
        if not closed or closed[-1].isspace():
            content = closed
        self._add(line.start, line.end, level, content)
        return True

    def _underline(self, line: Line, body: str) -> bool:
        above = self._paragraph
        if not above:
            return False
        if self._begins_table(above[-1], body):
            self._paragraph = []
            self._table = (above[-1].start, line.end)
            return True
        if body[0] not in "=-" or body.strip(body[0]) or len(above) > _LONGEST_SETEXT:
            return False
        self._end_block()
        content = self._text[above[0].start : above[-1].end]
        self._add(above[0].start, line.end, 1 if body[0] == "=" else 2, content)
        return True

    def _begins_table(self, header: Line, body: str) -> bool:
        if "|" not in body or "-" not in body:
            return False
        cells = body.strip("|").split("|")
        if not all(_CELL.fullmatch(cell) for cell in cells):
            return False
        return "|" in self._text[header.start : header.end]

    def _rule(self, body: str) -> bool:
        if body[0] not in "-*_" or len(marks := "".join(body.split())) < 3 or marks.strip(body[0]):
            return False
        self._end_block()
        self._list_indent = 0
        return True

    def _other(self, line: Line, raw: str, body: str, indent: int) -> None:
        """A list item, a quotation, or a line of a paragraph."""
        item = _LIST_ITEM.match(raw)
        if item is not None:
            self._end_block()
            self._is_continued = True
            self._list_indent = item.end()
            rest = raw[item.end() :].strip()
            if rest:
                self._opens(line, rest, item.end())
        elif body[0] == ">":
            self._end_block()
            self._is_continued = True
        elif not self._is_continued:
            if indent == 0:
                self._list_indent = 0
            self._continue_paragraph(line)

    def _continue_paragraph(self, line: Line) -> None:
        self._paragraph.append(line)
        if len(self._paragraph) > _LONGEST_SETEXT + 1:
            del self._paragraph[1]

    def _end_block(self) -> None:
        self._end_table()
        self._paragraph = []
        self._is_continued = False

    def _end_table(self) -> None:
        if self._table is not None:
            self._atomic.append(self._table)
            self._table = None

    def _add(self, start: int, end: int, level: int, content: str) -> None:
        title = one_line(plain_markdown(content)) or one_line(content)
        if title:
            self._headings.append(Heading(start, end, level, title))


def _indent(raw: str) -> int:
    """Columns of white space at the start; a tab reaches to the next multiple of four."""
    columns = 0
    for character in raw:
        if character == " ":
            columns += 1
        elif character == "\t":
            columns += 4 - columns % 4
        else:
            break
    return columns
