"""reStructuredText: titles, literal blocks, and the field list at the top.

Section levels follow the order in which the styles of adornment appear, as in docutils.
"""

from __future__ import annotations

import re

from catalog.core.documents import Heading, ParsedDocument
from catalog.ingest.chunking.boundaries import iter_lines
from catalog.ingest.readers.base import WholeFileReader, choose_title, file_type, one_line
from catalog.ingest.readers.metadata import normalise, take_title

_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1++")
_SHORTEST_ADORNMENT = 4  # from which on it may be shorter than its title
_LITERAL = re.compile(
    r"\s*+\.\. +(?:code|code-block|sourcecode|parsed-literal|prompt)::.*|(?!\s*+\.\.).*::"
)
_FIELD = re.compile(r":([A-Za-z][\w .-]{0,40}):(?:[ \t]+(.*))?")
_MOST_FIELDS = 50
_MARKUP = (
    (re.compile(r"(?::[\w.+-]{1,40}){0,4}`~?([^`<>]*[^`<>\s])\s*+<[^`<>]*>`(?:__?)?"), r"\1"),
    (re.compile(r"(?::[\w.+-]{1,40}){1,4}:`~?([^`<>]*[^`<>\s])`"), r"\1"),
    (re.compile(r"``(.+?)``|`([^`]+)`(?:__?)?"), r"\1\2"),
    (re.compile(r"(\*{1,2})(?=\S)([^*]*[^*\s])\1"), r"\2"),
    (re.compile(r"(?<=\w)__?(?!\w)|\|(?=\w)|(?<=\w)\|"), ""),  # reference_, |name|
)


class RstReader(WholeFileReader):
    """Read text as written; the field list (``:Author: …``) becomes metadata as well."""

    def parse(self, text: str, path: str) -> ParsedDocument:
        """Return the document; its title is the first heading, a ``title`` field or the stem."""
        lines = list(iter_lines(text))
        raw = [text[line.start : line.end].rstrip() for line in lines] + ["", ""]
        headings, atomic, fields = list[Heading](), list[tuple[int, int]](), dict[str, str]()
        styles: dict[tuple[str, bool], int] = {}
        at, in_header, above = 0, True, ""
        while at < len(lines):
            rows = _count_title_rows(raw, at, above)
            last = _last_of_literal(raw, at) if not rows else None
            if rows:
                title = raw[at + rows - 2].strip()
                level = styles.setdefault((raw[at + rows - 1][0], rows == 3), len(styles) + 1)
                name = _plain_title(title) or one_line(title)
                headings.append(Heading(lines[at].start, lines[at + rows - 1].end, level, name))
            elif last is not None:
                is_directive = raw[at].lstrip().startswith("..")
                first = at if is_directive else next(n for n in range(at + 1, last + 1) if raw[n])
                atomic.append((lines[first].start, lines[last].end))
                rows = last + 1 - at
            elif in_header and raw[at]:
                field = _FIELD.fullmatch(raw[at])
                if field is not None and field[2] and len(fields) < _MOST_FIELDS:
                    fields[field[1].strip().casefold()] = field[2].strip()
                is_aside = raw[at].startswith("..") or raw[at][0].isspace()
                in_header = field is not None or is_aside or bool(_ADORNMENT.fullmatch(raw[at]))
            above = "" if rows in (2, 3) and last is None else raw[at + max(rows, 1) - 1]
            at += max(rows, 1)
        metadata = normalise(fields)
        stated = take_title(metadata) if "title" in fields else None
        return ParsedDocument(
            path=path,
            text=text,
            title=choose_title(path, headings[0].title if headings else None, stated),
            file_type=file_type(path),
            metadata=metadata,
            headings=tuple(headings),
            atomic=tuple(atomic),
            written=frozenset(metadata),
        )


def _plain_title(markup: str) -> str:
    text = markup[:400]  # a title has 300
    for pattern, replacement in _MARKUP:
        text = pattern.sub(replacement, text)
    return one_line(text)


def _count_title_rows(raw: list[str], at: int, above: str) -> int:
    """Return how many lines the title at a line has with its adornments; 0 without a title."""
    first, second, third = raw[at : at + 3]
    is_line = {one: _ADORNMENT.fullmatch(one) is not None for one in (first, second)}
    if is_line[first] and second and not is_line[second]:
        return 3 if third == first and len(first) >= min(len(second.strip()), 4) else 0
    if not is_line[second] or is_line[first] or not first or first[0].isspace():
        return 0
    is_continued = bool(above) and not above.startswith("..")
    is_short = len(second) < min(len(first), _SHORTEST_ADORNMENT)
    return 0 if is_continued or is_short or second == "::" else 2


def _last_of_literal(raw: list[str], at: int) -> int | None:
    """Return the last line of the literal block that a line opens, ``None`` without one."""
    if _LITERAL.fullmatch(raw[at]) is None or (
        raw[at + 1] and not raw[at].lstrip().startswith("..")
    ):
        return None
    indent, last = _indent(raw[at]), None
    for number in range(at + 1, len(raw)):
        if raw[number] and _indent(raw[number]) <= indent:
            break
        last = number if raw[number] else last
    return last


def _indent(raw: str) -> int:
    return len(raw.expandtabs()) - len(raw.expandtabs().lstrip())
