"""One unchanging state of the BM25 index: segments, the rows that are live, and searching them."""

from __future__ import annotations

import json
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import NamedTuple

import numpy as np
from sqlalchemy import Connection, select

from catalog.store.engine_types import Hit, Restriction, Stamp
from catalog.store.lexical.postings import (
    Int32,
    Int64,
    Mask,
    PostingsSegment,
    Scores,
    length_norms,
    merge_segments,
    saturated,
    term_weight,
    top_hits,
)
from catalog.store.schema import chunks

_BATCH = 500  # bound parameters in one statement


@dataclass(frozen=True, slots=True)
class LiveRows:
    """A dataset's chunks: row numbers, ascending, and the keys of their contents."""

    seqs: Int64
    keys: Int64


class ChunkText(NamedTuple):
    """What is indexed of one chunk."""

    seq: int
    key: int
    text: str


def read_rows(connection: Connection, dataset: str) -> LiveRows:
    """Every chunk of the dataset."""
    columns = select(chunks.c.seq, chunks.c.chunk_id).where(chunks.c.dataset == dataset)
    rows = connection.execute(columns.order_by(chunks.c.seq)).all()
    seqs = np.fromiter((seq for seq, _ in rows), dtype=np.int64, count=len(rows))
    keys = np.fromiter((_key(name) for _, name in rows), dtype=np.int64, count=len(rows))
    return LiveRows(seqs, keys)


def read_texts(connection: Connection, dataset: str, seqs: Int64) -> Iterator[ChunkText]:
    """The chunks of those row numbers (ascending) with their indexed text, in order."""
    columns = select(
        chunks.c.seq, chunks.c.chunk_id, chunks.c.title, chunks.c.headings, chunks.c.text
    ).order_by(chunks.c.seq)
    for start in range(0, len(seqs), _BATCH):
        batch = seqs[start : start + _BATCH].tolist()
        query = columns.where(chunks.c.dataset == dataset, chunks.c.seq.in_(batch))
        for seq, name, title, headings, text in connection.execute(query):
            yield ChunkText(seq, _key(name), indexed_text(title, json.loads(headings), text))


def indexed_text(title: str, headings: list[str], text: str) -> str:
    """The passage behind its title and headings, without those it holds itself."""
    above = list(dict.fromkeys([title, *headings]))
    return "\n".join([*(line for line in above if line and not _holds(text, line)), text])


def _holds(text: str, line: str) -> bool:
    """Whether the line stands in the text as whole words."""
    at = text.find(line)
    while at >= 0:
        end = at + len(line)
        if not (text[at - 1 : at].isalnum() or text[end : end + 1].isalnum()):
            return True
        at = text.find(line, at + 1)
    return False


def _key(chunk_id: str) -> int:
    """A chunk id, which depends on the content, as a number: a row number alone may be reused
    once an older copy of the database is restored."""
    return int(chunk_id[:15], 16)


