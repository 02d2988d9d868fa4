"""reStructuredText: titles, literal blocks, and the field list at the top.

Section levels follow the order in which the styles of adornment appear, as docutils has it.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from dataclasses import dataclass, field

from catalog.core.documents import Heading, ParsedDocument
from catalog.ingest.chunking.boundaries import Line, iter_lines
from catalog.ingest.readers.base import WholeFileReader, file_type, one_line, title_or_stem
from catalog.ingest.readers.markdown_scan import plain_rst
from catalog.ingest.readers.metadata import normalise, take_title

_PUNCTUATION = frozenset(string.punctuation)
_SHORTEST_ADORNMENT = 4
"""An adornment shorter than its title counts from this length on."""
_CODE = re.compile(r"\.\. +(?:code|code-block|sourcecode|parsed-literal|prompt)::")
_FIELD = re.compile(r":([A-Za-z][\w .-]{0,40}):(?:[ \t]+(.*))?$")
_MAX_FIELDS = 50


@dataclass(frozen=True, slots=True)
class RstOutline:
    """The structure of a text; ``fields`` are those of the field list at its top."""

    headings: tuple[Heading, ...] = ()
    atomic: tuple[tuple[int, int], ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)


def scan(text: str) -> RstOutline:
    """The outline of ``text``, in time linear in it."""
    return _Scanner(text).run()


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._lines = list(iter_lines(text))
        self._headings: list[Heading] = []
        self._atomic: list[tuple[int, int]] = []
        self._fields: dict[str, str] = {}
        self._styles: list[tuple[str, bool]] = []

    def run(self) -> RstOutline:
        at = 0
        in_header = True
        while at < len(self._lines):
            content = self._content(at)
            if not content:
                at += 1
                continue
            following = self._title(at) or self._literal(at)
            if following is None:
                in_header = in_header and self._field(content)
                following = at + 1
            at = following
        return RstOutline(tuple(self._headings), tuple(self._atomic), self._fields)

    def _content(self, at: int) -> str:
        """The line without the white space at its end; empty past the text."""
        if not 0 <= at < len(self._lines):
            return ""
        line: Line = self._lines[at]
        return self._text[line.start : line.end].rstrip()

    def _title(self, at: int) -> int | None:
        """Adds the title that begins in line ``at``; answers the line after it."""
        first, second = self._content(at), self._content(at + 1)
        if _adornment(first) and second and _adornment(second) is None:
            if self._content(at + 2) == first and len(first) >= min(len(second.strip()), 4):
                self._add(at, at + 2, first[0], second.strip(), overlined=True)
                return at + 3
            return None
        mark = _adornment(second)
        if mark is None or first[0].isspace() or _adornment(first) or self._continues(at):
            return None
        if len(second) < len(first) and len(second) < _SHORTEST_ADORNMENT:
            return None
        self._add(at, at + 1, mark, first, overlined=False)
        return at + 2

    def _continues(self, at: int) -> bool:
        """Whether line ``at`` goes on with a paragraph, so that it cannot be a title."""
        above = self._content(at - 1)
        is_end_of_title = bool(self._headings) and self._headings[-1].end == self._end(at - 1)
        return bool(above) and not above.startswith("..") and not is_end_of_title

    def _end(self, at: int) -> int:
        return self._lines[at].end if 0 <= at < len(self._lines) else -1

    def _add(self, first: int, last: int, mark: str, markup: str, *, overlined: bool) -> None:
        style = (mark, overlined)
        if style not in self._styles:
            self._styles.append(style)
        title = one_line(plain_rst(markup)) or one_line(markup)
        level = self._styles.index(style) + 1
        self._headings.append(Heading(self._lines[first].start, self._end(last), level, title))

    def _literal(self, at: int) -> int | None:
        """Adds the literal block that line ``at`` announces; answers the line after it."""
        content = self._content(at)
        is_directive = _CODE.match(content.lstrip()) is not None
        is_paragraph = content.endswith("::") and not content.lstrip().startswith("..")
        if not (is_directive or is_paragraph):
            return None
        if is_paragraph and self._content(at + 1):
            return None
        last = self._last_of_block(at)
        if last is None:
            return None
        start = at
        if not is_directive:
            start = next(line for line in range(at + 1, last + 1) if self._content(line))
        self._atomic.append((self._lines[start].start, self._end(last)))
        return last + 1

    def _last_of_block(self, at: int) -> int | None:
        """The last line indented deeper than line ``at``, or ``None`` if the next is not."""
        indent = _indent(self._content(at))
        last = None
        for line in range(at + 1, len(self._lines)):
            content = self._content(line)
            if content and _indent(content) <= indent:
                break
            last = line if content else last
        return last

    def _field(self, content: str) -> bool:
        """Whether the line still belongs to the header; keeps its field."""
        if content.startswith("..") or content[0].isspace() or _adornment(content):
            return True
        found = _FIELD.match(content)
        if found is None:
            return False
        if found.group(2) and len(self._fields) < _MAX_FIELDS:
            self._fields[found.group(1).strip().casefold()] = found.group(2).strip()
        return True


def _adornment(content: str) -> str | None:
    """The mark that the whole line repeats, or ``None``; indented lines are no adornment."""
    if len(content) < 2 or content[0] not in _PUNCTUATION or content.strip(content[0]):
        return None
    return content[0] if content != "::" else None


def _indent(content: str) -> int:
    return len(content.expandtabs()) - len(content.expandtabs().lstrip())


class RstReader(WholeFileReader):
    """The text stays as written; the field list (``:Author: …``) is metadata as well as text."""

    def parse(self, text: str, path: str) -> ParsedDocument:
        """The document; its title is the first heading, else a ``title`` field, else the stem."""
        outline = scan(text)
        metadata = normalise(outline.fields)
        named = take_title(metadata) if "title" in outline.fields else None
        first = outline.headings[0].title if outline.headings else None
        return ParsedDocument(
            path=path,
            text=text,
            title=one_line(first or "") or title_or_stem(named, path),
            file_type=file_type(path),
            metadata=metadata,
            headings=outline.headings,
            atomic=outline.atomic,
        )
