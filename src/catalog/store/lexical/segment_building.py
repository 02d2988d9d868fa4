"""Making segments: from the tokens of chunks, and from other segments."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from catalog.store.lexical.postings import MAX_COUNT, Int32, Int64, Mask, PostingsSegment


class SegmentBuilder:
    """Collects chunks in ascending order of row number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._seqs, self._keys, self._lengths = array("q"), array("q"), array("i")
        self._distinct, self._terms, self._counts = array("i"), array("i"), array("i")

    def add(self, seq: int, key: int, tokens: Sequence[str]) -> None:
        """Take in one chunk's tokens."""
        counted = Counter(tokens)
        numbers = self._numbers
        self._seqs.append(seq)
        self._keys.append(key)
        self._lengths.append(len(tokens))
        self._distinct.append(len(counted))
        self._terms.extend([numbers.setdefault(term, len(numbers)) for term in counted])
        self._counts.extend(counted.values())

    def build(self) -> PostingsSegment:
        """The segment of all chunks taken in."""
        distinct = np.array(self._distinct, dtype=np.int32)
        return _assemble(
            seqs=np.array(self._seqs, dtype=np.int64),
            keys=np.array(self._keys, dtype=np.int64),
            lengths=np.array(self._lengths, dtype=np.int32),
            terms=[term.encode() for term in self._numbers],
            numbers=np.array(self._terms, dtype=np.int32),
            rows=np.repeat(np.arange(len(distinct), dtype=np.int32), distinct),
            counts=np.array(self._counts, dtype=np.int64),
        )


def merge(parts: Sequence[tuple[PostingsSegment, Mask]]) -> PostingsSegment:
    """One segment of the rows that each part's mask keeps, equal to one built afresh of them."""
    seqs = _joined([part.seqs[live] for part, live in parts], np.int64)
    order = np.argsort(seqs, kind="stable")
    new_row = np.empty(len(seqs), dtype=np.int32)
    new_row[order] = np.arange(len(seqs), dtype=np.int32)
    numbers_of: dict[bytes, int] = {}
    numbers, rows, first = [], [], 0
    for part, live in parts:
        mapped = [numbers_of.setdefault(term, len(numbers_of)) for term in part.all_terms()]
        of_posting = np.repeat(np.array(mapped, dtype=np.int32), np.diff(part.starts))
        kept = live[part.rows]
        numbers.append(of_posting[kept])
        rows.append(new_row[(np.cumsum(live) - 1 + first)[part.rows[kept]]])
        first += int(np.count_nonzero(live))
    counts = _joined([part.counts[live[part.rows]] for part, live in parts], np.int64)
    joined = _joined(rows, np.int32)
    by_row = np.argsort(joined, kind="stable")
    return _assemble(
        seqs=seqs[order],
        keys=_joined([part.keys[live] for part, live in parts], np.int64)[order],
        lengths=_joined([part.lengths[live] for part, live in parts], np.int32)[order],
        terms=list(numbers_of),
        numbers=_joined(numbers, np.int32)[by_row],
        rows=joined[by_row],
        counts=counts[by_row],
    )


def _assemble(
    *,
    seqs: Int64,
    keys: Int64,
    lengths: Int32,
    terms: list[bytes],
    numbers: Int32,
    rows: Int32,
    counts: Int64,
) -> PostingsSegment:
    """Sort postings by term: ``numbers`` are positions in ``terms``, rows ascend in each.

    Terms without a posting are left out.
    """
    used = np.bincount(numbers, minlength=len(terms))
    ordered = sorted(np.flatnonzero(used).tolist(), key=terms.__getitem__)
    held = [terms[number] for number in ordered]
    place = np.empty(len(terms), dtype=np.int32)
    place[np.array(ordered, dtype=np.int64)] = np.arange(len(ordered), dtype=np.int32)
    by_term = np.argsort(place[numbers], kind="stable")
    return PostingsSegment(
        seqs=seqs,
        keys=keys,
        lengths=lengths,
        terms=np.frombuffer(b"".join(held), dtype=np.uint8),
        term_starts=_starts([len(term) for term in held]),
        starts=_starts(used[np.array(ordered, dtype=np.int64)]),
        rows=rows[by_term],
        counts=np.minimum(counts, MAX_COUNT)[by_term].astype(np.uint16),
    )


def _joined(arrays: Sequence[npt.NDArray[Any]], kind: type[np.integer[Any]]) -> npt.NDArray[Any]:
    return np.concatenate([np.empty(0, dtype=kind), *arrays]).astype(kind, copy=False)


def _starts(sizes: Sequence[int] | npt.NDArray[np.int64]) -> Int64:
    starts = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(np.asarray(sizes, dtype=np.int64), out=starts[1:])
    return starts
