"""reStructuredText: titles, with levels in the order of their styles, literal blocks, fields."""

import re
from dataclasses import replace
from itertools import takewhile

from catalog.core.documents import Heading, ParsedDocument
from catalog.ingest.chunking.boundaries import iter_lines
from catalog.ingest.readers.base import WholeFileReader, choose_title, one_line
from catalog.ingest.readers.metadata import normalise
from catalog.ingest.readers.text import CodeReader

_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1++")
_LITERAL = re.compile(
    r"\s*+\.\. +(?:code|code-block|sourcecode|parsed-literal|prompt)::.*|(?!\s*+\.\.).*::"
)
_FIELD = re.compile(r":([A-Za-z][\w .-]{0,40}):(?:[ \t]+(.*))?")
_MARKUP = (
    (re.compile(r"``(.+?)``"), r"\1"),
    (re.compile(r"(?:(?::[\w.+-]+){1,4}:)?`~?([^`<>]*[^`<>\s])(?:\s*+<[^`<>]*>)?`_{0,2}"), r"\1"),
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
        styles, at, in_header, above = dict[tuple[str, bool], int](), 0, True, ""
        while at < len(lines):
            rows = _count_title_rows(raw, at, above)
            block = [] if rows else _literal_block(raw, at)
            if rows:
                last = at + rows - 1
                level = styles.setdefault((raw[last][0], rows == 3), len(styles) + 1)
                title = raw[last - 1].strip()[:400]  # a title has 300
                for pattern, replacement in _MARKUP:
                    title = pattern.sub(replacement, title)
                headings.append(Heading(lines[at].start, lines[last].end, level, one_line(title)))
            elif block:
                atomic.append((lines[block[0]].start, lines[block[-1]].end))
            elif in_header and len(fields) < 50 and (field := _FIELD.fullmatch(raw[at])):
                fields[field[1].strip().casefold()] = (field[2] or "").strip()
            elif raw[at]:
                in_header &= raw[at][0] in ". \t" or _ADORNMENT.fullmatch(raw[at]) is not None
            at = block[-1] + 1 if block else at + max(rows, 1)
            above = "" if rows else raw[at - 1]
        titles = [*(heading.title for heading in headings[:1]), fields.pop("title", None)]
        metadata = normalise(fields)
        return replace(
            CodeReader().parse(text, path),
            title=choose_title(path, *titles),
            metadata=metadata,
            headings=tuple(headings),
            atomic=tuple(atomic),
            written=frozenset(metadata),
        )


def _count_title_rows(raw: list[str], at: int, above: str) -> int:
    """Return how many lines the title at a line has with its adornments; 0 without a title."""
    first, second, third = raw[at : at + 3]
    is_line, is_under = (_ADORNMENT.fullmatch(one) is not None for one in (first, second))
    if is_line and second and not is_under:
        return 3 if third == first and len(first) >= min(len(second.strip()), 4) else 0
    if not is_under or is_line or not first or first[0].isspace() or second == "::":
        return 0
    is_continued = above != "" and not above.startswith("..")
    return 0 if is_continued or len(second) < min(len(first), 4) else 2


def _literal_block(raw: list[str], at: int) -> list[int]:
    """Return the lines of the literal block that a line opens."""
    is_directive = raw[at].lstrip().startswith("..")
    if _LITERAL.fullmatch(raw[at]) is None or (raw[at + 1] and not is_directive):
        return []
    below = takewhile(
        lambda n: not raw[n] or _indent(raw[n]) > _indent(raw[at]), range(at + 1, len(raw))
    )
    inner = [number for number in below if raw[number]]
    return [at, *inner] if is_directive and inner else inner


def _indent(raw: str) -> int:
    return len(raw.expandtabs()) - len(raw.expandtabs().lstrip())
