"""What terms add to the scores of an index, worked out once for each, and the best of the sums.

All rows are scored with single precision, which halves what has to be read and kept; the few that
may be among the best are then scored again with double precision, from their postings. Which rows
those are follows from how far rounding can go, so that the answer is that of double precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from catalog.store.lexical.postings import Counts, Int32, Mask, Scores, saturate

_LEAST_CACHE = 16 * 2**20  # bytes of the impacts that one snapshot remembers
_CACHE_PER_ROW = 256  # bytes: of 64 terms that have a value for each row
_DENSE = 4  # a term in more than one of so many rows has a value for each row
_GROUPS = 8  # groups of rows for each row wanted
_BLOCK = 65_536  # rows whose scores are summed at a time, in memory that stays close

Floats = npt.NDArray[np.float32]
Postings = tuple[Int32, Counts]
Rows = npt.NDArray[np.intp]


def cache_bytes(rows: int) -> int:
    """Return how many bytes of impacts an index of so many rows may remember."""
    return max(_LEAST_CACHE, _CACHE_PER_ROW * rows)


@dataclass(frozen=True, slots=True, eq=False)
class Impacts:
    """What a term adds to the scores of a segment's ``rows``, before its weight.

    ``rows`` is ``None`` where the term stands in so many that every row has a value, 0 without
    the term: adding whole arrays is then faster than picking rows.
    """

    rows: Int32 | None
    values: Floats

    @classmethod
    def of(cls, rows: Int32, counts: Counts, norms: Floats) -> Impacts:
        """Return the impacts of a term's postings; ``norms`` are those of all rows."""
        values = counts.astype(np.float32)
        values /= values + norms[rows]
        if len(rows) * _DENSE < len(norms):
            return cls(rows, values)
        of_all = np.zeros(len(norms), dtype=np.float32)
        of_all[rows] = values
        return cls(None, of_all)

    def add_to(self, scores: Floats, weight: float) -> None:
        """Add the impacts, weighted, to the scores of all rows."""
        weighted = np.float32(weight) * self.values
        if self.rows is None:
            scores += weighted
        else:
            np.add.at(scores, self.rows, weighted)  # rows are distinct; faster than indexing


@dataclass(frozen=True, slots=True, eq=False)
class TermImpacts:
    """The weight of a term in an index, how many live rows contain it, and for each part its
    postings and impacts, if any.
    """

    weight: float
    holding: int
    postings: tuple[Postings | None, ...]
    parts: tuple[Impacts | None, ...]

    def count_bytes(self) -> int:
        """Return about how much memory they take."""
        joined = (
            one.nbytes for found in self.postings if found for one in found if one.base is None
        )
        return 256 + sum(part.values.nbytes for part in self.parts if part) + sum(joined)


def find_contenders(scores: Floats, mask: Mask | None, k: int, error: float) -> Rows:
    """Return the rows with a score above 0 that ``mask`` allows, ascending, as far as they matter.

    That is all of them, or those that may reach a bound that ``k`` of them reach, ties included,
    where a score is off by at most ``error`` of it. The bound is the ``k``-th best of the best
    scores of groups: no sorting of all rows.
    """
    if mask is not None:
        scores = np.where(mask, scores, np.float32(0))
    groups = _GROUPS * k
    size = len(scores) // groups
    if size < 2:
        return np.flatnonzero(scores > 0)
    best = scores[: groups * size].reshape(size, groups).max(axis=0)
    bound = float(np.partition(best, groups - k)[groups - k]) * (1 - 2 * error)
    return np.flatnonzero(scores >= bound if bound > 0 else scores > 0)


def rounding_error(terms: int) -> float:
    """Return by what share of itself a score of so many terms may be off in single precision.

    An impact is rounded when length, sum and quotient are; then weight and product are, and each
    of the sums; twice that is safe. Higham, "Accuracy and Stability of Numerical Algorithms"
    (2002), section 3.1.
    """
    return (terms + 6) * 2.0**-23


def score_rows(rows: Rows, norms: Scores, terms: Sequence[tuple[float, Postings | None]]) -> Scores:
    """Return the scores of these rows, ascending, from the weight and postings of each term.

    ``norms`` are those of the rows.
    """
    scores = np.zeros(len(rows))
    wanted = rows.astype(np.int32)
    for weight, postings in terms:
        if postings is None:
            continue
        holding, counts = postings
        places = np.searchsorted(holding, wanted)
        holds = holding.take(places, mode="clip") == wanted
        values = saturate(counts.take(places, mode="clip"), norms)
        scores += weight * values * holds
    return scores


def sum_squares(scores: Floats) -> tuple[float, float]:
    """Return the sum of the scores and that of their squares, in double precision."""
    total = squares = 0.0
    for start in range(0, len(scores), _BLOCK):
        block = scores[start : start + _BLOCK].astype(np.float64)
        total += float(block.sum())
        # not np.dot: it waits for threads of its own, and their number shows in the last digits
        squares += float(np.square(block, out=block).sum())
    return total, squares
