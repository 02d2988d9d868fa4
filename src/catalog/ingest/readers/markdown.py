"""Markdown: front matter, headings, code fences and tables; transcripts and captions in it.

Blocks are found line by line, with exact offsets, in time linear in the text and in little memory,
because a text file may have 20 MB and is read in this process. The scanner follows CommonMark on
where a heading or fence may be. It differs in one point: a fence inside a list ends at its closing
line even if the lines between are not indented, because that is usually meant.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from catalog.core.documents import Heading, MetadataValue, ParsedDocument, Table
from catalog.ingest.chunking.boundaries import Line, iter_lines
from catalog.ingest.readers.base import WholeFileReader, choose_title, file_type, one_line
from catalog.ingest.readers.metadata import (
    LEVEL,
    end_of_front_matter,
    normalise,
    one_level,
    read_front_matter,
    take_title,
)
from catalog.ingest.readers.tables import make_table
from catalog.ingest.readers.timed.converted import add_segments, read_converter_header
from catalog.ingest.readers.timed.frames import describe_source, normalise_recording


class MarkdownReader(WholeFileReader):
    """Read text as written; front matter becomes metadata and is not part of the body.

    Text converted from a recording or image loses the timecodes before its cues. The facts that the
    converter wrote below the title become metadata. No line is ever removed.
    """

    def parse(self, text: str, path: str) -> ParsedDocument:
        """Return the document; its title is in front matter, the first heading or the stem."""
        front_matter, body_start, problem = read_front_matter(text)
        metadata = normalise(front_matter)
        header = read_converter_header(text, body_start)
        fields: Mapping[Any, object] = front_matter
        recording: dict[str, MetadataValue] = {}
        if header is not None:
            header_fields, text = header
            fields = {**header_fields, **front_matter}
            recording = normalise_recording(header_fields)
        level = one_level(recording.get(LEVEL), metadata.get(LEVEL))
        title = take_title(metadata)
        top = end_of_front_matter(text) if front_matter and not body_start else body_start
        headings, atomic, tables = scan_markdown(text, top)
        first = headings[0].title if headings else None
        document = ParsedDocument(
            path=path,
            text=text,
            title=choose_title(path, title, first),
            file_type=file_type(path),
            metadata={**recording, **metadata, **level},
            headings=headings,
            atomic=atomic,
            tables=tables,
            body_start=body_start,
            written=frozenset(metadata) | ({"title"} if title else set()),
            remarks=(problem,) if problem else (),
        )
        return add_segments(document, describe_source(path, fields, has_header=header is not None))


MAX_MARKUP = 1000
"""Characters of a heading that are looked at for markup."""
_CODE = re.compile(r"(?<!`)(`++)(.+?)(?<!`)\1(?!`)")
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
_PLACEHOLDER = re.compile("\ue000(\\d+)\ue001")
_NO_PLACEHOLDERS = dict.fromkeys((0xE000, 0xE001))
_INLINE_MARKUP = (
    (re.compile(r"!?\[([^\[\]]*)\]\((?:[^()]|\([^()]*\))*\)"), r"\1"),  # image, link
    (re.compile(r"!?\[([^\[\]]*)\]\((?:[^()]|\([^()]*\))*\)"), r"\1"),  # a link round an image
    (re.compile(r"!?\[([^\[\]]+)\]\[[^\[\]]*\]"), r"\1"),  # reference
    (re.compile(r"<((?:https?|mailto|ftp):[^<>\s]+)>"), r"\1"),
    (re.compile(r"</?[A-Za-z][^<>]*>"), ""),
    (re.compile(r"(?<!\s)\s*+\{[#.:][^{}]*+\}\s*+\Z"), ""),  # {#anchor}
    (re.compile(r"(\*{1,3})(?=\S)([^*]*[^*\s])\1"), r"\2"),
    (re.compile(r"(~~)(?=\S)([^~]*[^~\s])\1"), r"\2"),
    # No identifier between the underscores: __init__ is a name, not a bold "init".
    (re.compile(r"(?<!\w)(_{1,3})(?=\S)([^_]*\s[^_]*[^_\s])\1(?!\w)"), r"\2"),
    (re.compile(r"(?<![\w_])_(?=[^_\s])([^_\s]+)_(?![\w_])"), r"\1"),
)


def substitute(text: str, rules: Sequence[tuple[re.Pattern[str], str]]) -> str:
    """Return ``text`` with each pattern replaced in turn."""
    for pattern, replacement in rules:
        text = pattern.sub(replacement, text)
    return text


def _plain_title(markup: str) -> str:
    """Return a heading as plain text; text in backticks stays unchanged."""
    literals: list[str] = []

    def set_aside(literal: str) -> str:
        literals.append(literal)
        return f"\ue000{len(literals) - 1}\ue001"

    text = markup[:MAX_MARKUP].translate(_NO_PLACEHOLDERS)
    text = _CODE.sub(lambda match: set_aside(match[2].strip()), text)
    text = _ESCAPED.sub(lambda match: set_aside(match[1]), text)
    text = html.unescape(substitute(text, _INLINE_MARKUP))
    return one_line(_PLACEHOLDER.sub(lambda match: literals[int(match[1])], text))


_LIST_ITEM = re.compile(r"[ ]*(?:[-*+]|\d{1,9}[.)])(?:[ \t]+|$)")
_OUTLINE = re.compile(r"\s*+(?:[\w./-]++::[^\n]*+\n\s*+)*+- ")
_FENCE = re.compile(r"(`{3,}(?=[^`]*$)|~{3,})")
_RAW_HTML = re.compile(r"<(?:(!--)|(pre|script|style|textarea)(?=[\s>]|$))", re.IGNORECASE)
_CELL = re.compile(r"\s*:?-+:?\s*")
_BAR = re.compile(r"(?<!\\)\|")
_MAX_INDENT = 3
"""Spaces by which a block may be indented and still not be code."""
_MAX_SETEXT_LINES = 3
"""Lines of an underlined heading: a longer paragraph above a rule is a paragraph above a rule."""


def scan_markdown(
    text: str, start: int = 0
) -> tuple[tuple[Heading, ...], tuple[tuple[int, int], ...], tuple[Table, ...]]:
    """Return the headings of ``text[start:]``, the spans that should not be cut, and the tables.

    Such spans are code fences and tables. Headings in lists and quotations do not count, except in
    a text that is one list from its beginning, as Logseq writes it.
    """
    scanner = _Scanner(text, is_outline=_OUTLINE.match(text, start) is not None)
    for line in iter_lines(text, start):
        scanner.feed(line)
    scanner.finish()
    return tuple(scanner.headings), tuple(scanner.atomic), tuple(scanner.tables)


@dataclass(slots=True)
class _OpenBlock:
    """A code fence or raw HTML, in which lines have no meaning until ``closer``."""

    start: int
    closer: str
    indent: int
    is_fence: bool

    def is_closed_by(self, body: str, indent: int) -> bool:
        if not self.is_fence:
            return self.closer in body.casefold()
        is_mark = len(body) >= len(self.closer) and body.strip(self.closer[0]) == ""
        return is_mark and indent <= self.indent + _MAX_INDENT


class _Scanner:
    def __init__(self, text: str, *, is_outline: bool) -> None:
        self._is_outline = is_outline
        self.headings: list[Heading] = []
        self.atomic: list[tuple[int, int]] = []
        self.tables: list[Table] = []
        self._text = text
        self._open: _OpenBlock | None = None
        self._paragraph: list[Line] = []
        self._is_continued = False
        """Inside a list item or quotation: a line may continue it, and be no paragraph."""
        self._list_indent = 0
        self._table: tuple[int, int] | None = None

    def feed(self, line: Line) -> None:
        raw = self._text[line.start : line.end]
        body = raw.strip()
        if self._open is not None:
            if self._open.is_closed_by(body, _indent(raw)):
                self._close(self._open, line.end)
        elif not body:
            self._end_block()
        elif self._table is not None and "|" in body:
            self._table = (self._table[0], line.end)
        else:
            self._end_table()
            self._read_line(line, raw, body)

    def finish(self) -> None:
        self._end_block()
        if self._open is not None:
            self._close(self._open, len(self._text))

    def _close(self, block: _OpenBlock, end: int) -> None:
        if block.is_fence:
            self.atomic.append((block.start, end))
        self._open = None

    def _read_line(self, line: Line, raw: str, body: str) -> None:
        indent = _indent(raw)
        is_item = self._is_outline and body.startswith("- ")
        if is_item and self._read_heading(line, body[2:].strip()):
            self._is_continued = True
            self._list_indent = indent + 2
        elif indent == 0 and body[0].isalpha() and not self._is_continued:
            self._list_indent = 0
            self._add_to_paragraph(line)
        elif indent <= self._list_indent + _MAX_INDENT and self._read_opening(line, body, indent):
            return
        elif indent > _MAX_INDENT:
            if self._paragraph:
                self._add_to_paragraph(line)
        elif not (
            self._read_heading(line, body)
            or self._read_underline(line, body)
            or self._is_rule(body)
        ):
            self._read_other(line, raw, body, indent)

    def _read_opening(self, line: Line, body: str, indent: int) -> bool:
        fence = _FENCE.match(body)
        if fence is not None:
            self._end_block()
            self._open = _OpenBlock(line.start, fence[1], indent, is_fence=True)
            return True
        raw = _RAW_HTML.match(body)
        if raw is None:
            return False
        self._end_block()
        closer = "-->" if raw[1] else f"</{raw[2].casefold()}>"
        block = _OpenBlock(line.start, closer, indent, is_fence=False)
        self._open = None if block.is_closed_by(body[raw.end() :], indent) else block
        return True

    def _read_heading(self, line: Line, body: str) -> bool:
        rest = body.lstrip("#")
        level = len(body) - len(rest)
        if not 1 <= level <= 6 or (rest and not rest[0].isspace()):
            return False
        self._end_block()
        content = rest.strip()
        unclosed = content.rstrip("#")
        if not unclosed or unclosed[-1].isspace():
            content = unclosed
        self._add_heading(line.start, line.end, level, content)
        return True

    def _read_underline(self, line: Line, body: str) -> bool:
        """Read the line below a heading, or below the head of a table."""
        above = self._paragraph
        if not above:
            return False
        if self._begins_table(above[-1], body):
            self._paragraph = []
            self._table = (above[-1].start, line.end)
            return True
        if body[0] not in "=-" or body.strip(body[0]) or len(above) > _MAX_SETEXT_LINES:
            return False
        self._end_block()
        content = self._text[above[0].start : above[-1].end]
        self._add_heading(above[0].start, line.end, 1 if body[0] == "=" else 2, content)
        return True

    def _begins_table(self, header: Line, body: str) -> bool:
        if "|" not in body or "-" not in body:
            return False
        cells = body.strip("|").split("|")
        if not all(_CELL.fullmatch(cell) for cell in cells):
            return False
        return "|" in self._text[header.start : header.end]

    def _is_rule(self, body: str) -> bool:
        if body[0] not in "-*_" or len(marks := "".join(body.split())) < 3 or marks.strip(body[0]):
            return False
        self._end_block()
        self._list_indent = 0
        return True

    def _read_other(self, line: Line, raw: str, body: str, indent: int) -> None:
        """Read a list item, a quotation, or a line of a paragraph."""
        item = _LIST_ITEM.match(raw)
        if item is not None:
            self._end_block()
            self._is_continued = True
            self._list_indent = item.end()
            rest = raw[item.end() :].strip()
            if rest:
                self._read_opening(line, rest, item.end())
        elif body[0] == ">":
            self._end_block()
            self._is_continued = True
        elif not self._is_continued:
            if indent == 0:
                self._list_indent = 0
            self._add_to_paragraph(line)

    def _add_to_paragraph(self, line: Line) -> None:
        self._paragraph.append(line)
        if len(self._paragraph) > _MAX_SETEXT_LINES + 1:
            del self._paragraph[1]

    def _end_block(self) -> None:
        self._end_table()
        self._paragraph = []
        self._is_continued = False

    def _end_table(self) -> None:
        if self._table is not None:
            start, end = self._table
            self.atomic.append((start, end))
            header = self._text[start:end].lstrip().partition("\n")[0].strip().strip("|")
            self.tables += make_table(start, end, [_BAR.split(header)])
            self._table = None

    def _add_heading(self, start: int, end: int, level: int, content: str) -> None:
        title = _plain_title(content) or one_line(content)
        if title:
            self.headings.append(Heading(start, end, level, title))


def _indent(raw: str) -> int:
    """Count the columns of white space at the start; a tab goes to a multiple of four."""
    leading = raw[: len(raw) - len(raw.lstrip(" \t"))]
    return len(leading.expandtabs(4))
