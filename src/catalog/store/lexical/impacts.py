"""What terms add to the scores of an index, computed once for each, and the best of the sums."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from catalog.store.lexical.postings import Counts, Int32, Mask, Scores, saturate

CACHE_BYTES = 64 * 2**20  # of the impacts that one snapshot remembers
_DENSE = 8  # a term in more than one of so many rows has a value for each row
_GROUPS = 8  # groups of rows for each row wanted

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Impacts:
    """What a term adds to the scores of a segment's ``rows``, before its weight.

    ``rows`` is ``None`` where the term stands in so many that every row has a value, 0 without
    the term: adding whole arrays is then faster than picking rows.
    """

    rows: Rows | None
    values: Scores

    @classmethod
    def of(cls, rows: Int32, counts: Counts, norms: Scores) -> Impacts:
        """Return the impacts of a term's postings; ``norms`` are those of all rows."""
        values = saturate(counts, norms[rows])
        if len(rows) * _DENSE < len(norms):
            return cls(rows.astype(np.intp), values)
        of_all = np.zeros(len(norms))
        of_all[rows] = values
        return cls(None, of_all)

    def add_to(self, scores: Scores, weight: float) -> None:
        """Add the impacts, weighted, to the scores of all rows."""
        if self.rows is None:
            scores += weight * self.values
        else:
            scores[self.rows] += weight * self.values


@dataclass(frozen=True, slots=True, eq=False)
class TermImpacts:
    """The weight of a term in an index, and its impacts in each part; ``None`` in one without."""

    weight: float
    parts: tuple[Impacts | None, ...]

    def count_bytes(self) -> int:
        """Return about how much memory they take."""
        arrays = (one for part in self.parts if part for one in (part.rows, part.values))
        return 256 + sum(0 if one is None else one.nbytes for one in arrays)


def find_contenders(scores: Scores, mask: Mask | None, k: int) -> Rows:
    """Return the rows with a score above 0 that ``mask`` allows, ascending, as far as they matter.

    That is all of them, or those that reach a bound that ``k`` of them reach, ties included.
    The bound is the ``k``-th best of the best scores of groups: no sorting of all rows.
    """
    if mask is not None:
        scores = np.where(mask, scores, 0.0)
    groups = _GROUPS * k
    size = len(scores) // groups
    if size < 2:
        return np.flatnonzero(scores > 0)
    best = scores[: groups * size].reshape(size, groups).max(axis=0)
    bound = np.partition(best, groups - k)[groups - k]
    return np.flatnonzero(scores >= bound if bound > 0 else scores > 0)
