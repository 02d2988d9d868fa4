"""The numbers of an inverted index: which chunks hold a term how often, as flat arrays."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Counts = npt.NDArray[np.uint16]
Mask = npt.NDArray[np.bool_]

MAX_COUNT = 65_535  # a term counted more often in one chunk counts as often as this


@dataclass(frozen=True, slots=True, eq=False)
class PostingsSegment:
    """An immutable part of an index; its arrays may be mapped from files.

    ``seqs`` (n, ascending) are the chunks' row numbers, ``keys`` (n) tell their contents apart
    and ``lengths`` (n) are their token counts. Term ``t`` is the UTF-8 text
    ``terms[term_starts[t]:term_starts[t + 1]]``, terms ascending; its postings are ``rows``
    (positions in ``seqs``, ascending) and ``counts``, from ``starts[t]`` to ``starts[t + 1]``.
    """

    seqs: Int64
    keys: Int64
    lengths: Int32
    terms: npt.NDArray[np.uint8]
    term_starts: Int64
    starts: Int64
    rows: Int32
    counts: Counts

    def __len__(self) -> int:
        return len(self.seqs)

    def find(self, term: str) -> tuple[Int32, Counts] | None:
        """The rows that hold the term and how often, or ``None`` when none does."""
        wanted = term.encode()
        terms = _Terms(self)
        at = bisect_left(terms, wanted)
        if at == len(terms) or terms[at] != wanted:
            return None
        begin, end = int(self.starts[at]), int(self.starts[at + 1])
        return self.rows[begin:end], self.counts[begin:end]

    def all_terms(self) -> list[bytes]:
        """Every term, ascending."""
        blob, cuts = self.terms.tobytes(), self.term_starts.tolist()
        return [blob[begin:end] for begin, end in pairwise(cuts)]

    def check(self) -> None:
        """Raise ``ValueError`` unless the arrays fit together: then no search fails on them."""
        fits = (
            len(self.seqs) == len(self.keys) == len(self.lengths)
            and len(self.starts) == len(self.term_starts)
            and _delimits(self.term_starts, len(self.terms))
            and _delimits(self.starts, len(self.rows))
            and len(self.rows) == len(self.counts)
            and bool(np.all(self.seqs[1:] > self.seqs[:-1]))
            and (len(self.rows) == 0 or _within(self.rows, len(self.seqs)))
        )
        if not fits:
            raise ValueError("the arrays of an index segment do not fit together")


class _Terms(Sequence[bytes]):
    """A segment's terms, so that ``bisect`` reads only those it compares."""

    def __init__(self, segment: PostingsSegment) -> None:
        self._segment = segment

    def __len__(self) -> int:
        return len(self._segment.term_starts) - 1

    def __getitem__(self, at: int) -> bytes:  # type: ignore[override]
        starts = self._segment.term_starts
        return self._segment.terms[int(starts[at]) : int(starts[at + 1])].tobytes()


def _delimits(starts: Int64, total: int) -> bool:
    return (
        len(starts) > 0
        and int(starts[0]) == 0
        and int(starts[-1]) == total
        and bool(np.all(starts[1:] >= starts[:-1]))
    )


def _within(rows: Int32, size: int) -> bool:
    return int(rows.min()) >= 0 and int(rows.max()) < size
