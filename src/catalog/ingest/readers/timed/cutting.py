"""Takes spans out of a text, and finds the offsets of what remains."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

from catalog.core.models import Heading


class Cuts:
    """Disjoint spans, in order, that are cut out of a text."""

    def __init__(self, spans: Sequence[tuple[int, int]]) -> None:
        self._spans = spans
        self._starts = [start for start, _ in spans]
        self._gone = [0]
        """Characters cut before each span, and in the end all of them."""
        for start, end in spans:
            self._gone.append(self._gone[-1] + end - start)

    def text(self, text: str) -> str:
        """What is left of ``text``."""
        kept = []
        at = 0
        for start, end in self._spans:
            kept.append(text[at:start])
            at = end
        kept.append(text[at:])
        return "".join(kept)

    def at(self, offset: int) -> int:
        """The new offset of the character at ``offset``; for one cut out, of that after it."""
        place = bisect_right(self._starts, offset)
        if place == 0:
            return offset
        start, end = self._spans[place - 1]
        return offset - self._gone[place - 1] - (min(offset, end) - start)

    def heading(self, heading: Heading) -> Heading:
        """The heading where it then stands."""
        return replace(heading, start=self.at(heading.start), end=self.at(heading.end))
