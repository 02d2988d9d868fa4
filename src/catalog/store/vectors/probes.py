"""Passages drawn from a dataset, and what belongs to them: their documents, their vectors."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import TYPE_CHECKING

import numpy as np
from sqlalchemy import Connection, Row, select

from catalog.store.schema import chunk_windows, chunks, embedded_windows
from catalog.store.vectors.exact import read_vectors

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]


def read_probes(
    connection: Connection, dataset: str, limit: int
) -> Sequence[Row[int, str, int, str]]:
    """Return at most so many passages, those of the first ids, which are hashes, so by chance."""
    columns = select(chunks.c.seq, chunks.c.chunk_id, chunks.c.document_id, chunks.c.text)
    of_dataset = select(chunks.c.seq).where(chunks.c.dataset == dataset).correlate(None)
    drawn = chunks.c.seq.in_(of_dataset.order_by(chunks.c.chunk_id).limit(limit))
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
