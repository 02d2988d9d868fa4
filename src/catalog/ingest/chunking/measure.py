"""The size of any stretch of a text in tokens, and spans that are kept whole."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

from catalog.core.tokens import CharTokenCounter, TokenCounter

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


CHARS_PER_SIZE = 8
"""A tokenizer may call a megabyte of base64 one token: eight characters count as one at least."""


class Measure:
    """Sizes of stretches ``[start, end)`` of one text.

    The size is the number of tokens that touch the stretch, and at least an eighth of its
    characters. Shrinking a stretch never makes it larger.
    """

    def __init__(self, spans: npt.NDArray[np.int64]) -> None:
        starts, ends = _ascending(spans)
        self._starts = _int_array(starts)
        self._ends = _int_array(ends)

    def size(self, start: int, end: int) -> int:
        """The size of ``[start, end)``."""
        tokens = bisect_left(self._starts, end) - bisect_right(self._ends, start)
        return max(tokens, -((start - end) // CHARS_PER_SIZE))

    def furthest(self, start: int, budget: int) -> int:
        """The largest end for which the size is at most ``budget``; may lie past the text."""
        beyond = bisect_right(self._ends, start) + budget
        limit = start + CHARS_PER_SIZE * budget
        return min(self._starts[beyond], limit) if beyond < len(self._starts) else limit

    def earliest(self, end: int, budget: int) -> int:
        """The smallest start for which the size is at most ``budget``."""
        before = bisect_left(self._starts, end) - budget - 1
        limit = max(0, end - CHARS_PER_SIZE * budget)
        return max(self._ends[before], limit) if before >= 0 else limit


def measure(text: str, counter: TokenCounter) -> tuple[Measure, str | None]:
    """Counts ``text`` once; the second value says why four characters a token were used."""
    try:
        return Measure(counter.spans(text)), None
    except Exception as error:  # noqa: BLE001  tokenizers raise bare exceptions; reported, not lost
        substitute = CharTokenCounter()
        reason = f"{counter.name} failed ({type(error).__name__}: {error}); {substitute.name} used"
        return Measure(substitute.spans(text)), reason


def _ascending(
    spans: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    import numpy as np

    pairs = np.asarray(spans, dtype=np.int64)
    if pairs.size and (pairs.ndim != 2 or pairs.shape[1] != 2):
        raise ValueError(f"token spans have shape {pairs.shape}, not (n, 2)")
    pairs = pairs.reshape(-1, 2)
    pairs = pairs[pairs[:, 1] > pairs[:, 0]]
    if np.any(pairs[1:, 0] < pairs[:-1, 0]):
        pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
    return pairs[:, 0], np.maximum.accumulate(pairs[:, 1]) if len(pairs) else pairs[:, 1]


def _int_array(values: npt.NDArray[np.int64]) -> array[int]:
    """A plain array: bisecting one is many times faster than bisecting NumPy scalars."""
    result = array("q")
    result.frombytes(values.tobytes())
    return result


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
