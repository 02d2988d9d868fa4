"""Groups of neighbouring sections that can be cut into passages of the right size."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from catalog.ingest.chunking.band import Band
from catalog.ingest.chunking.measure import Measure
from catalog.ingest.chunking.sections import Section


class Group:
    """One or several sections in a row, none of them empty."""

    def __init__(self, sections: list[Section]) -> None:
        self._sections = sections
        self._starts = [section.start for section in sections]
        self.start = sections[0].start
        self.end = sections[-1].end

    def __len__(self) -> int:
        return len(self._sections)

    def index(self, offset: int) -> int:
        """Which of the sections holds the character at ``offset``."""
        return bisect_right(self._starts, offset) - 1

    def path(self, start: int, end: int) -> tuple[str, ...]:
        """The heading path of a passage: that of the section it starts in.

        One that begins with a section and reaches into the next has the outer path of the first.
        """
        section = self._sections[self.index(start)]
        reaches_over = end > section.end and start == section.start
        return section.outer_path if reaches_over else section.path

    def starts(self, low: int, high: int) -> list[int]:
        """Where sections start in ``(low, high]``: outer before inner, late before early."""
        found = range(bisect_right(self._starts, low), bisect_right(self._starts, high))
        ordered = sorted(found, key=lambda at: (len(self._sections[at].outer_path), -at))
        return [self._starts[at] for at in ordered]


def grouped(sections: Iterable[Section], measure: Measure, band: Band) -> list[Group]:
    """The sections in groups, each as few sections as the band allows.

    A section too small for the band is joined with those after it until the band holds what is
    joined; where that would be too large for one passage, with the group before it if both fit
    one; and at the end with as much of what is before it as is needed. Only a document that the
    band cannot hold makes a group outside.
    """
    groups: list[list[Section]] = []
    pending: list[Section] = []

    def size(first: Section, last: Section) -> int:
        return measure.size(first.start, last.end)

    for section in sections:
        is_over = bool(pending) and size(pending[0], section) > band.chunk_size
        if is_over and groups and size(groups[-1][0], pending[-1]) <= band.chunk_size:
            groups[-1].extend(pending)
            pending = []
        pending.append(section)
        if band.holds(size(pending[0], section)):
            groups.append(pending)
            pending = []
    while pending and groups and not band.holds(size(pending[0], pending[-1])):
        pending = groups.pop() + pending
    if pending:
        groups.append(pending)
    return [Group(group) for group in groups]
