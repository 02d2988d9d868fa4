"""The sentences of a document that are prose: without markup, headings, code, tables and times.

Of a long text the beginning and evenly spaced pieces are read, so that the time does not grow
with it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from catalog.ingest.chunking.boundaries import END_MARK, sentence_spans
from catalog.ingest.markup import (
    HEAD_CHARS,
    IMAGE,
    TIME,
    drop_contents,
    skip_first_contents,
    strip_markup,
)
from catalog.store.lexical.analysis import UNSPACED

PIECES = 30
PIECE_CHARS = 400
_LONGEST = 700  # characters of a sentence; what is longer is a list or a table in disguise
_LONGEST_HEADING = 200
_FEWEST_WORDS = 4
_FEWEST_SIGNS = 8  # of a script without spaces
_FRONT_MATTER = re.compile(r"\A\ufeff?---[ \t]*\n.*?\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_FENCE = re.compile(r"\s{0,3}(?:```|~~~)")
_RULE = re.compile(r"\s*(?:([-=~^*_+\"'`.#:])(?:[ \t]*\1){2,}|::)\s*\Z")
_ITEM = re.compile(r"\s*(?:[-*+•–▪]|\d{1,3}[.)]|#\.)\s+")
_TIMES = re.compile(rf"\s*[\[(]?{TIME}[\])]?(?:\s*(?:-->|--?|[–—,])\s*[\[(]?{TIME}[\])]?.*)?\s*")
_LEADING_TIME = re.compile(
    rf"(?<!\s)\s*+[\[(]?{TIME}(?:\s*+[-–—]++\s*+{TIME})?[\])]?(?:\s*+[-–—:|]\s++|\s++)(?=\S)"
)
_CUE_NUMBER = re.compile(r"\s*(?:WEBVTT.*|NOTE\b.*|\d+|[\w-]+/\d+-\d+)\s*")
_SKIPPED = re.compile(
    r"""\s*(?:
        \#{1,6}\s                       # heading
      | (?:[A-Z]|\d+)(?:\.\d+)+\.?\s.{0,100}\Z    # numbered heading
      | \|                              # table
      | \.\.\s|__\s|:[\w-]{1,40}:(?:\s|\Z)   # reStructuredText directive, field
      | <!--|<\?|<!|\[[^\]]{1,200}\]:\s # comment, declaration, link definition
      | (?:[-*+•]\s+)?(?:https?://|www\.)\S+\s*\Z
      | \$\s|>>>|\.\.\.\s               # a session at a prompt
    )""",
    re.VERBOSE,
)
_LINKS = re.compile(r"\s*(?P<item>[-*+•]\s+|\d+[.)]\s+)?(?:!?\[[^\]]*\]\([^)]*\)[\s,;|·•]*)+\Z")
_BOILERPLATE = (
    "©", "copyright 1", "copyright 2", "copyright (c)", "all rights reserved", "we use cookies",
    "accept cookies", "uses cookies", "subscribe to ", "sign up for ", "click here", "skip to ",
    "table of contents",
)  # fmt: skip
_CODE = ("{", "}", " = ", "==", "=>", "().", "();", "/>")
_LICENCE = (
    "without any warranty", "without warranty of any kind", "merchantability", "liable for any",
    "permission is granted", "permission is hereby granted", "general public license",
    "free documentation license", "free software foundation", "this permission notice",
    "above copyright notice", "redistribution and use in source", "redistributions of source code",
    "redistributions in binary form", "under the conditions for verbatim copying",
    "you should have received a copy", "gnu.org/licenses",
)  # fmt: skip
_DEFINITION = re.compile(r"^ {0,3}\[[^\[\]\n]{1,200}\]: ?\S", re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_DIRECTIVE = re.compile(r"\s*\.\.\s+([\w:+-]{1,40})::\s*")
_SILENT_DIRECTIVES = (
    "code", "code-block", "contents", "figure", "highlight", "image", "index", "math", "meta",
    "only", "raw", "sourcecode",
)  # fmt: skip
_NO_LINE = re.compile(r"\s*(?::[\w-]{1,40}:(?:\s|\Z)|\.\.(?:\s|\Z)|__\s|\[[^\]]{1,200}\]:\s)")
_SUBSTITUTION = re.compile(r"(?<![\w|])\|(\w[\w. -]{0,60})\|_{0,2}(?![\w|])")
_TABLE_RULE = re.compile(r"[\s|:+=-]+\Z")
_HASHES = re.compile(r"\s{0,3}#{1,6}\s+")
_ENDED = re.compile(rf"{END_MARK.pattern}[^\w\s]*\Z")
_SIGN = re.compile(r"[^\w\s]|\d")


@dataclass(frozen=True, slots=True)
class Prose:
    """What of a text is prose.

    ``sentences`` are those worth showing, each once and in order; ``paragraphs`` the lines of
    its beginning (at most about ``HEAD_CHARS`` characters) that are neither headings nor code nor
    tables, each once, whether or not they are sentences; ``share`` how much of all such lines is
    in whole sentences, from 0 to 1.
    """

    sentences: list[str]
    paragraphs: list[str]
    share: float

    @property
    def plain(self) -> str:
        """The paragraphs as one line, without markup."""
        return " ".join(filter(None, map(strip_markup, self.paragraphs)))


def read_prose(text: str, headings: Collection[str] = ()) -> Prose:
    """Read the prose of a text; a line that is one of the ``headings`` is none of it.

    Sentences are without markup, every run of white space one space. Those of a licence count
    only in a text that is mostly licence.
    """
    folded_headings = {_fold(heading) for heading in headings}
    has_references = "]:" in text and _DEFINITION.search(text) is not None
    sentences: dict[str, str] = {}  # by their folded text
    lines: dict[str, None] = {}
    paragraphs: list[str] = []
    in_sentences, in_all = 0, 0
    for piece, is_first in _pieces(text):
        for paragraph in _paragraphs(piece, folded_headings):
            clean = strip_markup(paragraph, has_references)
            for start, end in sentence_spans(clean):
                sentence = clean[start:end]
                folded = sentence.casefold()
                if folded in sentences or _is_prose(sentence, folded):
                    sentences.setdefault(folded, sentence)
                    in_sentences += len(sentence)
            in_all += len(clean)
            if is_first:
                own = dict.fromkeys(paragraph.split("\n"))
                paragraphs.append("\n".join(line for line in own if line not in lines))
                lines.update(own)
    return Prose(_drop_licence(sentences), paragraphs, in_sentences / max(in_all, 1))


def first_lines(text: str, max_chars: int) -> str:
    """Return what stands first in the text, each line once, as one line of some ``max_chars``.

    Markup is left out; the rows of a table become their cells, with commas.
    """
    begin = _body_start(text)
    start = _COMMENT.sub(" ", text[begin : begin + 10 * max_chars])
    lines = start.splitlines()
    is_restructured = any(map(_DIRECTIVE.match, lines))
    shown: dict[str, None] = {}
    length, fenced = 0, False
    for line in lines:
        if _FENCE.match(line):
            fenced = not fenced
            continue
        clean = " ".join(line.split()) if fenced else _show_line(line)
        if is_restructured and not fenced:
            clean = _SUBSTITUTION.sub(r"\1", clean)
        if clean and clean not in shown:
            shown[clean] = None
            length += len(clean) + 1
            if length > max_chars:
                break
    return " ".join(shown).rstrip(";")


def _show_line(line: str) -> str:
    """Return a line without what marks it as a heading, an item, a directive or a row."""
    directive = _DIRECTIVE.match(line)
    if directive:
        return "" if directive[1] in _SILENT_DIRECTIVES else line[directive.end() :].strip()
    if _RULE.match(line) or _NO_LINE.match(line) or _TIMES.fullmatch(line):
        return ""
    if _is_row(line.strip()):
        if _TABLE_RULE.match(line):
            return ""
        cells = (strip_markup(cell) for cell in line.split("|"))
        return ", ".join(filter(None, cells)) + ";"
    images = IMAGE.sub(lambda image: image[1] if " " in image[1] else " ", line)
    return strip_markup(_HASHES.sub("", images, count=1))


def _is_row(line: str) -> bool:
    if line.startswith("|") and len(line) > 1:
        return line[1].isspace() or line.endswith("|")
    return " | " in line or line.endswith(" |")


def _drop_licence(sentences: dict[str, str]) -> list[str]:
    """Return the sentences but those of a licence, if there is more than a licence."""
    whole = "\n".join(sentences)
    parts = [part for part in _LICENCE if part in whole]
    others = [
        sentence
        for folded, sentence in sentences.items()
        if not any(part in folded for part in parts)
    ]
    has_more = 2 * sum(map(len, others)) >= sum(map(len, sentences))
    return others if has_more else list(sentences.values())


def _body_start(text: str) -> int:
    """Return where the text begins, after front matter."""
    front = _FRONT_MATTER.match(text)
    return front.end() if front else 0


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the text, or its beginning and pieces of the rest; ``True`` with the beginning.

    The beginning goes on after a table of contents.
    """
    begin = _body_start(text)
    if len(text) - begin <= HEAD_CHARS + PIECES * PIECE_CHARS:
        yield text[begin:], True
        return
    before, begin = skip_first_contents(text, begin)
    if before:
        yield before, True
    yield text[begin : begin + HEAD_CHARS], True
    step = (len(text) - begin - HEAD_CHARS) / PIECES
    for number in range(PIECES if step > 0 else 0):
        start = begin + HEAD_CHARS + int(number * step)
        piece = text[start : start + PIECE_CHARS]
        first = next((end for _, end in sentence_spans(piece)), len(piece))
        yield piece[first:], False  # it begins within a sentence


