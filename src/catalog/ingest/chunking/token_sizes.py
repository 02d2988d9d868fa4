"""The size of any stretch of a text in tokens, and stretches that do not overlap."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING

from catalog.core.tokens import CharTokenCounter, TokenCounter

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


CHARS_PER_SIZE = 8
"""A tokenizer may call a megabyte of base64 one token: eight characters count as one at least."""


class TokenSizes:
    """Sizes of stretches ``[start, end)`` of one text.

    The size is the number of tokens that touch the stretch, and at least an eighth of its
    characters. Shrinking a stretch never makes it larger.
    """

    def __init__(self, spans: npt.NDArray[np.int64]) -> None:
        starts, ends = _sort_spans(spans)
        self._starts = _to_array(starts)
        self._ends = _to_array(ends)

    @classmethod
    def count(cls, text: str, counter: TokenCounter) -> tuple[TokenSizes, str | None]:
        """Count ``text`` once; the second value says why four characters a token were used."""
        try:
            return cls(counter.spans(text)), None
        except Exception as error:  # noqa: BLE001  tokenizers raise bare exceptions; reported
            substitute = CharTokenCounter()
            reason = f"{counter.name} failed ({type(error).__name__}: {error}); "
            return cls(substitute.spans(text)), f"{reason}{substitute.name} used"

    def size(self, start: int, end: int) -> int:
        """Return the size of ``[start, end)``."""
        tokens = bisect_left(self._starts, end) - bisect_right(self._ends, start)
        return max(tokens, -((start - end) // CHARS_PER_SIZE))

    def furthest_end(self, start: int, budget: int) -> int:
        """Return the largest end, perhaps past the text, for a size of at most ``budget``."""
        beyond = bisect_right(self._ends, start) + budget
        limit = start + CHARS_PER_SIZE * budget
        return min(self._starts[beyond], limit) if beyond < len(self._starts) else limit

    def earliest_start(self, end: int, budget: int) -> int:
        """Return the smallest start for a size of at most ``budget``."""
        before = bisect_left(self._starts, end) - budget - 1
        limit = max(0, end - CHARS_PER_SIZE * budget)
        return max(self._ends[before], limit) if before >= 0 else limit


def _sort_spans(
    spans: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return starts and ends, both ascending, without empty spans."""
    import numpy as np

    pairs = np.asarray(spans, dtype=np.int64)
    if pairs.size and (pairs.ndim != 2 or pairs.shape[1] != 2):
        raise ValueError(f"token spans have shape {pairs.shape}, not (n, 2)")
    pairs = pairs.reshape(-1, 2)
    pairs = pairs[pairs[:, 1] > pairs[:, 0]]
    if np.any(pairs[1:, 0] < pairs[:-1, 0]):
        pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
    return pairs[:, 0], np.maximum.accumulate(pairs[:, 1]) if len(pairs) else pairs[:, 1]


def _to_array(values: npt.NDArray[np.int64]) -> array[int]:
    """Make a plain array: bisecting one is many times faster than bisecting NumPy scalars."""
    result = array("q")
    result.frombytes(values.tobytes())
    return result


class DisjointSpans:
    """Spans that do not overlap, in order; of two nested ones the outer is kept.

    They are given by ascending start, of equal starts the longest first.
    """

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in spans:
            if start < end and (not self._ends or start >= self._ends[-1]):
                self._starts.append(start)
                self._ends.append(end)

    def around(self, offset: int) -> tuple[int, int] | None:
        """Return the span that a cut at ``offset`` would break."""
        at = bisect_left(self._starts, offset) - 1
        if at >= 0 and offset < self._ends[at]:
            return self._starts[at], self._ends[at]
        return None
