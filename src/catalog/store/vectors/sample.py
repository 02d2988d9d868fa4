"""Random passages of a dataset with their vectors, and the scores that a query gets from them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence, Set
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from sqlalchemy import Connection, Row, Select, func, select

from catalog.store.database import Database
from catalog.store.engine_types import FLAT, Spread, Stamp, join_spreads, read_stamp
from catalog.store.filter_sql import DatasetNames, of_datasets
from catalog.store.schema import chunk_windows, chunks, embedded_windows
from catalog.store.vectors.exact import read_vectors

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]
SIZE = 2_000  # chunks: in 19 of 20 samples the deviation is within 3 % of the dataset's
_BLOCK = 8_192  # numbers multiplied at a time: BLAS uses threads for larger products


def draw_passages(connection: Connection, dataset: DatasetNames, limit: int) -> Sequence[int]:
    """Return the row numbers of a random sample of passages of one or several datasets."""
    return connection.scalars(_drawn(dataset, limit)).all()


def _drawn(dataset: DatasetNames, limit: int) -> Select[int]:
    is_here = of_datasets(chunks.c.dataset, dataset)  # ids are hashes, so their order is random
    return select(chunks.c.seq).where(is_here).order_by(chunks.c.chunk_id).limit(limit)


def read_probes(
    connection: Connection, dataset: str, limit: int
) -> Sequence[Row[int, str, int, str]]:
    """Return the passages that :func:`draw_passages` selects."""
    columns = select(chunks.c.seq, chunks.c.chunk_id, chunks.c.document_id, chunks.c.text)
    drawn = chunks.c.seq.in_(_drawn(dataset, limit).correlate(None))
    return connection.execute(columns.where(drawn).order_by(chunks.c.chunk_id)).all()


def read_document_ids(connection: Connection, seqs: Set[int]) -> dict[int, int]:
    """Return the document's row number for each of these passages."""
    columns = select(chunks.c.seq, chunks.c.document_id)
    rows = connection.execute(columns.where(chunks.c.seq.in_(seqs)))
    return {row.seq: row.document_id for row in rows}


def read_windows(connection: Connection, seqs: Set[int]) -> dict[int, Floats]:
    """Return the vectors of these passages' windows as rows of length 1.

    Passages without a vector are left out.
    """
    is_wanted = chunks.c.seq.in_(seqs)
    matrix, is_whole, _ = read_vectors(connection, is_wanted)
    ordered = select(chunks.c.seq).select_from(embedded_windows).where(is_wanted)
    owners = connection.scalars(ordered.order_by(chunks.c.seq, chunk_windows.c.window)).all()
    rows: dict[int, list[int]] = {}
    for row in np.flatnonzero(is_whole).tolist():
        rows.setdefault(owners[row], []).append(row)
    return {seq: matrix[of_one] for seq, of_one in rows.items()}


class VectorSample:
    """The vectors of at most :data:`SIZE` chunks of a dataset; equal chunks give equal samples.

    The sample is read once for each state of the dataset. Safe to share between threads. For
    ``windows`` see :class:`~catalog.store.vectors.exact.ExactEngine`.
    """

    def __init__(self, database: Database, dataset: str) -> None:
        self._database, self._dataset = database, dataset
        self._guard = threading.Lock()
        self._sample: _Sample | None = None

    def spread(self, vector: Floats) -> Spread:
        """Return the spread of the cosines with a vector of any length, shape ``(dim,)``.

        Each chunk counts with its best window. A dataset without vectors has the spread ``FLAT``.
        """
        return self._measure(vector)[1]

    def _measure(self, vector: Floats) -> tuple[int, Spread]:
        """Return the number of chunks in the dataset, and the spread."""
        with self._database.read() as connection:
            sample = self._current(connection)
        length = float(np.linalg.norm(vector))
        if len(sample.first) == 0 or length == 0:
            return 0, FLAT
        products = _multiply(sample.matrix, vector / length)
        cosines = np.maximum.reduceat(products, sample.first)
        return sample.size, Spread(float(cosines.mean()), float(cosines.std()))

    def _current(self, connection: Connection) -> _Sample:
        stamp = read_stamp(connection, self._dataset)
        with self._guard:
            if self._sample is None or self._sample.stamp != stamp:
                self._sample = _read(connection, self._dataset, stamp)
            return self._sample


def spread_over(samples: Iterable[VectorSample], vector: Floats) -> Spread:
    """Return the spread of the cosines with a vector over all samples' datasets together."""
    return join_spreads(sample._measure(vector) for sample in samples)


def _multiply(matrix: Floats, vector: Floats) -> Floats:
    """Return the dot product of each row, computed in this thread only.

    BLAS's own threads would compete with the other leg, and keep a processor busy afterwards.
    """
    rows, dim = matrix.shape
    # BLAS takes four rows at a time: with a multiple of 4 the last digits stay equal
    height = max(1, _BLOCK // dim // 4 * 4)
    end = rows - rows % height
    blocks = matrix[:end].reshape(-1, height, dim)
    return np.concatenate([(blocks @ vector).ravel(), matrix[end:] @ vector])


class _Sample(NamedTuple):
    """Rows of length 1, ordered by chunk.

    ``first`` has the position of each chunk's first row; ``size`` is the dataset's number of
    chunks.
    """

    stamp: Stamp | None
    size: int
    matrix: Floats
    first: npt.NDArray[np.int64]


def _read(connection: Connection, dataset: str, stamp: Stamp | None) -> _Sample:
    # chunk ids are hashes: their order is random, and the same in every store
    of_dataset = select(chunks.c.seq).where(chunks.c.dataset == dataset).correlate(None)
    is_in = chunks.c.seq.in_(of_dataset.order_by(chunks.c.chunk_id).limit(SIZE))
    matrix, is_whole, _ = read_vectors(connection, is_in)
    ordered = select(chunks.c.seq).select_from(embedded_windows).where(is_in)
    rows = connection.scalars(ordered.order_by(chunks.c.seq, chunk_windows.c.window))
    seqs = np.fromiter(rows, dtype=np.int64)[is_whole]
    first = np.flatnonzero(np.diff(seqs, prepend=-1))
    size = select(func.count()).where(chunks.c.dataset == dataset)
    return _Sample(stamp, connection.scalars(size).one(), matrix[is_whole], first)
