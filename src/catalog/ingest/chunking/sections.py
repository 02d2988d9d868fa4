"""Sections: the stretch from one heading to the next, and the path of headings above it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from catalog.core.models import Heading, ParsedDocument
from catalog.ingest.chunking.breaks import skip_space, trim_end
from catalog.ingest.chunking.measure import Measure


@dataclass(frozen=True, slots=True)
class Section:
    """Text under one heading, without the white space around it.

    A heading with nothing under it but a deeper heading belongs to the section of that one:
    ``path`` then is the deeper path, and ``outer_path`` that of the heading it starts with.
    """

    start: int
    end: int
    path: tuple[str, ...] = ()
    outer_path: tuple[str, ...] = ()


def sections(doc: ParsedDocument) -> list[Section]:
    """The sections of a document's body in order; those without text are left out."""
    headings = [heading for heading in doc.headings if heading.start >= doc.body_start]
    headings.sort(key=lambda heading: heading.start)
    first = headings[0].start if headings else len(doc.text)
    found = [_trimmed(doc.text, Section(doc.body_start, first))]
    found.extend(_under_headings(doc.text, headings))
    return [section for section in found if section.start < section.end]


def merged(
    found: Sequence[Section], measure: Measure, *, min_size: int, chunk_size: int
) -> Iterator[Section]:
    """Joins a section under ``min_size`` with those after it while all fit in ``chunk_size``."""
    at = 0
    while at < len(found):
        section, following = found[at], at + 1
        end = section.end
        while (
            following < len(found)
            and measure.size(section.start, end) < min_size
            and measure.size(section.start, found[following].end) <= chunk_size
        ):
            end = found[following].end
            following += 1
        is_one = following == at + 1
        yield section if is_one else replace(section, end=end, path=section.outer_path)
        at = following


def _under_headings(text: str, headings: Sequence[Heading]) -> Iterator[Section]:
    stack: list[Heading] = []
    start: int | None = None
    outer: tuple[str, ...] = ()
    for position, heading in enumerate(headings):
        while stack and stack[-1].level >= heading.level:
            stack.pop()
        stack.append(heading)
        path = tuple(above.title for above in stack)
        if start is None:
            start, outer = heading.start, path
        following = headings[position + 1] if position + 1 < len(headings) else None
        end = len(text) if following is None else following.start
        is_bare = skip_space(text, heading.end, end) >= end
        if is_bare and following is not None and following.level > heading.level:
            continue
        yield _trimmed(text, Section(start, end, path, outer))
        start = None


def _trimmed(text: str, section: Section) -> Section:
    start = skip_space(text, section.start, section.end)
    return replace(section, start=start, end=trim_end(text, start, section.end))
