"""Bringing an index up to the truth: by the outbox, or from nothing.

Every step may be repeated: points are applied and flushed before their outbox rows go, so a
process killed in between leaves work that is simply done again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, delete, select

from catalog.core.errors import StoreBusyError
from catalog.core.ids import point_id
from catalog.store.database import Database
from catalog.store.filter_sql import among
from catalog.store.schema import outbox
from catalog.store.vectors.points import PointIndex, load_points, next_seqs

BATCH = 1000  # chunks, or outbox rows, handled at a time

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Batch:
    """Outbox rows, collapsed: first ``deleted`` points go, then the chunks ``upserted`` come."""

    rows: tuple[int, ...]
    deleted: tuple[str, ...]
    upserted: tuple[int, ...]


def is_pending(connection: Connection, dataset: str) -> bool:
    """Whether the outbox holds anything for the dataset."""
    query = select(outbox.c.id).where(outbox.c.dataset == dataset).limit(1)
    return connection.scalar(query) is not None


def read_batch(connection: Connection, dataset: str, after: int) -> Batch | None:
    """The next rows above ``after``, in order; ``None`` when there are none."""
    query = select(outbox).where(outbox.c.dataset == dataset, outbox.c.id > after)
    rows = connection.execute(query.order_by(outbox.c.id).limit(BATCH)).all()
    deleted: dict[str, None] = {}
    upserted: dict[str, int] = {}
    for row in rows:
        if row.action == "upsert":
            upserted[row.chunk_id] = row.seq  # no points are read for a chunk deleted since
        else:
            windows = range(row.windows)
            deleted.update((point_id(row.chunk_id, window), None) for window in windows)
    if not rows:
        return None
    return Batch(tuple(row.id for row in rows), tuple(deleted), tuple(upserted.values()))


def apply_outbox(database: Database, dataset: str, index: PointIndex, dim: int) -> int:
    """Do what the outbox says, in order, and empty it; the number of points changed."""
    changed = after = 0
    while True:
        with database.read() as connection:
            batch = read_batch(connection, dataset, after)
            if batch is None:
                return changed
            points = load_points(connection, batch.upserted, dim)
        if batch.deleted:
            index.delete(batch.deleted)
        if points:
            index.upsert(points)
        index.flush()
        _forget(database, batch.rows)
        changed += len(batch.deleted) + len(points)
        after = batch.rows[-1]


def fill(database: Database, dataset: str, index: PointIndex, dim: int) -> int:
    """Put every point of the truth into an empty index; the number of points.

    What the outbox held before is part of that truth; what it gets meanwhile stays in it.
    """
    with database.read() as connection:
        query = select(outbox.c.id).where(outbox.c.dataset == dataset)
        done = list(connection.scalars(query))
    count = after = 0
    while True:
        with database.read() as connection:
            seqs = next_seqs(connection, dataset, after, BATCH)
            points = load_points(connection, seqs, dim)
        if not seqs:
            break
        if points:
            index.upsert(points)
        count += len(points)
        after = seqs[-1]
    index.flush()
    _forget(database, done)
    return count


def _forget(database: Database, rows: Iterable[int]) -> None:
    """Remove outbox rows; when another process keeps the store busy, they are applied again."""
    listed = list(rows)
    if not listed:
        return
    try:
        with database.write() as connection:
            connection.execute(delete(outbox).where(among(outbox.c.id, listed)))
    except StoreBusyError:
        _log.warning("%d applied outbox rows stay for now: the store is busy", len(listed))
