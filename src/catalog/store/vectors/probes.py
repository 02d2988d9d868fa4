"""Passages drawn from a dataset, and what belongs to them: their documents, their vectors."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import TYPE_CHECKING

import numpy as np
from sqlalchemy import Connection, Row, Select, select

from catalog.store.filter_sql import DatasetNames, of_datasets
from catalog.store.schema import chunk_windows, chunks, embedded_windows
from catalog.store.vectors.exact import read_vectors

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]


def draw_passages(connection: Connection, dataset: DatasetNames, limit: int) -> Sequence[int]:
    """Return the row numbers of at most so many passages of one or several datasets, by chance."""
    return connection.scalars(_drawn(dataset, limit)).all()


def _drawn(dataset: DatasetNames, limit: int) -> Select[int]:
    is_here = of_datasets(chunks.c.dataset, dataset)  # ids are hashes, so their order is chance
    return select(chunks.c.seq).where(is_here).order_by(chunks.c.chunk_id).limit(limit)


def read_probes(
    connection: Connection, dataset: str, limit: int
) -> Sequence[Row[int, str, int, str]]:
    """Return the passages that :func:`draw_passages` draws."""
    columns = select(chunks.c.seq, chunks.c.chunk_id, chunks.c.document_id, chunks.c.text)
    drawn = chunks.c.seq.in_(_drawn(dataset, limit).correlate(None))
    return connection.execute(columns.where(drawn).order_by(chunks.c.chunk_id)).all()


def read_document_ids(connection: Connection, seqs: Set[int]) -> dict[int, int]:
    """Return the document of each of these passages."""
    columns = select(chunks.c.seq, chunks.c.document_id)
    rows = connection.execute(columns.where(chunks.c.seq.in_(seqs)))
    return {row.seq: row.document_id for row in rows}


def read_windows(connection: Connection, seqs: Set[int]) -> dict[int, Floats]:
    """Return the vectors of these passages' windows, as rows of length 1; none yet: left out."""
    is_wanted = chunks.c.seq.in_(seqs)
    matrix, is_whole, _ = read_vectors(connection, is_wanted)
    ordered = select(chunks.c.seq).select_from(embedded_windows).where(is_wanted)
    owners = connection.scalars(ordered.order_by(chunks.c.seq, chunk_windows.c.window)).all()
    rows: dict[int, list[int]] = {}
    for row in np.flatnonzero(is_whole).tolist():
        rows.setdefault(owners[row], []).append(row)
    return {seq: matrix[of_one] for seq, of_one in rows.items()}
