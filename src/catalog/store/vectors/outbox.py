"""Bringing an index up to the truth: by the outbox, or from nothing.

Every step may be repeated: points are applied and flushed before their outbox rows go, so a
process killed in between leaves work that is simply done again. Removing the rows is the only
step that needs the write lock of the store, and a search does not wait for that.

Rows that are gone can no longer tell an index what it lacks. So the truth gets a new token with
every removal, and the index keeps, before that, the tokens between which it lies: one that does
not know the truth's token is of another history (an older copy of the store was put back), or
another index took the rows; it is filled anew. See docs/decisions/0017.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, select

from catalog.core.errors import StoreBusyError, StoreError
from catalog.core.ids import point_id, sha1_hex
from catalog.store.database import INDEX_TOKENS, Database, read_meta, set_meta
from catalog.store.filter_sql import among
from catalog.store.schema import chunks, embedded_windows, outbox
from catalog.store.vectors.points import (
    TOKENS,
    IndexPoint,
    ListedPointIndex,
    PointIndex,
    load_points,
)

BATCH = 1000  # chunks, or outbox rows, handled at a time
_REMEMBERED = 100_000  # applied rows
_MOST_WINDOWS = 10_000  # of a chunk, whatever a damaged row says

_log = logging.getLogger(__name__)


_PENDING = select(outbox.c.id).where(outbox.c.dataset == bindparam("dataset")).limit(1)


def is_pending(connection: Connection, dataset: str) -> bool:
    """Return whether the outbox has a row for the dataset."""
    return connection.scalar(_PENDING, {"dataset": dataset}) is not None


class StaleIndexError(Exception):
    """The truth is no longer the one that the index was filled from: fill it anew."""


class Outbox:
    """What one open index has still to apply; its owner sees to it that one thread is at it.

    Rows are remembered once applied, since they stay where they are while another process is
    writing, and for as long in the snapshots of other threads. ``keep`` stores with the index
    what was applied to it, as JSON, to be handed to :meth:`adopt` when it is opened again.
    """

    def __init__(
        self,
        database: Database,
        dataset: str,
        dim: int,
        keep: Callable[[dict[str, Any]], None] = lambda _: None,
    ) -> None:
        self._database = database
        self._dataset = dataset
        self._dim = dim
        self._keep = keep
        self.damaged: set[str] = set()  # documents of which a point was left out
        self._applied: set[int] = set()
        self._to_remove: set[int] = set()
        self._tokens: tuple[str, ...] = (self._token(),)
        self._replacements = database.replacements

    def adopt(self, kept: object) -> bool:
        """Tell whether the index that was kept with this is of the truth there is, and go on so."""
        self._start()
        with self._database.read(latest=True) as connection:
            token = _read_token(connection, self._dataset)
            if token == "" or not isinstance(kept, dict) or token not in kept.get("tokens", ()):
                return False
            is_removed = token == kept["tokens"][-1]
            if not is_removed and _digest(connection, self._dataset, kept["last"]) != kept["rows"]:
                return False  # what was applied must be here still
        self._tokens = (token,)
        return True

    def is_empty(self) -> bool:
        """Return whether there is nothing to apply, and nothing applied to remove."""
        with self._database.read() as connection:
            return self._knows(connection) and not is_pending(connection, self._dataset)

    def is_of_truth(self) -> bool:
        """Return whether applying rows brings the index up to date."""
        with self._database.read(latest=True) as connection:
            return self._knows(connection)

    def apply(self, index: PointIndex, *, wait: bool) -> int:
        """Do what the outbox says, in order, and empty it; return the number of points changed.

        Unless told to ``wait``, rows stay for the next time while another process is writing.
        Raises :class:`StaleIndexError` when the truth was replaced, or emptied by another index.
        """
        changed = 0
        new = [row for row in self._rows() if row not in self._applied]
        for start in range(0, len(new), BATCH):
            rows = new[start : start + BATCH]
            self._announce(rows[-1])
            with self._database.read() as connection:
                deleted, upserted = read_changes(connection, rows)
                points = load_points(connection, upserted, self._dim, self.damaged)
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
        return self._fill(index, lambda points: points)

    def refill(self, index: ListedPointIndex) -> int:
        """Bring an index of whatever state to that of the truth; return the number of points.

        Only points that are missing or differ are written, and those too many removed: so a fill
        that was killed goes on, and an index that was kept aside comes back. All its ids are held
        in memory meanwhile.
        """
        strangers = {point for page in index.pages() for point in page}

        def lacking(points: list[IndexPoint]) -> list[IndexPoint]:
            strangers.difference_update(point.id for point in points)
            return _differing(index, points)

        return self._fill(index, lacking, lambda: index.delete(sorted(strangers)))

    def _fill(
        self,
        index: PointIndex,
        choose: Callable[[list[IndexPoint]], list[IndexPoint]],
        finish: Callable[[], None] = lambda: None,
    ) -> int:
        self._start()
        self._tokens = (self._token(),)
        covered = self._rows()
        count = 0
        for points in self._points():
            if written := choose(points):
                index.upsert(written)
            count += len(points)
        finish()
        index.flush()
        self._announce(max(covered, default=0))
        self._mark_applied(covered)
        self._remove(wait=False)  # with an empty outbox nothing else gives the truth its token
        return count

    def compare(self, index: PointIndex) -> int:
        """Return how many points of an index with nothing left to apply are not as in the truth."""
        count = wrong = 0
        for points in self._points():
            wrong += len(_differing(index, points))
            count += len(points)
        return max(wrong, abs(index.count - count))

    def count_points(self) -> int:
        """Return how many points the truth has, with those of damaged vectors."""
        query = select(func.count()).select_from(embedded_windows)
        with self._database.read() as connection:
            of_it = query.where(chunks.c.dataset == self._dataset)
            return connection.scalar(of_it) or 0

    def _points(self) -> Iterator[list[IndexPoint]]:
        """Yield every point, those of :data:`BATCH` chunks at a time."""
        of_dataset = select(chunks.c.seq).where(chunks.c.dataset == self._dataset)
        of_dataset = of_dataset.order_by(chunks.c.seq)
        after = 0
        while True:
            with self._database.read() as connection:
                seqs = list(connection.scalars(of_dataset.where(chunks.c.seq > after).limit(BATCH)))
                points = load_points(connection, seqs, self._dim, self.damaged)
            if not seqs:
                return
            yield points
            after = seqs[-1]

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
        """Remove applied rows: now or, while another process is writing, another time."""
        needs_first_token = self._tokens[0] == "" and len(self._tokens) > 1
        if not (self._to_remove or needs_first_token):
            return
        try:
            with self._database.write(wait=wait) as connection:
                if _read_token(connection, self._dataset) != self._tokens[0]:
                    raise StaleIndexError
                connection.execute(delete(outbox).where(among(outbox.c.id, self._to_remove)))
                set_meta(connection, _key(self._dataset), self._tokens[-1])
        except StoreBusyError:
            if wait:
                _log.warning("%d applied outbox rows stay for now", len(self._to_remove))
            return
        except StoreError:
            if self._to_remove:
                raise
            return  # a store that cannot be written to gets no token, and needs none
        self._to_remove.clear()
        self._tokens = self._tokens[-1:]

    def _start(self) -> None:
        self._replacements = self._database.replacements
        self.damaged.clear()
        self._applied.clear()
        self._to_remove.clear()

    def _announce(self, last: int) -> None:
        """Keep with the index that rows up to ``last`` are applied, before they are removed."""
        with self._database.read(latest=True) as connection:
            if not self._knows(connection):
                raise StaleIndexError
            rows = _digest(connection, self._dataset, last)
            token = _read_token(connection, self._dataset)
        self._tokens = (token, uuid.uuid4().hex)
        self._keep({"tokens": list(self._tokens), "last": last, "rows": rows})

    def _knows(self, connection: Connection) -> bool:
        return (
            self._database.replacements == self._replacements
            and _read_token(connection, self._dataset) in self._tokens
        )

    def _token(self) -> str:
        with self._database.read(latest=True) as connection:
            return _read_token(connection, self._dataset)


def _differing(index: PointIndex, points: Sequence[IndexPoint]) -> list[IndexPoint]:
    """Return those of the points that the index lacks or has otherwise."""
    import numpy as np

    stored = index.retrieve([point.id for point in points]) if points else {}

    def is_same(point: IndexPoint) -> bool:
        vector, payload = stored.get(point.id, ((), None))
        has_shape = _is_same(payload, point.payload) and len(vector) == len(point.vector)
        return has_shape and np.allclose(vector, point.vector, atol=1e-5)

    return [point for point in points if not is_same(point)]


def _is_same(stored: dict[str, Any] | None, payload: dict[str, Any]) -> bool:
    """Return whether payloads are equal: tokens come in the order of the database."""
    if stored is None or stored.keys() != payload.keys():
        return False
    return all(
        sorted(stored[name]) == sorted(value) if name == TOKENS else stored[name] == value
        for name, value in payload.items()
    )


def _key(dataset: str) -> str:
    return f"{INDEX_TOKENS}{dataset}"


def _read_token(connection: Connection, dataset: str) -> str:
    """Return the token of the last removal of outbox rows; empty before the first."""
    return read_meta(connection, _key(dataset)) or ""


def _digest(connection: Connection, dataset: str, last: int) -> str:
    """Hash the dataset's outbox rows up to that id: ids alone come again in another history."""
    query = select(outbox).where(outbox.c.dataset == dataset, outbox.c.id <= last)
    rows = connection.execute(query.order_by(outbox.c.id))
    return sha1_hex("\n".join(repr(tuple(row)) for row in rows))


def read_changes(connection: Connection, rows: Sequence[int]) -> tuple[list[str], list[int]]:
    """Return what these outbox rows come to: points to delete first, then chunks to upsert."""
    query = select(outbox).where(among(outbox.c.id, rows)).order_by(outbox.c.id)
    deleted: dict[str, None] = {}
    upserted: dict[str, int] = {}
    for row in connection.execute(query):
        if row.action == "upsert":
            upserted[row.chunk_id] = row.seq  # no points are read for a chunk deleted since
        else:
            windows = range(min(row.windows, _MOST_WINDOWS))
            points = (point_id(row.chunk_id, window) for window in windows)
            deleted.update(dict.fromkeys(points))
    return list(deleted), list(upserted.values())
