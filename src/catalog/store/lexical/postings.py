"""The numbers of an inverted index as flat arrays: build segments, and compute BM25 over them.

    score(q, d) = Σ_t  idf(t) · tf / (tf + k1 · (1 - b + b · |d| / avg))
    idf(t) = ln(1 + (N - n_t + 0.5) / (n_t + 0.5))

N is the number of live chunks and n_t the number with term t. The sum is over the query's terms,
with repetitions. A term may have several tokens, one for each language or spelling; tf is the count
of the most frequent one. From Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25
and Beyond" (2009), with Lucene's idf and without the constant factor (k1 + 1).

Precomputed values belong to one state of the index, so an updated index scores exactly like one
that is built from scratch.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log1p
from typing import Any

import numpy as np
import numpy.typing as npt

from catalog.store.engine_types import Hit

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Counts = npt.NDArray[np.uint16]
Numbers = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

MAX_COUNT = 65_535  # counts are stored in 16 bits; higher ones are cut to this


@dataclass(frozen=True, slots=True, eq=False)
class PostingsSegment:
    """An immutable part of an index; its arrays may be mapped from files.

    For each of n chunks: ``seqs`` are the row numbers (ascending), ``keys`` identify the contents,
    ``lengths`` are token counts and ``languages`` the numbers of languages. Term ``t`` is the UTF-8
    text ``terms[term_starts[t]:term_starts[t + 1]]``; terms ascend. Its postings are ``rows``
    (positions in ``seqs``, ascending) and ``counts``, from ``starts[t]`` to ``starts[t + 1]``.
    """

    seqs: Int64
    keys: Int64
    lengths: Int32
    languages: Numbers
    terms: Numbers
    term_starts: Int64
    starts: Int64
    rows: Int32
    counts: Counts

    def __len__(self) -> int:
        return len(self.seqs)

    def find(self, term: str) -> tuple[Int32, Counts] | None:
        """Return the rows with the term and their counts, ``None`` if there are no such rows."""
        encoded = term.encode()
        terms = _Terms(self)
        at = bisect_left(terms, encoded)
        if at == len(terms) or terms[at] != encoded:
            return None
        begin, end = int(self.starts[at]), int(self.starts[at + 1])
        return self.rows[begin:end], self.counts[begin:end]

    def find_all(self, terms: Sequence[str]) -> tuple[Int32, Counts] | None:
        """Return the rows with all the terms and their smallest counts, or ``None``."""
        found = self.find(terms[0])
        for term in terms[1:]:
            other = None if found is None else self.find(term)
            if found is None or other is None:
                return None
            found = intersect_postings(found, other)
        return found

    def find_range(self, prefix: str) -> tuple[int, int]:
        """Return the number of the first term with the prefix, and of the first term after them."""
        terms, encoded = _Terms(self), prefix.encode()
        first = bisect_left(terms, encoded)
        return first, bisect_left(terms, encoded + b"\xff", lo=first)

    def all_terms(self) -> list[bytes]:
        """Return every term, ascending."""
        blob, cuts = self.terms.tobytes(), self.term_starts.tolist()
        return [blob[begin:end] for begin, end in pairwise(cuts)]

    def check(self) -> None:
        """Raise ``ValueError`` unless the arrays fit together, so that no search fails on them."""
        fits = (
            len(self.seqs) == len(self.keys) == len(self.lengths) == len(self.languages)
            and len(self.starts) == len(self.term_starts)
            and _delimits(self.term_starts, len(self.terms))
            and _delimits(self.starts, len(self.rows))
            and len(self.rows) == len(self.counts)
            and bool(np.all(self.seqs[1:] > self.seqs[:-1]))
            and int(self.lengths.min(initial=0)) >= 0
            and int(self.counts.min(initial=1)) >= 1
            and (len(self.rows) == 0 or _within(self.rows, len(self.seqs)))
        )
        if not fits:
            raise ValueError("the arrays of an index segment do not fit together")


class _Terms(Sequence[bytes]):
    """A segment's terms as a sequence: ``bisect`` reads only the terms that it compares."""

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


