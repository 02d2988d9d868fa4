"""Bring an index up to date with the store: from the outbox, or from scratch.

Every step may be repeated. Points are applied and flushed before their outbox rows are removed, so
if the process is killed in between, the work is simply done again. Only the removal of rows needs
the store's write lock, and a search does not wait for it.

Removed rows cannot show what an index lacks. So the store gets a new token with every removal.
Before that, the index saves both tokens: the present one and the next. If the store's token is
neither, an older copy of the store was restored or another index took the rows; then the index is
filled from scratch. See docs/decisions/0017.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, select

from catalog.core.errors import StoreBusyError, StoreError
from catalog.core.ids import point_id, sha1_hex
from catalog.store.chunks import load_chunks
from catalog.store.database import INDEX_TOKENS, Database, read_meta, set_meta
from catalog.store.filter_sql import among
from catalog.store.schema import chunks, embedded_windows, outbox
from catalog.store.vectors.points import (
    TOKENS,
    IndexPoint,
    ListedPointIndex,
    PointIndex,
    add_texts,
    load_points,
)

BATCH = 1000  # chunks, or outbox rows, handled at a time
_REMEMBERED = 100_000  # applied rows
_MOST_WINDOWS = 10_000  # of a chunk; a damaged row may have a larger number

_log = logging.getLogger(__name__)


_PENDING = select(outbox.c.id).where(outbox.c.dataset == bindparam("dataset")).limit(1)


def is_pending(connection: Connection, dataset: str) -> bool:
    """Return whether the outbox has a row for the dataset."""
    return connection.scalar(_PENDING, {"dataset": dataset}) is not None


class StaleIndexError(Exception):
    """The store is not the one from which the index was filled: fill it from scratch."""


class Outbox:
    """The changes that an open index has not applied yet; its owner lets in one thread at a time.

    Applied rows are remembered, because they stay in the table while another process writes, and in
    the snapshots of other threads. ``keep`` saves as JSON with the index what was applied to it;
    :meth:`adopt` gets this back when the index is opened again. With ``texts``, points have the
    passages' texts for other software.
    """

    def __init__(
        self,
        database: Database,
        dataset: str,
        dim: int,
        keep: Callable[[dict[str, Any]], None] = lambda _: None,
        *,
        texts: bool = False,
    ) -> None:
        self._database = database
        self._dataset = dataset
        self._dim = dim
        self._keep = keep
        self._has_texts = texts
        self.damaged: set[str] = set()  # documents with a skipped vector
        self._applied: set[int] = set()
        self._to_remove: set[int] = set()
        self._tokens: tuple[str, ...] = (self._token(),)
        self._replacements = database.replacements

    def adopt(self, kept: object) -> bool:
        """Continue with an index that was saved with ``kept``; return whether it fits the store."""
        self._start()
        with self._database.read(latest=True) as connection:
            token = _read_token(connection, self._dataset)
            if token == "" or not isinstance(kept, dict) or token not in kept.get("tokens", ()):
                return False
            is_removed = token == kept["tokens"][-1]
            if not is_removed and _digest(connection, self._dataset, kept["last"]) != kept["rows"]:
                return False  # rows that were applied must still exist
        self._tokens = (token,)
        return True

    def is_empty(self) -> bool:
        """Return whether there are no rows to apply, and no applied rows to remove."""
        with self._database.read() as connection:
            return self._knows(connection) and not is_pending(connection, self._dataset)

    def is_of_truth(self) -> bool:
        """Return whether the outbox can bring the index up to date."""
        with self._database.read(latest=True) as connection:
            return self._knows(connection)

    def apply(self, index: PointIndex, *, wait: bool) -> int:
        """Apply the outbox in order and empty it; return the number of points changed.

        Without ``wait``, rows stay for the next call while another process is writing. Raises
        :class:`StaleIndexError` if the store was replaced, or another index emptied the outbox.
        """
        changed = 0
        new = [row for row in self._rows() if row not in self._applied]
        for start in range(0, len(new), BATCH):
            rows = new[start : start + BATCH]
            self._announce(rows[-1])
            with self._database.read() as connection:
                deleted, upserted = read_changes(connection, rows)
                points = self._load(connection, upserted)
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
        """Add every point of the store to an empty index; return the number of points.

        Rows that were in the outbox before are covered by this; new ones stay in it.
        """
        return self._fill(index, lambda points: points)

    def refill(self, index: ListedPointIndex) -> int:
        """Make an index in any state equal to the store; return the number of points.

        Only missing and different points are written, and superfluous ones removed. So an
        interrupted fill can be continued, and an index that was set aside can be used again. All
        its ids are in memory meanwhile.
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
        self._remove(wait=False)  # gives the store its token even if the outbox is empty
        return count

    def compare(self, index: PointIndex) -> int:
        """Count the points of an up-to-date index that differ from the store."""
        count = wrong = 0
        for points in self._points():
            wrong += len(_differing(index, points))
            count += len(points)
        return max(wrong, abs(index.count - count))

    def count_points(self) -> int:
        """Return the number of points in the store, including damaged vectors."""
        query = select(func.count()).select_from(embedded_windows)
        with self._database.read() as connection:
            of_it = query.where(chunks.c.dataset == self._dataset)
            return connection.scalar(of_it) or 0

    def _points(self) -> Iterator[list[IndexPoint]]:
        """Yield every point, in batches of :data:`BATCH` chunks."""
        of_dataset = select(chunks.c.seq).where(chunks.c.dataset == self._dataset)
        of_dataset = of_dataset.order_by(chunks.c.seq)
        after = 0
        while True:
            with self._database.read() as connection:
                seqs = list(connection.scalars(of_dataset.where(chunks.c.seq > after).limit(BATCH)))
                points = self._load(connection, seqs)
            if not seqs:
                return
            yield points
            after = seqs[-1]

    def _load(self, connection: Connection, seqs: Sequence[int]) -> list[IndexPoint]:
        points = load_points(connection, seqs, self._dim, self.damaged)
        if self._has_texts:
            loaded = load_chunks(connection, self._dataset, seqs, damaged=[]).values()
            add_texts(points, {chunk.chunk_id: chunk for chunk in loaded})
        return points

    def _rows(self) -> list[int]:
        """Return the ids of the dataset's outbox rows, in order."""
        query = select(outbox.c.id).where(outbox.c.dataset == self._dataset)
        with self._database.read() as connection:
            return list(connection.scalars(query.order_by(outbox.c.id)))

    def _mark_applied(self, rows: Iterable[int]) -> None:
        if not self._to_remove and len(self._applied) > _REMEMBERED:
            self._applied.clear()  # at worst a stale point returns, which searches filter out
        self._applied.update(rows)
        self._to_remove.update(rows)

    def _remove(self, *, wait: bool) -> None:
        """Remove applied rows; while another process is writing, leave them for later."""
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
            return  # a store that cannot be written to needs no token
        self._to_remove.clear()
        self._tokens = self._tokens[-1:]

    def _start(self) -> None:
        self._replacements = self._database.replacements
        self.damaged.clear()
        self._applied.clear()
        self._to_remove.clear()

    def _announce(self, last: int) -> None:
        """Save with the index that rows up to ``last`` are applied, before they are removed."""
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
    """Return the points that the index lacks or has in another form."""
    import numpy as np

    stored = index.retrieve([point.id for point in points]) if points else {}

    def is_same(point: IndexPoint) -> bool:
        vector, payload = stored.get(point.id, ((), None))
        has_shape = _is_same(payload, point.payload) and len(vector) == len(point.vector)
        return has_shape and np.allclose(vector, point.vector, atol=1e-5)

    return [point for point in points if not is_same(point)]


