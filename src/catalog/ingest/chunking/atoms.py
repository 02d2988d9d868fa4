"""Spans that are kept whole: tables and code fences."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from catalog.ingest.chunking.measure import Measure


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