Scores = npt.NDArray[np.float64]


def term_weight(chunks: int, holding: int) -> float:
    """Return the idf of a term that ``holding`` of ``chunks`` chunks contain; always above zero."""
    return log1p((chunks - holding + 0.5) / (holding + 0.5))


def length_norms(lengths: Int32, average: float, k1: float, b: float) -> Scores:
    """Return ``k1 · (1 - b + b · |d| / avg)`` for each chunk's length."""
    return np.asarray(k1 * (1 - b + b * lengths / average), dtype=np.float64)


def saturate(counts: Counts, norms: Scores) -> Scores:
    """Map term frequencies into [0, 1), so that each repetition counts less."""
    return counts / (counts + norms)


def top_hits(seqs: Int64, scores: Scores, k: int) -> list[Hit]:
    """Return the ``k`` highest scores, ties by row number, also where a tie crosses the cut."""
    if len(scores) > k:
        cut = np.partition(scores, len(scores) - k)[len(scores) - k]
        chosen = scores >= cut
        seqs, scores = seqs[chosen], scores[chosen]
    order = np.lexsort((seqs, -scores))[:k]
    return [
        Hit(seq, score)
        for seq, score in zip(seqs[order].tolist(), scores[order].tolist(), strict=True)
    ]


def join_alternatives(
    found: Mapping[str, tuple[Int32, Counts] | None],
) -> tuple[Int32, Counts] | None:
    """Return the rows with any alternative of a term, ascending; ``None`` if there are no rows.

    Each row has the count of its most frequent alternative. If some alternatives are split (``rtx
    4090``), a name in one word counts double, because split parts may be far apart in a passage.
    """
    is_split = any(" " in written for written in found)
    postings = []
    for written, of_one in found.items():
        if of_one is not None:
            rows, counts = of_one
            twice = is_split and " " not in written
            postings.append((rows, np.minimum(counts, MAX_COUNT // 2) * 2 if twice else counts))
    if len(postings) <= 1:
        return postings[0] if postings else None
    all_rows = np.concatenate([rows for rows, _ in postings])
    order = np.argsort(all_rows, kind="stable")
    rows, starts = np.unique(all_rows[order], return_index=True)
    return rows, np.maximum.reduceat(
        np.concatenate([counts for _, counts in postings])[order], starts
    )


def intersect_postings(
    one: tuple[Int32, Counts], other: tuple[Int32, Counts]
) -> tuple[Int32, Counts] | None:
    """Return the rows with both, ascending, with the smaller counts; ``None`` for no rows."""
    rows, at, of_other = np.intersect1d(one[0], other[0], assume_unique=True, return_indices=True)
    if len(rows) == 0:
        return None
    return rows, np.minimum(one[1][at], other[1][of_other])


class SegmentBuilder:
    """Collect chunks in ascending order of row number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._seqs, self._keys, self._lengths = array("q"), array("q"), array("i")
        self._languages = array("B")
        self._distinct, self._terms, self._counts = array("i"), array("i"), array("i")

    def add(self, seq: int, key: int, tokens: Sequence[str], language: int = 0) -> None:
        """Add one chunk's tokens and the number of its language, 0 to 255."""
        counted = Counter(tokens)
        numbers = self._numbers
        self._seqs.append(seq)
        self._keys.append(key)
        self._lengths.append(len(tokens))
        self._languages.append(language)
        self._distinct.append(len(counted))
        self._terms.extend([numbers.setdefault(term, len(numbers)) for term in counted])
        self._counts.extend(counted.values())

    def build(self) -> PostingsSegment:
        """Return the segment of all chunks added."""
        distinct = np.array(self._distinct, dtype=np.int32)
        return _assemble(
            seqs=np.array(self._seqs, dtype=np.int64),
            keys=np.array(self._keys, dtype=np.int64),
            lengths=np.array(self._lengths, dtype=np.int32),
            languages=np.array(self._languages, dtype=np.uint8),
            terms=[term.encode() for term in self._numbers],
            numbers=np.array(self._terms, dtype=np.int32),
            rows=np.repeat(np.arange(len(distinct), dtype=np.int32), distinct),
            counts=np.array(self._counts, dtype=np.int64),
        )


def merge_segments(parts: Sequence[tuple[PostingsSegment, Mask]]) -> PostingsSegment:
    """Return one segment of the rows that each part's mask keeps, as if built from only these."""
    seqs = _concatenate([part.seqs[live] for part, live in parts], np.int64)
    order = np.argsort(seqs, kind="stable")
    new_row = np.empty(len(seqs), dtype=np.int32)
    new_row[order] = np.arange(len(seqs), dtype=np.int32)
    numbers_of: dict[bytes, int] = {}
    numbers, rows, first = [], [], 0
    for part, live in parts:
        mapped = [numbers_of.setdefault(term, len(numbers_of)) for term in part.all_terms()]
        of_posting = np.repeat(np.array(mapped, dtype=np.int32), np.diff(part.starts))
        is_live = live[part.rows]
        numbers.append(of_posting[is_live])
        rows.append(new_row[(np.cumsum(live) - 1 + first)[part.rows[is_live]]])
        first += int(np.count_nonzero(live))
    counts = _concatenate([part.counts[live[part.rows]] for part, live in parts], np.int64)
    all_rows = _concatenate(rows, np.int32)
    by_row = np.argsort(all_rows, kind="stable")
    return _assemble(
        seqs=seqs[order],
        keys=_concatenate([part.keys[live] for part, live in parts], np.int64)[order],
        lengths=_concatenate([part.lengths[live] for part, live in parts], np.int32)[order],
        languages=_concatenate([part.languages[live] for part, live in parts], np.uint8)[order],
        terms=list(numbers_of),
        numbers=_concatenate(numbers, np.int32)[by_row],
        rows=all_rows[by_row],
        counts=counts[by_row],
    )


def _assemble(
    *,
    seqs: Int64,
    keys: Int64,
    lengths: Int32,
    languages: Numbers,
    terms: list[bytes],
    numbers: Int32,
    rows: Int32,
    counts: Int64,
) -> PostingsSegment:
    """Sort postings by term and drop terms without a posting.

    ``numbers`` are positions in ``terms``; for each number, ``rows`` ascend.
    """
    used = np.bincount(numbers, minlength=len(terms))
    ordered = sorted(np.flatnonzero(used).tolist(), key=terms.__getitem__)
    sorted_terms = [terms[number] for number in ordered]
    place = np.empty(len(terms), dtype=np.int32)
    place[np.array(ordered, dtype=np.int64)] = np.arange(len(ordered), dtype=np.int32)
    by_term = np.argsort(place[numbers], kind="stable")
    return PostingsSegment(
        seqs=seqs,
        keys=keys,
        lengths=lengths,
        languages=languages,
        terms=np.frombuffer(b"".join(sorted_terms), dtype=np.uint8),
        term_starts=_starts([len(term) for term in sorted_terms]),
        starts=_starts(used[np.array(ordered, dtype=np.int64)]),
        rows=rows[by_term],
        counts=np.minimum(counts, MAX_COUNT)[by_term].astype(np.uint16),
    )


def _concatenate(
    arrays: Sequence[npt.NDArray[Any]], kind: type[np.integer[Any]]
) -> npt.NDArray[Any]:
    return np.concatenate([np.empty(0, dtype=kind), *arrays]).astype(kind, copy=False)


def _starts(sizes: Sequence[int] | npt.NDArray[np.int64]) -> Int64:
    starts = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(np.asarray(sizes, dtype=np.int64), out=starts[1:])
    return starts
