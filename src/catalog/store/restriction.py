"""Restrict a search to some chunks; the hits of a search, and the state of a dataset."""

from __future__ import annotations

import math
import secrets
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import Connection, Select, and_, bindparam, func, literal, select, true, update

from catalog.core.filters import And, Condition, Filter, Op
from catalog.core.kept import LRUCache
from catalog.core.scope import ALL, Scope
from catalog.store import filter_sql
from catalog.store.filter_sql import DatasetNames, among, of_datasets
from catalog.store.phrases import flag_clause, phrase_clause
from catalog.store.schema import KEPT_STAMPS, chunks, datasets, documents
from catalog.store.sql_forms import position

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from sqlalchemy import ColumnElement

_REMEMBERED = 64  # states of a dataset: an index that is further behind is built anew
_NAMES_ONE = frozenset(["path", "source_doc_id", "media"])
_SEQS: LRUCache[Hashable, npt.NDArray[np.int64]] = LRUCache(2**24, lambda seqs: seqs.nbytes)
_IDS = select(chunks.c.seq, chunks.c.chunk_id)
_IDS = _IDS.where(filter_sql.among_bound(chunks.c.seq, "seqs"))


class Hit(NamedTuple):
    """A chunk (by row number) and its raw score; larger is better."""

    seq: int
    score: float


class Spread(NamedTuple):
    """Mean and standard deviation of the scores that a query gives the chunks of a dataset."""

    mean: float
    deviation: float

    @property
    def is_flat(self) -> bool:
        """Return whether all scores are equal except for rounding."""
        return self.deviation <= 1e-6 * abs(self.mean)


FLAT = Spread(0.0, 0.0)  # without chunks, or if all scores are 0


def join_spreads(sized: Iterable[tuple[int, Spread]]) -> Spread:
    """Return the spread of several datasets as if they were one; each has its number of chunks."""
    known = [(size, one) for size, one in sized if size > 0]
    total = sum(size for size, _ in known)
    if total == 0:
        return FLAT
    mean = sum(size * one.mean for size, one in known) / total
    square = sum(size * (one.deviation**2 + one.mean**2) for size, one in known) / total
    return Spread(mean, math.sqrt(max(0.0, square - mean * mean)))


class Hits(list[Hit]):
    """Hits, best first, with the spread of the scores of all chunks, hits or not.

    ``size`` is the number of these chunks, 0 if the spread is not known. ``fallback`` says why
    newer chunks are missing.
    """

    def __init__(
        self, hits: Iterable[Hit] = (), spread: Spread = FLAT, fallback: str = "", size: int = 0
    ) -> None:
        super().__init__(hits)
        self.spread, self.fallback, self.size = spread, fallback, size


def best_first(hits: Iterable[tuple[int, float]], k: int) -> list[Hit]:
    """Return the ``k`` best hits, highest score first, ties in order of row number."""
    ordered = sorted([(-score, seq) for seq, score in hits])
    return [Hit(seq, -negative) for negative, seq in ordered[:k]]


@dataclass(frozen=True, slots=True)
class Restriction:
    """The datasets, scope and filter of a search, and phrases to contain or to exclude.

    No passage may contain a word or phrase of ``without``; each must contain all of ``containing``.
    """

    dataset: DatasetNames
    scope: Scope = ALL
    filter: Filter | None = None
    without: tuple[str, ...] = ()
    containing: tuple[str, ...] = ()

    @property
    def datasets(self) -> tuple[str, ...]:
        """Return the names of the datasets, one or more."""
        return (self.dataset,) if isinstance(self.dataset, str) else self.dataset

    def of(self, dataset: str) -> Restriction:
        """Return the same restriction for one of the datasets only."""
        return self if self.dataset == dataset else replace(self, dataset=dataset)

    @property
    def is_whole_dataset(self) -> bool:
        """Return whether every chunk of every dataset may answer."""
        return self.scope.is_all and (self.filter, self.without, self.containing) == (None, (), ())

    @property
    def is_one_document(self) -> bool:
        """Return whether scope or filter select a single document or recording."""
        parts = self.filter.parts if isinstance(self.filter, And) else (self.filter,)
        return len(self.scope.ids or ()) == 1 or any(
            isinstance(part, Condition) and part.op is Op.EQ and part.field in _NAMES_ONE
            for part in parts
        )

    def clause(self) -> ColumnElement[bool]:
        """Return the condition on ``chunks`` rows, with all values bound."""
        return _clause(self, repr(self.filter))


@lru_cache(maxsize=32)  # to build a condition takes longer than most statements with it
def _clause(restriction: Restriction, _filter: str) -> ColumnElement[bool]:
    # the filter's text is part of the key because Python takes the filters 1 and True for equal
    is_here = of_datasets(chunks.c.dataset, restriction.dataset)
    if restriction.scope.ids is not None:
        # the dataset is tested on documents, else SQLite scans all its chunks
        allowed = select(documents.c.id).where(
            of_datasets(documents.c.dataset, restriction.dataset),
            among(documents.c.source_doc_id, sorted(restriction.scope.ids)),
        )
        is_here = chunks.c.document_id.in_(allowed)
    return and_(
        is_here,
        true() if restriction.filter is None else filter_sql.compile_filter(restriction.filter),
        *(phrase_clause(phrase) for phrase in restriction.containing),
        *(~phrase_clause(phrase) for phrase in restriction.without),
    )


