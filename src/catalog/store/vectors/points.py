"""Follow the store with points: the vectors of a dataset in an index outside of this process.

A point is an embedded window; its id is made of the passage's row number and the window's. A record
with the points says which state of the dataset they have, or are being given. If that state is
related to the present one, ids mean the same windows: missing points are added, others removed.
Otherwise the index is filled anew. So nothing is lost by a crash, or if a store is restored.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from threading import RLock
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import BigInteger, Connection, cast

from catalog.core import errors
from catalog.core.documents import Chunk
from catalog.store.chunks import load_chunks
from catalog.store.database import POINTS_LOCK, EngineSetup, hold_lock
from catalog.store.derived import NO_DATASET, Seqs, live_seqs
from catalog.store.embedding_cache import documents_of_vectors
from catalog.store.engines import Vector, unit_vector
from catalog.store.restriction import Hit, Hits, Stamp, best_first, read_stamp
from catalog.store.schema import chunk_windows, chunks, embedded_windows
from catalog.store.vectors.flat import read_windows

FORMAT = 5  # of ids, payload and record
FEW = 2_000  # points: an index is asked for no longer list of them
CHUNK, DOC = "chunk", "doc_id"  # keys of the payload
_WINDOWS = 2**16  # more than a passage has
_ID = cast(chunks.c.seq, BigInteger()) * _WINDOWS + chunk_windows.c.window
_BATCH = 1_000  # points added or removed at a time
_MOST_WAIT = 600.0  # seconds until another process has written
_PATIENCE = 5.0  # seconds that a search waits for another thread to follow the store
_BEHIND = "another process brings the vectors up to date: newer passages are found by words only"
_ATTEMPTS = 3  # of a search whose index another thread closes
_MOST_SPARE = 24  # additional points at first, for second windows
_MOST_TIES = 4_096  # points fetched to order equal scores by row number


class Point(NamedTuple):
    """An embedded window: its id, its vector of length 1 (or 0), its payload."""

    id: int
    vector: Vector
    payload: dict[str, Any]


class PointEngine(ABC):
    """Nearest points of one dataset; a subclass keeps them. Safe to share between threads.

    Nothing is opened before the first search or refresh. The record is a JSON object.
    """

    name: str
    is_shared = True  # whether several processes may have the points open

    def __init__(self, setup: EngineSetup) -> None:
        self.database, self.dataset, self.folder = setup.database, setup.dataset, setup.folder
        self.dim, self._rag = setup.dim, setup.rag
        made_by = {"format": FORMAT, "dataset": setup.dataset, "dim": setup.dim}
        self._made_by = made_by | {"fingerprint": setup.fingerprint}
        self.damaged: frozenset[str] = frozenset()
        self.held: Stamp | None = None  # the state of the points, if it is known
        self._at: Points | None = None
        self._guard = RLock()

    @abstractmethod
    def _open(self, *, anew: bool) -> dict[str, Any]:
        """Open the index and return its record, {} if it cannot be used; ``anew``: to replace it"""

    @abstractmethod
    def _create(self, record: dict[str, Any]) -> None:
        """Replace the index by an empty one with this record."""

    @abstractmethod
    def _write(self, record: dict[str, Any]) -> None:
        """Replace the record, when all points are durable."""

    @abstractmethod
    def _ids(self) -> list[int]: ...

    @abstractmethod
    def _add(self, points: Sequence[Point]) -> None:
        """Add points, or replace those of the same id."""

    @abstractmethod
    def _remove(self, ids: list[int]) -> None: ...

    @abstractmethod
    def _find(self, vector: Vector, limit: int, ids: list[int] | None) -> list[tuple[int, float]]:
        """Return ids and cosines of the nearest of these points (None: of all), best first."""

    def _drop(self) -> None:
        """Remove what is not in the folder, when the dataset has been removed."""
        self.close()

    @contextmanager
    def lock(self, *, wait: bool) -> Iterator[None]:
        """Keep this machine's processes and those that share a store in Postgres from writing.

        Raises :class:`EngineLockedError`.
        """
        busy = f"another process is writing the vectors of {self.dataset!r}"
        seconds = _MOST_WAIT if wait else 0.0
        how: dict[str, Any] = {"seconds": seconds, "busy": busy, "on_wait": lambda: None}
        with ExitStack() as held:
            try:
                held.enter_context(hold_lock(self.folder / POINTS_LOCK, **how))
                name = f"points of {self.name} {self.dataset}"
                held.enter_context(self.database.hold_dataset(name, **how))
            except errors.StoreBusyError as error:
                raise errors.EngineLockedError(busy) from error
            except errors.StoreError as error:
                raise errors.EngineBlockedError(str(error)) from error
            yield

    def at(self, connection: Connection) -> Points:
        stamp, at = read_stamp(connection, self.dataset) or NO_DATASET, self._at
        if at is None or at.stamp != stamp:
            ids = live_seqs(connection, self.dataset, _ID, embedded_windows)
            at = self._at = Points(self, stamp, ids)
        return at

    def follow(self, stamp: Stamp) -> str | None:
        """Bring the points up to date; return why that was not possible, "" if it was.

        ``None`` if the dataset has been removed, which needs no index.
        """
        if self._has(stamp):
            return ""
        with self.database.read(latest=True) as connection:
            if read_stamp(connection, self.dataset) is None:
                return None
        if not self._guard.acquire(timeout=_PATIENCE):
            return _BEHIND
        try:
            if not self._has(stamp):
                with self.lock(wait=False):
                    self._bring_up()
        except errors.EngineLockedError:
            if not self.is_shared:
                raise
            return _BEHIND
        finally:
            self._guard.release()
        return ""

    def refresh(self) -> None:
        """Bring the points up to date, also those that the index lost."""
        with self._guard, self.lock(wait=True):
            self._bring_up(is_compared=True)

    def rebuild(self) -> int:
        with self._guard, self.lock(wait=True):
            self._bring_up(anew=True)
            return len(self._ids())

    def verify(self) -> int:
        with self._guard, self.lock(wait=True):
            self._bring_up()
            with self.database.read(latest=True) as connection:
                gone, missing = self._compare(self.at(connection).ids)
                loaded = (self._load(connection, ids) for ids in _batches(missing))
                return len(gone) + sum(map(len, loaded))

    def close(self) -> None:
        """Forget the state; the next search reads the record again."""
        self.held = None

    def _has(self, stamp: Stamp) -> bool:
        return self.held is not None and self.held.state == stamp.state

    def _bring_up(self, *, anew: bool = False, is_compared: bool = False) -> None:
        """Give the points the present state of the dataset."""
        with self.database.read(latest=True) as connection:
            at = self.at(connection)
        if at.stamp == NO_DATASET:
            self.held = None
            self._drop()
            return
        made_by = self._made_by | {"store": self.database.meta("store_id")}
        now, record = made_by | {"state": at.stamp.state}, self._open(anew=anew)
        is_current = not anew and record == now | {"is_whole": True}
        if not is_current or (is_compared and any(map(len, self._compare(at.ids)))):
            state = Stamp(0.0, 0, 0.0, record.get("state", ""))
            if anew or not (record.items() >= made_by.items() and state.is_related(at.stamp)):
                self.held = None  # so that a search waits
                self._create(made_by)
            self._write(now | {"is_whole": False})
            gone, missing = self._compare(at.ids)
            for ids in _batches(gone):
                self._remove(ids)
            for ids in _batches(missing):
                with self.database.read(latest=True) as connection:
                    points = self._load(connection, ids)
                if points:
                    self._add(points)
            self._write(now | {"is_whole": True})
        self.held = at.stamp

    def _compare(self, wanted: Seqs) -> tuple[Seqs, Seqs]:
        """Return the ids of superfluous points and of missing ones."""
        stored = np.array(self._ids(), np.int64)
        return np.setdiff1d(stored, wanted), np.setdiff1d(wanted, stored)

    def _load(self, connection: Connection, ids: list[int]) -> list[Point]:
        """Return these points from the store; note documents with damaged vectors."""
        windows = read_windows(connection, {number // _WINDOWS for number in ids}, self.dim)
        self.damaged |= {*documents_of_vectors(connection, windows.damaged)}
        passages = load_chunks(connection, self.dataset, windows.seqs.tolist(), damaged=[])
        numbers = (windows.seqs * _WINDOWS + windows.places).tolist()
        read = dict(zip(numbers, windows.rows, strict=True))
        owners = {number: passages.get(number // _WINDOWS) for number in ids if number in read}
        return [Point(one, read[one], _payload(of)) for one, of in owners.items() if of]


class Points:
    """The points that a dataset has in one state, to rank its passages by."""

    def __init__(self, engine: PointEngine, stamp: Stamp, ids: Seqs) -> None:
        self.stamp, self.ids, self._engine, self.damaged = stamp, ids, engine, engine.damaged

    def rank(self, vector: Vector, k: int, allowed: Seqs | None = None) -> Hits:
        """Return the nearest passages as ``RankedVectors`` says."""
        engine, ids = self._engine, self.ids
        if allowed is not None:
            ids = ids[np.isin(ids // _WINDOWS, allowed)]
        if k <= 0 or len(ids) == 0:
            return Hits()
        query, attempts = unit_vector(vector, engine.dim), 0
        while True:
            attempts += 1
            if (note := engine.follow(self.stamp)) is None:
                return Hits()
            held, self.damaged = engine.held, engine.damaged
            try:
                hits = self._nearest(query, k, ids)
            except errors.EngineError:
                if note or attempts == _ATTEMPTS or (held is not None and engine.held is held):
                    engine.held = None  # so that the next search looks at the record
                    raise
            else:
                if engine.held is held:  # else the index was rebuilt or closed meanwhile
                    return Hits(hits, fallback=note)

    def _nearest(self, query: Vector, k: int, ids: Seqs) -> list[Hit]:
        """Return the best passages of these points; fetch more points until there are enough."""
        few = ids.tolist() if len(ids) < len(self.ids) and len(ids) <= FEW else None
        limit = k + min(k, _MOST_SPARE) + 8
        if few is None:
            limit = limit * len(self.ids) // len(ids)
        while True:
            found = self._engine._find(query, limit, few)
            is_here = np.isin([number for number, _ in found], ids)
            best: dict[int, float] = {}
            for (number, score), here in zip(found, is_here, strict=True):
                if here:  # the first window is the best
                    rounded = round(min(1.0, max(-1.0, score)), 6) + 0.0
                    best.setdefault(number // _WINDOWS, rounded)
            hits = best_first(best.items(), k)
            is_full = len(hits) == k
            is_cut = is_full and (found[-1][1] < hits[-1].score - 1e-6 or limit >= _MOST_TIES)
            if len(found) < limit or is_cut:
                return hits
            limit *= 4


def _batches(ids: Seqs) -> Iterator[list[int]]:
    return (ids[start : start + _BATCH].tolist() for start in range(0, len(ids), _BATCH))


def _payload(passage: Chunk) -> dict[str, Any]:
    """Return what filters and LlamaIndex need of a passage; no text."""
    told = {CHUNK: passage.chunk_id, DOC: passage.source_doc_id, "title": passage.title}
    source, section = passage.metadata.get("source_url"), " > ".join(passage.heading_path)
    told |= {"section": section} if section else {}
    return told | ({"source_url": source} if isinstance(source, str) else {})