_MASKS = 16  # restrictions whose rows are remembered


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A segment, which of its rows are live, and the folder that holds it, if one does."""

    segment: PostingsSegment
    live: Mask
    folder: str | None = None
    dead: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dead", len(self.live) - int(np.count_nonzero(self.live)))

    def within(self, rows: LiveRows) -> Part:
        """The same part with exactly those rows live that the truth still has."""
        return Part(self.segment, _present(self.segment, rows), self.folder)


@dataclass(frozen=True, slots=True, eq=False)
class LexicalSnapshot:
    """One state of the index, never changed: what a search works on. ``stamp`` names the state."""

    stamp: Stamp | None
    parts: tuple[Part, ...]
    k1: float
    b: float
    _norms: tuple[Scores, ...] = field(init=False, repr=False)
    _masks: OrderedDict[object, tuple[Mask, ...]] = field(init=False, repr=False)
    _lock: Lock = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_norms", self._length_norms())
        object.__setattr__(self, "_masks", OrderedDict())
        object.__setattr__(self, "_lock", Lock())

    def __len__(self) -> int:
        return sum(len(part.segment) - part.dead for part in self.parts)

    def rank(self, tokens: Sequence[str], k: int, masks: Sequence[Mask]) -> list[Hit]:
        """The ``k`` best of the rows that ``masks`` (one per part) allow; ties by row number."""
        scores = self._scores(tokens)
        seqs, found = [], []
        for part, mask, of_part in zip(self.parts, masks, scores, strict=True):
            rows = np.flatnonzero((of_part > 0) & mask)
            seqs.append(part.segment.seqs[rows])
            found.append(of_part[rows])
        return top_hits(np.concatenate(seqs), np.concatenate(found), k) if seqs else []

    def live_masks(self) -> tuple[Mask, ...]:
        """The rows that a search of the whole dataset may return."""
        return tuple(part.live for part in self.parts)

    def masks(
        self, restriction: Restriction, stamp: Stamp, load: Callable[[], Int64 | None]
    ) -> tuple[Mask, ...]:
        """The rows that the restriction allows; ``load`` reads their row numbers at ``stamp``."""
        key = _mask_key(restriction)
        with self._lock:
            known = self._masks.get(key)
            if known is not None:
                self._masks.move_to_end(key)
                return known
        allowed = load()
        if allowed is None:
            return self.live_masks()
        masks = tuple(part.live & _among(part.segment.seqs, allowed) for part in self.parts)
        if stamp == self.stamp:  # what an older reader may see is not for newer ones
            with self._lock:
                self._masks[key] = masks
                while len(self._masks) > _MASKS:
                    self._masks.popitem(last=False)
        return masks

    def _length_norms(self) -> tuple[Scores, ...]:
        total = sum(int(part.segment.lengths[part.live].sum()) for part in self.parts)
        average = total / len(self) if total > 0 else 1.0
        return tuple(
            length_norms(part.segment.lengths, average, self.k1, self.b) for part in self.parts
        )

    def _scores(self, tokens: Sequence[str]) -> list[Scores]:
        scores = [np.zeros(len(part.segment)) for part in self.parts]
        size = len(self)
        for term, times in Counter(tokens).items():
            found = [part.segment.find(term) for part in self.parts]
            holding = sum(
                _count_live(part, postings[0])
                for part, postings in zip(self.parts, found, strict=True)
                if postings is not None
            )
            weight = times * term_weight(size, holding)
            for of_part, norm, postings in zip(scores, self._norms, found, strict=True):
                if postings is not None:
                    rows, counts = postings
                    of_part[rows] += weight * saturated(counts, norm[rows])
        return scores


def find_missing_rows(parts: Sequence[Part], rows: LiveRows) -> Int64:
    """The row numbers of the truth that no part holds, ascending."""
    held = [part.segment.seqs[part.live] for part in parts]
    known = np.concatenate([np.empty(0, dtype=np.int64), *held])
    return rows.seqs[~_among(rows.seqs, np.sort(known))]


def _present(segment: PostingsSegment, rows: LiveRows) -> Mask:
    if len(rows.seqs) == 0:
        return np.zeros(len(segment), dtype=np.bool_)
    at = np.minimum(np.searchsorted(rows.seqs, segment.seqs), len(rows.seqs) - 1)
    present: Mask = (rows.seqs[at] == segment.seqs) & (rows.keys[at] == segment.keys)
    return present


def _among(values: Int64, ascending: Int64) -> Mask:
    if len(ascending) == 0:
        return np.zeros(len(values), dtype=np.bool_)
    at = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    found: Mask = ascending[at] == values
    return found


def _count_live(part: Part, rows: Int32) -> int:
    return len(rows) if part.dead == 0 else int(np.count_nonzero(part.live[rows]))


def _mask_key(restriction: Restriction) -> object:
    # repr, because in Python True == 1 == 1.0, and to a filter they are different values
    filters = repr(restriction.filter)
    return restriction.scope.ids, filters, restriction.without, restriction.containing


MAX_PARTS = 8
CHURN_ROWS = 2_000
CHURN_SHARE = 0.05


def compact(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """At most two parts: all in one, or the large one as it is and the rest merged.

    All are merged once the rows outside the first part and its removed ones exceed
    :data:`CHURN_ROWS` and :data:`CHURN_SHARE` of it.
    """
    if len(parts) == 0:
        return ()
    base, rest = parts[0], parts[1:]
    churn = base.dead + sum(len(part.segment) for part in rest)
    if churn > max(CHURN_ROWS, CHURN_SHARE * len(base.segment)):
        return (_merged(parts),)
    return (base, *((_merged(rest),) if len(rest) > 1 else rest))


def limit_parts(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """The parts after the first merged, once there are more than :data:`MAX_PARTS`."""
    return parts if len(parts) <= MAX_PARTS else (parts[0], _merged(parts[1:]))


def _merged(parts: tuple[Part, ...]) -> Part:
    segment: PostingsSegment = merge_segments([(part.segment, part.live) for part in parts])
    return Part(segment, np.ones(len(segment), dtype=np.bool_))
