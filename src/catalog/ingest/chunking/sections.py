"""Sections: the stretch from one heading to the next, and the path of headings above it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace

from catalog.core.models import ParsedDocument
from catalog.ingest.chunking.breaks import skip_space, trim_end


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


class Outline:
    """The headings of a document's body, with their paths."""

    def __init__(self, doc: ParsedDocument) -> None:
        self._text = doc.text
        headings = [heading for heading in doc.headings if heading.start >= doc.body_start]
        self._headings = sorted(headings, key=lambda heading: heading.start)
        self._starts = [heading.start for heading in self._headings]
        self._paths = list(self._walk())

    def path_at(self, offset: int) -> tuple[str, ...]:
        """The headings above the character at ``offset``, or that it stands in."""
        at = bisect_right(self._starts, offset)
        return self._paths[at - 1] if at else ()

    def sections(self, start: int, end: int) -> list[Section]:
        """The sections of ``text[start:end]`` in order; those without text are left out."""
        first = bisect_left(self._starts, start)
        stop = bisect_left(self._starts, end)
        begin = self._starts[first] if first < stop else end
        above = self.path_at(start)
        found = [self._trimmed(Section(start, begin, above, above))]
        found.extend(self._under_headings(first, stop, end))
        return [section for section in found if section.start < section.end]

    def bare_before(self, start: int, end: int) -> int:
        """Where the headings begin that ``text[start:end]`` ends with; ``end`` without any."""
        begin, at = end, bisect_left(self._starts, end)
        while at and self._starts[at - 1] >= start:
            at -= 1
            if skip_space(self._text, self._headings[at].end, begin) < begin:
                break
            begin = self._starts[at]
        return skip_space(self._text, begin, end)

    def _walk(self) -> Iterator[tuple[str, ...]]:
        levels: list[int] = []
        titles: list[str] = []
        for heading in self._headings:
            while levels and levels[-1] >= heading.level:
                levels.pop()
                titles.pop()
            levels.append(heading.level)
            titles.append(heading.title)
            yield tuple(titles)

    def _under_headings(self, first: int, stop: int, limit: int) -> Iterator[Section]:
        start: int | None = None
        outer: tuple[str, ...] = ()
        for at in range(first, stop):
            heading, is_last = self._headings[at], at + 1 == stop
            if start is None:
                start, outer = heading.start, self._paths[at]
            end = limit if is_last else self._starts[at + 1]
            is_bare = skip_space(self._text, heading.end, end) >= end
            if is_bare and not is_last and self._headings[at + 1].level > heading.level:
                continue
            yield self._trimmed(Section(start, end, self._paths[at], outer))
            start = None

    def _trimmed(self, section: Section) -> Section:
        start = skip_space(self._text, section.start, section.end)
        return replace(section, start=start, end=trim_end(self._text, start, section.end))
