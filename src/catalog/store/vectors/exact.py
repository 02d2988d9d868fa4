"""The exact engine: compare every vector of the store, one by one, with NumPy.

It derives nothing and needs no refresh, folder or lock. The other engines are tested against it,
and a second process uses it while the first one holds the embedded shard.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from sqlalchemy import Connection, and_, func, select

from catalog.core.errors import EmbeddingMismatchError
from catalog.store.checksums import documents_of_vectors, is_whole_vector
from catalog.store.database import Database
from catalog.store.engine_setup import EngineSetup
from catalog.store.engine_types import (
    Hit,
    Restriction,
    Stamp,
    allowed_seqs,
    best_first,
    read_stamp,
)
from catalog.store.filter_sql import among
from catalog.store.schema import chunk_windows, chunks, embedded_windows, embeddings
from catalog.store.vectors.point_search import check_dataset, round_score
from catalog.store.vectors.points import query_vector

if TYPE_CHECKING:
    import numpy.typing as npt
    from sqlalchemy import ColumnElement

    Floats = npt.NDArray[np.float32]
    Seqs = npt.NDArray[np.int64]

_ROWS = 2_000  # read from SQL at a time
_GATHER_BELOW = 0.25  # for a smaller share of rows it is faster to copy them than to score all


_NO_DATASET = Stamp(0.0, 0, 0.0, "")
_MIXED = "the store has vectors of different dimensions: rebuild it with one embedding model"


@dataclass(frozen=True)
class VectorSnapshot:
    """All windows of a dataset at one moment; immutable.

    ``matrix`` has shape ``(windows, dim)`` and rows of length 1. For each row ``seqs`` has the
    chunk (ascending), and ``keys`` identifies chunk and vector. Windows with a damaged vector are
    left out; ``damaged`` has the ids of their documents.
    """

    stamp: Stamp
    matrix: Floats
    seqs: Seqs
    keys: Seqs
    damaged: frozenset[str] = frozenset()


class ExactEngine:
    """Cosine similarity with every window of the dataset; safe to share between threads."""

    name = "exact"

    def __init__(self, database: Database, dataset: str) -> None:
        self._database = database
        self._dataset = dataset
        self._guard = threading.Lock()
        self._snapshot: VectorSnapshot | None = None

    def search(
        self, vector: npt.NDArray[np.float32], k: int, restriction: Restriction
    ) -> list[Hit]:
        """Search as :class:`VectorEngine` says, in the store as committed when the call begins."""
        check_dataset(restriction, self._dataset)
        if restriction.scope.is_nothing:
            return []
        with self._database.read() as connection:
            snapshot = self._current(connection)
            if snapshot.seqs.size == 0:
                return []
            query = query_vector(vector, snapshot.matrix.shape[1])
            allowed = allowed_seqs(connection, restriction)
        return _best(snapshot, query, k, allowed) if k > 0 else []

    @property
    def damaged(self) -> frozenset[str]:
        """Return the ids of documents with a damaged vector, which is skipped."""
        snapshot = self._snapshot
        return frozenset() if snapshot is None else snapshot.damaged

    def pop_defect(self) -> str:
        """Return "": there is no index that could be damaged."""
        return ""

    def refresh(self) -> int:
        """Do nothing: the store itself is searched."""
        return 0

    def rebuild(self) -> int:
        """Read everything again; return the number of windows."""
        self.close()
        with self._database.read() as connection:
            return int(self._current(connection).seqs.size)

    def verify(self) -> int:
        """Read every vector; count the documents with a damaged one. Nothing else can differ."""
        self.rebuild()
        return len(self.damaged)

    def close(self) -> None:
        """Release the memory; may be called twice, and searches are possible afterwards."""
        with self._guard:
            self._snapshot = None

    def _current(self, connection: Connection) -> VectorSnapshot:
        """Return the dataset as ``connection`` sees it."""
        stamp = read_stamp(connection, self._dataset) or _NO_DATASET
        with self._guard:
            previous = self._snapshot
            if previous is not None and previous.stamp == stamp:
                return previous
            self._snapshot = _load(connection, self._dataset, stamp, previous)
            return self._snapshot


def _best(snapshot: VectorSnapshot, query: Floats, k: int, allowed: Seqs | None) -> list[Hit]:
    """Return the ``k`` best chunks, each with the score of its best window."""
    rows = None if allowed is None else np.flatnonzero(np.isin(snapshot.seqs, allowed))
    seqs = snapshot.seqs if rows is None else snapshot.seqs[rows]
    if seqs.size == 0:
        return []
    if rows is None or rows.size < _GATHER_BELOW * snapshot.seqs.size:
        scores = (snapshot.matrix if rows is None else snapshot.matrix[rows]) @ query
    else:
        scores = (snapshot.matrix @ query)[rows]
    first = np.flatnonzero(np.diff(seqs, prepend=seqs[0] - 1))
    best = np.maximum.reduceat(scores, first)
    owners = seqs[first]
    chosen = best_rows(best, k)
    return best_first((Hit(int(owners[i]), round_score(float(best[i]))) for i in chosen), k)


def best_rows(scores: Floats, k: int) -> Seqs:
    """Return the rows of the ``k`` highest scores and of ties with the lowest one, ascending."""
    if scores.size <= k:
        return np.arange(scores.size)
    least = np.partition(scores, scores.size - k)[scores.size - k]
    return np.flatnonzero(scores >= least - 1e-6)  # ties are resolved after rounding


def _load(
    connection: Connection,
    dataset: str,
    stamp: Stamp,
    previous: VectorSnapshot | None,
) -> VectorSnapshot:
    """Make a snapshot; reuse vectors of the previous one."""
    seqs, keys = _live(connection, dataset)
    is_live = chunks.c.dataset == dataset
    if previous is None or not (is_held := np.isin(keys, previous.keys)).any():
        matrix, is_whole, damaged = read_vectors(connection, is_live)
        return VectorSnapshot(stamp, matrix[is_whole], seqs[is_whole], keys[is_whole], damaged)
    is_missing = np.isin(seqs, seqs[~is_held])  # whole chunks
    matrix = np.empty((len(seqs), previous.matrix.shape[1]), dtype=np.float32)
    order = np.argsort(previous.keys, kind="stable")
    places = np.searchsorted(previous.keys, keys[~is_missing], sorter=order)
    matrix[~is_missing] = previous.matrix[order[places]]
    is_whole, damaged = np.ones(len(seqs), dtype=np.bool_), frozenset[str]()
    if is_missing.any():
        new = among(chunks.c.seq, np.unique(seqs[is_missing]).tolist())
        vectors, is_whole[is_missing], damaged = read_vectors(connection, and_(is_live, new))
        if is_whole[is_missing].any() and vectors.shape[1] != matrix.shape[1]:
            raise EmbeddingMismatchError(_MIXED)
        matrix[is_missing & is_whole] = vectors[is_whole[is_missing]]
    return VectorSnapshot(stamp, matrix[is_whole], seqs[is_whole], keys[is_whole], damaged)


def _live(connection: Connection, dataset: str) -> tuple[Seqs, Seqs]:
    """Return for each window with a vector its chunk (ascending) and a key of chunk and vector.

    A key is valid in this process. Row numbers are not enough: they may be used again after an
    older copy of the store is restored.
    """
    query = select(chunks.c.seq, chunk_windows.c.embed_key).select_from(embedded_windows)
    query = query.where(chunks.c.dataset == dataset)
    rows = connection.execute(query.order_by(chunks.c.seq, chunk_windows.c.window)).all()
    seqs = np.fromiter((row.seq for row in rows), dtype=np.int64, count=len(rows))
    keys = np.fromiter((hash(tuple(row)) for row in rows), dtype=np.int64, count=len(rows))
    return seqs, keys


def read_vectors(
    connection: Connection, is_wanted: ColumnElement[bool]
) -> tuple[Floats, npt.NDArray[np.bool_], frozenset[str]]:
    """Return the embedded windows of the wanted chunks, in order, as rows of length 1.

    Also return which rows are undamaged, and the documents of the damaged ones.
    """
    size, count, embedded = func.length(embeddings.c.vector), func.count(), embedded_windows
    counted = select(size, count).select_from(embedded).where(is_wanted)
    sizes = connection.execute(counted.group_by(size).order_by(count.desc(), size.desc())).all()
    total, length = sum(row[1] for row in sizes), sizes[0][0] // 4 * 4 if sizes else 0
    matrix, is_whole = np.empty((total, length // 4), dtype=np.float32), np.ones(total, np.bool_)
    stored = (embeddings.c.embed_key, embeddings.c.vector, embeddings.c.checksum)
    query = select(*stored).select_from(embedded).where(is_wanted)
    ordered = query.order_by(chunks.c.seq, chunk_windows.c.window)
    filled, damaged = 0, set[str]()
    with connection.execute(ordered.execution_options(yield_per=_ROWS)) as result:
        for rows in result.partitions():
            blobs = [row.vector for row in rows]
            for place, row in enumerate(rows):
                if not is_whole_vector(*row):
                    blobs[place], is_whole[filled + place] = bytes(length), False
                    damaged.add(row.embed_key)
            if any(len(blob) != length for blob in blobs):
                raise EmbeddingMismatchError(_MIXED)
            part = matrix[filled : filled + len(rows)]
            part[:] = np.frombuffer(b"".join(blobs), dtype="<f4").reshape(part.shape)
            _normalise(part)
            filled += len(rows)
    owners = documents_of_vectors(connection, damaged) if damaged else ()
    return matrix, is_whole, frozenset(owners)


def _normalise(rows: Floats) -> None:
    """Scale rows to length 1 in place; rows of zeros stay."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    np.divide(rows, lengths, out=rows, where=lengths > 0)


def open_engine(setup: EngineSetup) -> ExactEngine:
    """Return the engine ``exact``."""
    return ExactEngine(setup.database, setup.dataset)