def _is_same(stored: dict[str, Any] | None, payload: dict[str, Any]) -> bool:
    """Return whether payloads are equal; tokens may be in any order."""
    if stored is None or stored.keys() != payload.keys():
        return False
    return all(
        sorted(stored[name]) == sorted(value) if name == TOKENS else stored[name] == value
        for name, value in payload.items()
    )


def _key(dataset: str) -> str:
    return f"{INDEX_TOKENS}{dataset}"


def _read_token(connection: Connection, dataset: str) -> str:
    """Return the token of the last removal of outbox rows; "" before the first one."""
    return read_meta(connection, _key(dataset)) or ""


def _digest(connection: Connection, dataset: str, last: int) -> str:
    """Hash the dataset's outbox rows up to that id.

    Ids are not enough, because a restored store may use them again.
    """
    query = select(outbox).where(outbox.c.dataset == dataset, outbox.c.id <= last)
    rows = connection.execute(query.order_by(outbox.c.id))
    return sha1_hex("\n".join(repr(tuple(row)) for row in rows))


def read_changes(connection: Connection, rows: Sequence[int]) -> tuple[list[str], list[int]]:
    """Return the net effect of these outbox rows: points to delete first, then chunks to upsert."""
    query = select(outbox).where(among(outbox.c.id, rows)).order_by(outbox.c.id)
    deleted: dict[str, None] = {}
    upserted: dict[str, int] = {}
    for row in connection.execute(query):
        if row.action == "upsert":
            upserted[row.chunk_id] = row.seq  # a chunk deleted later has no points to read
        else:
            windows = range(min(row.windows, _MOST_WINDOWS))
            points = (point_id(row.chunk_id, window) for window in windows)
            deleted.update(dict.fromkeys(points))
    return list(deleted), list(upserted.values())