def _paragraphs(text: str, headings: Collection[str]) -> Iterator[str]:
    """Yield the lines that belong together, as one string each."""
    is_timed = "-->" in text
    fenced = False
    paragraph: list[str] = []
    if "<!--" in text:
        text = _COMMENT.sub(" ", text)
    for line in drop_contents(text.splitlines()):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            if _RULE.match(line):
                paragraph = paragraph[:-1]  # what is underlined is a heading
            elif (is_timed and (not line.strip() or _CUE_NUMBER.fullmatch(line))) or (
                _TIMES.fullmatch(line) and line.strip()
            ):
                continue
            elif line.strip() and not _is_left_out(line, headings, bool(paragraph)):
                item = _ITEM.match(line)
                if paragraph and (item or _ends_alone(paragraph[-1], line)):
                    yield "\n".join(paragraph)
                    paragraph = []
                line = line[item.end() :] if item else line
                paragraph.append(_LEADING_TIME.sub("", line, count=1) if ":" in line[:16] else line)
                continue
        if paragraph:
            yield "\n".join(paragraph)
        paragraph = []
    if paragraph:
        yield "\n".join(paragraph)


def _is_left_out(line: str, headings: Collection[str], is_within: bool) -> bool:
    """Return whether a line is no prose; one of links alone is, within a paragraph."""
    links = _LINKS.match(line) if "](" in line else None
    if links and (links["item"] or not is_within):
        return True
    if "-->" in line or " | " in line or _SKIPPED.match(line):
        return True
    return len(line) < _LONGEST_HEADING and _fold(line) in headings


