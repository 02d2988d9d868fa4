"""The arithmetic of the size band: which sizes can be cut into passages that are all inside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


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
