"""Groups sections into passages within the size band, and cuts those that are too large."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from catalog.ingest.chunking import boundaries as breaks
from catalog.ingest.chunking.boundaries import Finder
from catalog.ingest.chunking.measure import Atoms, Measure
from catalog.ingest.chunking.outline import Section


@dataclass(frozen=True, slots=True)
class Band:
    """Sizes in tokens: ``min_size`` to ``chunk_size`` a passage, up to ``overlap`` shared.

    ``k`` passages hold at least ``k * min_size`` and, as each but the first may begin with an
    overlap, at most ``k * chunk_size - (k - 1) * overlap`` tokens of text. Where ``min_size`` is
    over half of ``chunk_size``, some sizes lie between two of these ranges (1,001 to 1,399 for
    a band of 700 to 1,000): no cut is good then, only the best possible.
    """

    chunk_size: int
    overlap: int
    min_size: int

    def holds(self, size: int) -> bool:
        """Whether a text of that size can be cut into passages inside the band.

        For several passages there must be some room as well, or no break would be in the place.
        """
        if size <= self.chunk_size:
            return size >= self.min_size
        room = (self.chunk_size - self.min_size) // 4
        return self.fewest(size + room) * self.min_size + room <= size

    def fewest(self, size: int) -> int:
        """How many passages a text of that size needs at least."""
        return max(1, -((self.overlap - size) // (self.chunk_size - self.overlap)))

    def rests(self, low: int, high: int, *, shared: int) -> Iterator[tuple[int, int]]:
        """The ranges within ``[low, high]`` of what a passage may leave uncut, ascending.

        Each passage of the rest may begin with an overlap; ``shared`` tokens of it count towards
        the lower end of the band.
        """
        least, most = max(1, self.min_size - shared), self.chunk_size - self.overlap
        passages = max(1, -(-low // most))
        while least <= most and passages * least <= high:
            start = max(low, passages * least)
            if (passages + 1) * least <= passages * most + 1:
                yield start, high
                return
            yield start, min(high, passages * most)
            passages += 1


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


class BreakRange(NamedTuple):
    """Where a passage may end: at an offset in ``(low, high]``."""

    low: int
    high: int


class Packer:
    """Fills passages up to the limit, and ends each at the best break in its second half.

    A passage ends where both it and what is left can be in the band, if there is such a place.
    """

    def __init__(
        self, text: str, measure: Measure, atoms: Atoms, band: Band, *, lines_first: bool
    ) -> None:
        self._text = text
        self._measure = measure
        self._atoms = atoms
        self._band = band
        self._lines_first = lines_first

    def pieces(self, group: Group) -> Iterator[tuple[int, int]]:
        """Passages of a group, which begins and ends with a visible character.

        ``core`` is where the new text of a passage begins; the stretch before it is overlap,
        which only passages within one section have.
        """
        start = core = group.start
        while core < group.end:
            start, cut = self._next(start, core, group)
            yield start, breaks.trim_end(self._text, start, cut)
            core = breaks.skip_space(self._text, cut, group.end)
            is_one_section = group.index(start) == group.index(core)
            start = self._overlapping(start, core) if is_one_section else core

    def _next(self, start: int, core: int, group: Group) -> tuple[int, int]:
        """The passage's start (later than proposed if the overlap must go) and its end."""
        if self._fits(start, group.end):
            return start, group.end
        choices = self._windows(start, core, group)
        atom = self._atoms.around(choices[0][0].high)
        if atom is not None and start < core and self._fits(core, atom[1]):
            return self._next(core, core, group)
        for windows in choices:
            cut = self._best_cut(core, windows, group, None if atom is None else atom[0])
            if cut is not None:
                return start, cut
        if atom is not None:
            return start, atom[0] if atom[0] > core else min(atom[1], group.end)
        return start, self._any_cut(core, choices[0][0], group.end)

    def _windows(self, start: int, core: int, group: Group) -> list[list[BreakRange]]:
        """Where the passage may end: choices, the best first, with the furthest window first.

        Best is where the band holds what is left without counting its overlaps, then where it
        does with most of them; if there is no such place, near the lower end of the band.
        """
        band = self._band
        size = self._measure.size(start, group.end)
        budgets = [band.chunk_size]
        if len(group) > 1:
            even = -(-size // band.fewest(size))
            budgets.insert(0, min(band.chunk_size, max(band.min_size, even * 5 // 4)))
        choices = [
            windows
            for shared in (0, band.overlap * 3 // 4)
            for budget in budgets
            if (windows := self._in_band(start, core, group.end, budget, shared))
        ]
        if choices:
            return choices
        low = max(core, self._measure.furthest(start, band.min_size - 1))
        spare = (band.chunk_size - band.min_size) // 4
        high = min(self._measure.furthest(start, band.min_size + spare), group.end)
        return [[BreakRange(low, max(high, low + 1))]]

    def _in_band(
        self, start: int, core: int, end: int, budget: int, shared: int
    ) -> list[BreakRange]:
        least = max(core, self._measure.furthest(start, self._band.min_size - 1))
        furthest = max(min(self._measure.furthest(start, budget), end), core + 1)
        least_rest, most_rest = self._measure.size(furthest, end), self._measure.size(least, end)
        found = []
        for fewest, most in self._band.rests(least_rest, most_rest, shared=shared):
            low = max(least, self._measure.earliest(end, most) - 1)
            high = min(furthest, self._measure.earliest(end, fewest - 1) - 1)
            if low < high:
                found.append(BreakRange(low, high))
        return found

    def _best_cut(
        self, core: int, windows: list[BreakRange], group: Group, atom: int | None
    ) -> int | None:
        """The best break in a window; the start of the atom that ends the furthest is good too."""
        for window in windows:
            for at in group.starts(*window):
                if self._atoms.around(at) is None:
                    return at
        if atom is not None and any(low < atom <= high for low, high in windows):
            return atom
        half = (core + windows[0].high) // 2
        for finder in self._finders(windows[0].high):
            for low, high in windows:
                reach = breaks.skip_space(self._text, high, group.end)
                begin = max(low, half) if half < high else low
                cut = self._outside_atoms(finder, begin, reach)
                if cut is not None:
                    return cut
        return None

    def _any_cut(self, core: int, window: BreakRange, end: int) -> int:
        limit = window.high
        high = breaks.skip_space(self._text, limit, end)
        for low in (window.low, core):
            if (cut := self._outside_atoms(breaks.last_word, low, high)) is not None:
                return cut
        return breaks.last_character(self._text, core, limit)

    def _finders(self, limit: int) -> tuple[Finder, ...]:
        if self._lines_first or self._atoms.around_large(limit) is not None:
            return breaks.last_paragraph, breaks.last_line, breaks.last_sentence
        return breaks.last_paragraph, breaks.last_sentence, breaks.last_line

    def _outside_atoms(self, finder: Finder, low: int, high: int) -> int | None:
        while high > low and (cut := finder(self._text, low, high)) is not None:
            atom = self._atoms.around(cut)
            if atom is None:
                return cut if cut > low else None
            high = atom[0]
        return None

    def _overlapping(self, start: int, core: int) -> int:
        """Where the next passage starts: in the one that started at ``start``, or at ``core``."""
        low = max(self._measure.earliest(core, self._band.overlap), start + 1)
        if self._band.overlap == 0 or low >= core:
            return core
        for at in breaks.overlap_starts(self._text, low, core, lines_first=self._lines_first):
            if self._atoms.around(at) is None:
                return at
        return core

    def _fits(self, start: int, end: int) -> bool:
        return self._measure.size(start, end) <= self._band.chunk_size
