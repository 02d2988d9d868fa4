"""reStructuredText: titles, literal blocks, and the field list at the top.

Section levels follow the order in which the styles of adornment appear, as in docutils.
"""

from __future__ import annotations

import re
import string

from catalog.core.documents import Heading, ParsedDocument
from catalog.ingest.chunking.boundaries import iter_lines
from catalog.ingest.readers.base import WholeFileReader, choose_title, file_type, one_line
from catalog.ingest.readers.markdown import MAX_MARKUP, substitute
from catalog.ingest.readers.metadata import normalise, take_title

_PUNCTUATION = frozenset(string.punctuation)
_SHORTEST_ADORNMENT = 4
"""An adornment shorter than its title counts from this length on."""
_CODE = re.compile(r"\.\. +(?:code|code-block|sourcecode|parsed-literal|prompt)::")
_FIELD = re.compile(r":([A-Za-z][\w .-]{0,40}):(?:[ \t]+(.*))?$")
_MAX_FIELDS = 50
_INLINE_MARKUP = (
    (re.compile(r"`([^`<>]*[^`<>\s])\s*+<[^`<>]*>`__?"), r"\1"),  # `text <address>`_
    (  # :role:`text <target>`
        re.compile(r"(?::[\w.+-]{1,40}){1,4}:`~?([^`<>]*[^`<>\s])\s*+(?:<[^`<>]*>)?`"),
        r"\1",
    ),
    (re.compile(r"``(.+?)``"), r"\1"),
    (re.compile(r"`([^`]+)`(?:__?)?"), r"\1"),
    (re.compile(r"(\*{1,2})(?=\S)([^*]*[^*\s])\1"), r"\2"),
    (re.compile(r"(?<=\w)__?(?!\w)"), ""),  # reference_
    (re.compile(r"\|(\w[^|]*)\|"), r"\1"),
)


class RstReader(WholeFileReader):
    """Read text as written; the field list (``:Author: …``) becomes metadata as well."""

    def parse(self, text: str, path: str) -> ParsedDocument:
        """Return the document; its title is the first heading, a ``title`` field or the stem."""
        scanner = _Scanner(text)
        scanner.run()
        metadata = normalise(scanner.fields)
        field_title = take_title(metadata) if "title" in scanner.fields else None
        first = scanner.headings[0].title if scanner.headings else None
        return ParsedDocument(
            path=path,
            text=text,
            title=choose_title(path, first, field_title),
            file_type=file_type(path),
            metadata=metadata,
            headings=tuple(scanner.headings),
            atomic=tuple(scanner.atomic),
            written=frozenset(metadata),
        )


class _Scanner:
    """Find titles, literal blocks and the fields at the top, in time linear in the text.

    The methods that read a block return the line after it, or ``None`` without a block.
    """

    def __init__(self, text: str) -> None:
        self.headings: list[Heading] = []
        self.atomic: list[tuple[int, int]] = []
        self.fields: dict[str, str] = {}
        self._text = text
        self._lines = list(iter_lines(text))
        self._styles: list[tuple[str, bool]] = []

    def run(self) -> None:
        at = 0
        in_header = True
        while at < len(self._lines):
            content = self._content(at)
            if not content:
                at += 1
                continue
            following = self._read_title(at) or self._read_literal(at)
            if following is None:
                in_header = in_header and self._read_field(content)
                following = at + 1
            at = following

    def _content(self, at: int) -> str:
        """Return the line without white space at its end; "" outside the text."""
        if not 0 <= at < len(self._lines):
            return ""
        line = self._lines[at]
        return self._text[line.start : line.end].rstrip()

    def _read_title(self, at: int) -> int | None:
        first, second = self._content(at), self._content(at + 1)
        if _adornment(first) and second and _adornment(second) is None:
            if self._content(at + 2) == first and len(first) >= min(len(second.strip()), 4):
                self._add_heading(at, at + 2, first[0], second.strip(), is_overlined=True)
                return at + 3
            return None
        mark = _adornment(second)
        if mark is None or first[0].isspace() or _adornment(first) or self._continues(at):
            return None
        if len(second) < len(first) and len(second) < _SHORTEST_ADORNMENT:
            return None
        self._add_heading(at, at + 1, mark, first, is_overlined=False)
        return at + 2

    def _continues(self, at: int) -> bool:
        """Return whether line ``at`` continues a paragraph, so that it cannot be a title."""
        above = self._content(at - 1)
        is_end_of_title = bool(self.headings) and self.headings[-1].end == self._end(at - 1)
        return bool(above) and not above.startswith("..") and not is_end_of_title

    def _end(self, at: int) -> int:
        return self._lines[at].end if 0 <= at < len(self._lines) else -1

    def _add_heading(
        self, first: int, last: int, mark: str, markup: str, *, is_overlined: bool
    ) -> None:
        style = (mark, is_overlined)
        if style not in self._styles:
            self._styles.append(style)
        title = one_line(substitute(markup[:MAX_MARKUP], _INLINE_MARKUP)) or one_line(markup)
        level = self._styles.index(style) + 1
        self.headings.append(Heading(self._lines[first].start, self._end(last), level, title))

    def _read_literal(self, at: int) -> int | None:
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
        self.atomic.append((self._lines[start].start, self._end(last)))
        return last + 1

    def _last_of_block(self, at: int) -> int | None:
        """Return the last line indented deeper than line ``at``, ``None`` if the next is not."""
        indent = _indent(self._content(at))
        last = None
        for line in range(at + 1, len(self._lines)):
            content = self._content(line)
            if content and _indent(content) <= indent:
                break
            last = line if content else last
        return last

    def _read_field(self, content: str) -> bool:
        """Store the field in a line; return whether the line still belongs to the header."""
        if content.startswith("..") or content[0].isspace() or _adornment(content):
            return True
        match = _FIELD.match(content)
        if match is None:
            return False
        if match[2] and len(self.fields) < _MAX_FIELDS:
            self.fields[match[1].strip().casefold()] = match[2].strip()
        return True


def _adornment(content: str) -> str | None:
    """Return the character that the whole line repeats, ``None`` also for an indented line."""
    if len(content) < 2 or content[0] not in _PUNCTUATION or content.strip(content[0]):
        return None
    return content[0] if content != "::" else None


def _indent(content: str) -> int:
    return len(content.expandtabs()) - len(content.expandtabs().lstrip())
