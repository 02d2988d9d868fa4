"""Bringing an index up to the truth: by the outbox, or from nothing.

Every step may be repeated: points are applied and flushed before their outbox rows go, so a
process killed in between leaves work that is simply done again. Removing the rows is the only
step that needs the write lock of the store, and a search does not wait for that.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, delete, select

from catalog.core.errors import StoreBusyError
from catalog.core.ids import point_id
from catalog.store.database import Database
from catalog.store.filter_sql import among
from catalog.store.schema import chunks, outbox
from catalog.store.vectors.points import PointIndex, load_points

BATCH = 1000  # chunks, or outbox rows, handled at a time
_REMEMBERED = 100_000  # applied rows

_log = logging.getLogger(__name__)


def is_pending(connection: Connection, dataset: str) -> bool:
    """Tell whether the outbox holds anything for the dataset."""
    query = select(outbox.c.id).where(outbox.c.dataset == dataset).limit(1)
    return connection.scalar(query) is not None


class Outbox:
    """What one open index has still to apply; its owner sees to it that one thread is at it.

    Rows are remembered once applied, since they stay where they are while another process is
    writing, and for as long in the snapshots of other threads. Their ids are never reused.
    """

    def __init__(self, database: Database, dataset: str, dim: int) -> None:
        self._database = database
        self._dataset = dataset
        self._dim = dim
        self._applied: set[int] = set()
        self._to_remove: set[int] = set()

    def is_empty(self) -> bool:
        """Tell whether there is nothing to apply, and nothing applied to remove."""
        with self._database.read() as connection:
            return not is_pending(connection, self._dataset)

    def apply(self, index: PointIndex, *, wait: bool) -> int:
        """Do what the outbox says, in order, and empty it; return the number of points changed.

        Unless told to ``wait``, rows stay for the next time while another process is writing.
        """
        changed = 0
        new = [row for row in self._rows() if row not in self._applied]
        for start in range(0, len(new), BATCH):
            rows = new[start : start + BATCH]
            with self._database.read() as connection:
                deleted, upserted = read_changes(connection, rows)
                points = load_points(connection, upserted, self._dim)
            if deleted:
                index.delete(deleted)
            if points:
                index.upsert(points)
            index.flush()
            self._mark_applied(rows)
            self._remove(wait=wait)
            changed += len(deleted) + len(points)
        self._remove(wait=wait)
        return changed

    def fill(self, index: PointIndex) -> int:
        """Put every point of the truth into an empty index; return the number of points.

        What the outbox held before is part of that truth; what it gets meanwhile stays in it.
        """
        covered = self._rows()
        of_dataset = select(chunks.c.seq).where(chunks.c.dataset == self._dataset)
        of_dataset = of_dataset.order_by(chunks.c.seq)
        count = after = 0
        while True:
            with self._database.read() as connection:
                following = of_dataset.where(chunks.c.seq > after).limit(BATCH)
                seqs = list(connection.scalars(following))
                points = load_points(connection, seqs, self._dim)
            if not seqs:
                break
            if points:
                index.upsert(points)
            count += len(points)
            after = seqs[-1]
        index.flush()
        self._mark_applied(covered)
        return count

    def _rows(self) -> list[int]:
        """Return the ids of the dataset's rows, in order."""
        query = select(outbox.c.id).where(outbox.c.dataset == self._dataset)
        with self._database.read() as connection:
            return list(connection.scalars(query.order_by(outbox.c.id)))

    def _mark_applied(self, rows: Iterable[int]) -> None:
        if not self._to_remove and len(self._applied) > _REMEMBERED:
            self._applied.clear()  # at worst a point comes back that no search lets through
        self._applied.update(rows)
        self._to_remove.update(rows)

    def _remove(self, *, wait: bool) -> None:
        """Remove what was applied: now or, while another process is writing, another time."""
        if not self._to_remove:
            return
        try:
            with self._database.write(wait=wait) as connection:
                connection.execute(delete(outbox).where(among(outbox.c.id, self._to_remove)))
        except StoreBusyError:
            if wait:
                _log.warning("%d applied outbox rows stay for now", len(self._to_remove))
            return
        self._to_remove.clear()


def read_changes(connection: Connection, rows: Sequence[int]) -> tuple[list[str], list[int]]:
    """Return what these outbox rows come to: points to delete first, then chunks to upsert."""
    query = select(outbox).where(among(outbox.c.id, rows)).order_by(outbox.c.id)
    deleted: dict[str, None] = {}
    upserted: dict[str, int] = {}
    for row in connection.execute(query):
        if row.action == "upsert":
            upserted[row.chunk_id] = row.seq  # no points are read for a chunk deleted since
        else:
            points = (point_id(row.chunk_id, window) for window in range(row.windows))
            deleted.update(dict.fromkeys(points))
    return list(deleted), list(upserted.values())
