"""A sample of a dataset's vectors: what scores a query gets from passages in general."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from sqlalchemy import Connection, FromClause, func, select

from catalog.store.database import Database
from catalog.store.engine_types import FLAT, Spread, Stamp, join_spreads, read_stamp
from catalog.store.schema import chunk_windows, chunks, join_embedded
from catalog.store.vectors.exact import read_vectors

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]

SIZE = 2_000  # chunks: the deviation is then within 3 % of that of all, 19 times in 20
_BLOCK = 8_192  # numbers multiplied at a time: BLAS shares larger products among threads


class VectorSample:
    """The vectors of at most :data:`SIZE` chunks of a dataset, the same for the same chunks.

    It is read once for each state of the dataset. Safe to share between threads. ``windows``: see
    :class:`~catalog.store.vectors.exact.ExactEngine`.
    """

    def __init__(
        self, database: Database, dataset: str, windows: FromClause = chunk_windows
    ) -> None:
        self._database, self._dataset, self._windows = database, dataset, windows
        self._guard = threading.Lock()
        self._sample: _Sample | None = None

    def spread(self, vector: Floats) -> Spread:
        """Return the spread of the cosines with a vector of any length, shape ``(dim,)``.

        A chunk counts with its best window. A dataset without vectors has no spread.
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
                self._sample = _read(connection, self._dataset, stamp, self._windows)
            return self._sample


def spread_over(samples: Iterable[VectorSample], vector: Floats) -> Spread:
    """Return the spread of the cosines with a vector over the datasets of the samples, as one."""
    return join_spreads(sample._measure(vector) for sample in samples)


def _multiply(matrix: Floats, vector: Floats) -> Floats:
    """Return the dot product of each row, in this thread alone.

    BLAS's own threads wait for one another beside the other leg, and then a while for more work.
    """
    rows, dim = matrix.shape
    height = max(1, _BLOCK // dim // 4 * 4)  # BLAS takes four rows at a time, to the last digit
    end = rows - rows % height
    blocks = matrix[:end].reshape(-1, height, dim)
    return np.concatenate([(blocks @ vector).ravel(), matrix[end:] @ vector])


class _Sample(NamedTuple):
    """Rows of length 1, by chunk, and where each chunk's rows begin; ``size`` is the dataset's."""

    stamp: Stamp | None
    size: int
    matrix: Floats
    first: npt.NDArray[np.int64]


def _read(
    connection: Connection, dataset: str, stamp: Stamp | None, windows: FromClause
) -> _Sample:
    # chunk ids are hashes, so that their order is chance, and the same wherever it is indexed
    of_dataset = select(chunks.c.seq).where(chunks.c.dataset == dataset).correlate(None)
    if windows is not chunk_windows:  # a tried model may have some of the passages only
        of_dataset = of_dataset.where(chunks.c.seq.in_(select(windows.c.seq)))
    is_in = chunks.c.seq.in_(of_dataset.order_by(chunks.c.chunk_id).limit(SIZE))
    matrix, is_whole, _ = read_vectors(connection, is_in, windows)
    ordered = select(chunks.c.seq).select_from(join_embedded(windows)).where(is_in)
    rows = connection.scalars(ordered.order_by(chunks.c.seq, windows.c.window))
    seqs = np.fromiter(rows, dtype=np.int64)[is_whole]
    first = np.flatnonzero(np.diff(seqs, prepend=-1))
    size = select(func.count()).where(chunks.c.dataset == dataset)
    return _Sample(stamp, connection.scalars(size).one(), matrix[is_whole], first)
