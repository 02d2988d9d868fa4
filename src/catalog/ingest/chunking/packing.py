"""Cuts a section that is too large for one passage."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from catalog.ingest.chunking import breaks
from catalog.ingest.chunking.breaks import Finder
from catalog.ingest.chunking.measure import Measure


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in tokens: of a passage at most, of its overlap at most, of a last piece at least."""

    chunk_size: int
    overlap: int
    min_size: int


class _Disjoint:
    """Spans that do not overlap, in order; the outer of two nested ones is kept."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        """Adds a span whose start is not before that of the last one."""
        if start < end and (not self._ends or start >= self._ends[-1]):
            self._starts.append(start)
            self._ends.append(end)

    def around(self, offset: int) -> tuple[int, int] | None:
        """The span that a cut at ``offset`` would break."""
        at = bisect_left(self._starts, offset) - 1
        if at >= 0 and offset < self._ends[at]:
            return self._starts[at], self._ends[at]
        return None


class Atoms:
    """Spans that are kept whole where they fit into a passage, and cut at lines elsewhere."""

    def __init__(self, spans: Sequence[tuple[int, int]], measure: Measure, chunk_size: int) -> None:
        whole, large = _Disjoint(), _Disjoint()
        for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            fits = measure.size(start, end) <= chunk_size
            (whole if fits else large).add(start, end)
        self.around = whole.around
        self.around_large = large.around


class Packer:
    """Fills passages up to the limit, and ends each at the best break in its second half."""

    def __init__(
        self, text: str, measure: Measure, atoms: Atoms, limits: Limits, *, lines_first: bool
    ) -> None:
        self._text = text
        self._measure = measure
        self._atoms = atoms
        self._limits = limits
        self._lines_first = lines_first

    def pieces(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Passages of ``[start, end)``, which begins and ends with a visible character.

        ``core`` is where the new text of a passage begins; the stretch before it is overlap.
        """
        core = start
        while core < end:
            start, cut = self._next(start, core, end)
            yield start, breaks.trim_end(self._text, start, cut)
            core = breaks.skip_space(self._text, cut, end)
            start = self._overlapping(start, core)

    def _next(self, start: int, core: int, end: int) -> tuple[int, int]:
        """The passage's start (later than proposed if the overlap must go) and its end."""
        if self._fits(start, end):
            return start, end
        limit = self._limit(start, core, end)
        atom = self._atoms.around(limit)
        if atom is None:
            return start, self._best_cut(core, limit, end)
        if start < core and self._fits(core, atom[1]):
            return self._next(core, core, end)
        if atom[0] > core:
            return start, atom[0]
        return start, min(atom[1], end)

    def _limit(self, start: int, core: int, end: int) -> int:
        """How far the passage may reach, so that what is left is not too small."""
        limit = min(self._measure.furthest(start, self._limits.chunk_size), end)
        before_tail = self._measure.earliest(end, max(0, self._limits.min_size - 1)) - 1
        if core < before_tail < limit:
            limit = before_tail
        return max(limit, core + 1)

    def _best_cut(self, core: int, limit: int, end: int) -> int:
        high = breaks.skip_space(self._text, limit, end)
        half = (core + limit) // 2
        for finder in self._finders(limit):
            if (cut := self._outside_atoms(finder, half, high)) is not None:
                return cut
        if (cut := self._outside_atoms(breaks.last_word, core, high)) is not None:
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
        low = max(self._measure.earliest(core, self._limits.overlap), start + 1)
        if self._limits.overlap == 0 or low >= core:
            return core
        for at in breaks.overlap_starts(self._text, low, core, lines_first=self._lines_first):
            if self._atoms.around(at) is None:
                return at
        return core

    def _fits(self, start: int, end: int) -> bool:
        return self._measure.size(start, end) <= self._limits.chunk_size