def _ends_alone(line: str, following: str) -> bool:
    """Recognise a heading that is not marked: short, without an end, before one with a capital.

    A line all in capitals is a heading before any other line.
    """
    if len(line) > 48 or END_MARK.search(line[-2:]) or line.rstrip()[-1:] in ",;:–—-":
        return False
    if line.isupper() and line.replace(" ", "").isalpha() and not following.isupper():
        return True
    first = following.lstrip()[:1]
    return first.isupper() and len(following) > 1.5 * len(line)


def _is_prose(sentence: str, folded: str) -> bool:
    if len(sentence) > _LONGEST or not _ENDED.search(sentence[-4:]):
        return False
    if sentence[0] in ",;:)" or sentence.endswith(", ."):
        return False  # a part of a formula
    if not sentence.isascii() and UNSPACED.search(sentence):
        return sum(map(str.isalpha, sentence)) >= _FEWEST_SIGNS
    if sentence.count(" ") < _FEWEST_WORDS - 1 or sentence[0] in ">|=<{}$;":
        return False
    if any(sign in sentence for sign in _CODE) or any(part in folded for part in _BOILERPLATE):
        return False
    return len(_SIGN.findall(sentence)) <= 0.25 * len(sentence)


def _fold(line: str) -> str:
    return " ".join(line.casefold().split())