def allowed_seqs(connection: Connection, restriction: Restriction) -> npt.NDArray[np.int64] | None:
    """Return the ascending row numbers of the chunks that may answer; ``None`` for all chunks.

    The array is cached until a dataset changes, and is read-only.
    """
    import numpy as np

    if restriction.is_whole_dataset:
        return None
    stamps = read_stamps(connection, restriction.dataset)
    # repr, because to Python the filters 1 and True are equal
    key = connection.engine.url.database, stamps, restriction, repr(restriction.filter)
    seqs = _SEQS.get(key)
    if seqs is None:
        query = select(chunks.c.seq).where(restriction.clause()).order_by(chunks.c.seq)
        seqs = np.fromiter(connection.scalars(query), dtype=np.int64)
        seqs.flags.writeable = False
        _SEQS.put(key, seqs)
    return seqs


def allowed_paths(connection: Connection, restriction: Restriction) -> frozenset[str]:
    """Return the paths of documents with at least one chunk that may answer."""
    joined = select(documents.c.path).join(chunks, chunks.c.document_id == documents.c.id)
    return frozenset(connection.scalars(joined.where(restriction.clause()).distinct()))


def sizes_within(connection: Connection, restriction: Restriction) -> list[int]:
    """Return the number of chunks that may answer of each document that has any."""
    sizes = select(func.count()).where(restriction.clause()).group_by(chunks.c.document_id)
    return list(connection.scalars(sizes))


def read_sizes(connection: Connection, source_ids: Iterable[str]) -> dict[str, int]:
    """Return the number of chunks of these documents, by source document id."""
    sizes = select(documents.c.source_doc_id, func.count()).join_from(chunks, documents)
    wanted = sizes.where(among(documents.c.source_doc_id, source_ids))
    rows = connection.execute(wanted.group_by(documents.c.source_doc_id))
    return {row[0]: row[1] for row in rows}


def is_written_as_flag(connection: Connection, restriction: Restriction, word: str) -> bool:
    """Return whether a chunk that may answer has the word as a flag, as in ``find -name``."""
    found = select(chunks.c.seq).where(restriction.clause(), flag_clause(word)).limit(1)
    return connection.scalar(found) is not None


def read_chunk_ids(
    connection: Connection, dataset: DatasetNames, seqs: Iterable[int]
) -> dict[int, str]:
    """Return the chunk ids of the dataset's live chunks among these row numbers, by row number."""
    query = _IDS.where(of_datasets(chunks.c.dataset, dataset))
    rows = connection.execute(query, {"seqs": filter_sql.as_bound(seqs)})
    return {row[0]: row[1] for row in rows}


class Stamp(NamedTuple):
    """One state of a dataset: with equal stamps, the chunks are equal.

    ``state`` has random words: the first is new with every change, the others with every change of
    rows, newest first. Counters are not enough: after an older copy of the store is restored and
    changed, they take the same values again.
    """

    created_at: float
    generation: int
    updated_at: float
    state: str

    @property
    def rows(self) -> str:
        """Return the word of the present rows; vectors may have been added since it was drawn."""
        return (self.state.split() or [""])[:2][-1]

    def is_related(self, other: Stamp) -> bool:
        """Return whether one state came from the other, so that row numbers mean the same rows."""
        return self.rows in other.state.split() or other.rows in self.state.split()


_STAMP = select(*(datasets.c[name] for name in Stamp._fields))
_STAMP = _STAMP.where(datasets.c.name == bindparam("dataset"))


def read_stamp(connection: Connection, dataset: str) -> Stamp | None:
    """Return the dataset's present state, ``None`` when there is no such dataset.

    It is read once in a snapshot, whose connection keeps it.
    """
    kept: dict[str, Stamp | None] = connection.get_execution_options().get(KEPT_STAMPS, {})
    if dataset not in kept:
        row = connection.execute(_STAMP, {"dataset": dataset}).one_or_none()
        kept[dataset] = None if row is None else Stamp(*row)
    return kept[dataset]


def read_stamps(connection: Connection, dataset: DatasetNames) -> tuple[Stamp | None, ...]:
    """Return the present state of the dataset, or of each dataset."""
    return tuple(read_stamp(connection, name) for name in Restriction(dataset).datasets)


def change_stamp(
    connection: Connection, dataset: str | Select[str], now: float, *, rows: bool = True
) -> None:
    """Give the dataset, or each of a query, a new stamp, with each change of search results.

    Without ``rows``, only vectors were added.
    """
    name, state = datasets.c.name, datasets.c.state
    drawn = "".join(f"{secrets.token_hex(6)} " for _ in range(1 + rows))
    rest = func.substr(state, position(state, " ") + 1)  # without the first word, if it has more
    changed = {
        "generation": datasets.c.generation + 1,
        "updated_at": now,
        "state": func.substr(literal(drawn).concat(rest), 1, _REMEMBERED * len("0123456789ab ")),
    }
    is_it = name == dataset if isinstance(dataset, str) else name.in_(dataset)
    connection.execute(update(datasets).where(is_it).values(changed))
