"""Follow the store with points: the vectors of a dataset in an index outside of the store.

A point is an embedded window. Its id is a hash of row number, passage and vector, so equal ids are
equal points. A record with the points says which state of the dataset they have. It is removed
before the points change and written after them. If it names another state than the store, ids are
listed and compared; the engine that wrote it knows its row numbers and compares those.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from hashlib import sha1
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, select

from catalog.core.errors import (
    EmbeddingMismatchError,
    EngineBlockedError,
    EngineError,
    EngineLockedError,
    StoreBusyError,
    StoreError,
)
from catalog.store.checksums import documents_of_vectors, is_whole_vector
from catalog.store.database import EngineSetup, hold_lock
from catalog.store.derived import NO_DATASET, Seqs, live_seqs
from catalog.store.engine_types import Hit, Hits, Stamp, best_first, read_stamp
from catalog.store.filter_sql import among
from catalog.store.schema import chunk_windows, chunks, documents, embedded_windows, embeddings
from catalog.store.statistics import count_vectors
from catalog.store.vectors.base import POINTS_LOCK, query_vector

if TYPE_CHECKING:
    from catalog.store.vectors.base import Vector

FORMAT = 4  # of ids, payload and record
FEW = 2_000  # passages: an index is asked for no longer list of them
SEQ, CHUNK, DOC = "seq", "chunk", "doc_id"  # keys of the payload
_BATCH = 1_000  # passages read or removed at a time
_MOST_SPARE = 24  # additional points at first, for second windows
_MOST_WAIT = 600.0  # seconds until another process has written
_PATIENCE = 5.0  # seconds that a search waits for another thread to follow the store
_BEHIND = "another process brings the vectors up to date: newer passages are found by words only"
_MOST_TIES = 4_096  # points fetched to order equal scores by row number


class Point(NamedTuple):
    """An embedded window: its id, its vector of length 1 (or 0), its payload."""

    id: int
    vector: Vector
    payload: dict[str, Any]


class FoundPoint(NamedTuple):
    """A point that a search found: row number and id of its passage, and its cosine."""

    seq: int
    chunk_id: str
    score: float


class Held(NamedTuple):
    """The state that the points have: its passages, and those that lack a vector."""

    stamp: Stamp
    known: Seqs
    waiting: Seqs


class PointEngine(ABC):
    """Nearest points of one dataset; a subclass keeps them. Safe to share between threads.

    Nothing is opened before the first search or refresh.
    """

    name: str
    is_shared = True  # whether several processes may have the points open

    def __init__(self, setup: EngineSetup) -> None:
        self.database, self.dataset, self.folder = setup.database, setup.dataset, setup.folder
        self.dim = setup.dim
        self.made_by = {"format": FORMAT, "dataset": setup.dataset, "dim": setup.dim}
        self.made_by |= {"fingerprint": setup.fingerprint}
        self.damaged: frozenset[str] = frozenset()
        self.held: Held | None = None
        self._at: Points | None = None
        self._guard = RLock()

    @abstractmethod
    def open(self, *, anew: bool = False) -> str:
        """Open the index, or create it if it is missing, ``anew`` or made by something else.

        Return the state in its record, "" without one.
        """

    @abstractmethod
    def note(self, state: str) -> None:
        """Write the record, when all points are durable; with "" remove it."""

    @abstractmethod
    def count(self) -> int:
        """Return the number of points."""

    @abstractmethod
    def ids(self) -> dict[int, int]:
        """Return the row number of every point by its id."""

    @abstractmethod
    def add(self, points: Sequence[Point]) -> None:
        """Add points, or replace those of the same id."""

    @abstractmethod
    def remove(self, seqs: list[int]) -> None:
        """Remove the points of these passages."""

    @abstractmethod
    def find(self, vector: Vector, limit: int, seqs: list[int] | None) -> list[FoundPoint]:
        """Return the points of these passages nearest to a vector of length 1, best first."""

    @abstractmethod
    def drop(self) -> None:
        """Remove the index of a removed dataset."""

    def locks(self, seconds: float) -> list[AbstractContextManager[None]]:
        """Return the locks to hold for writing; taking one may wait as long, then it raises."""
        return [hold_lock(self.folder / POINTS_LOCK, seconds=seconds, busy="it is held")]

    @contextmanager
    def lock(self, *, wait: bool) -> Iterator[None]:
        """Keep other processes from changing the points; raise :class:`EngineLockedError`."""
        with ExitStack() as held:
            try:
                for one in self.locks(_MOST_WAIT if wait else 0.0):
                    held.enter_context(one)
            except StoreBusyError as error:
                message = f"another process is writing the vectors of {self.dataset!r}"
                raise EngineLockedError(message) from error
            except StoreError as error:
                raise EngineBlockedError(str(error)) from error
            yield

    def at(self, connection: Connection) -> Points:
        """Return the passages in the state that ``connection`` sees."""
        stamp, at = read_stamp(connection, self.dataset) or NO_DATASET, self._at
        if at is None or at.stamp != stamp:
            at = self._at = Points(self, stamp, live_seqs(connection, self.dataset))
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
        except EngineLockedError:
            if not self.is_shared:
                raise
            return _BEHIND
        finally:
            self._guard.release()
        return ""

    def refresh(self) -> None:
        """Bring the points up to date; compare all if some were lost."""
        with self._guard, self.lock(wait=True):
            self._bring_up()
            with self.database.read(latest=True) as connection:
                expected = count_vectors(connection, self.dataset)
            if self.held is not None and self.count() != expected:
                self.held = None
                self.note("")
                self._bring_up()

    def rebuild(self) -> int:
        """Fill a new index from the store and return its number of points."""
        with self._guard, self.lock(wait=True):
            self.held = None
            self.open(anew=True)
            self._bring_up()
            return self.count()

    def verify(self) -> int:
        """Return the number of points that are missing or superfluous."""
        with self._guard, self.lock(wait=True):
            self._bring_up()
            stored = self.ids()
            with self.database.read(latest=True) as connection:
                seqs = live_seqs(connection, self.dataset).tolist()
                wanted = {one.id for batch in self._load(connection, seqs) for one in batch}
            return len(wanted ^ stored.keys())

    def close(self) -> None:
        """Forget the state; the next search reads the record again."""
        self.held = None

    def _has(self, stamp: Stamp) -> bool:
        return self.held is not None and self.held.stamp.state == stamp.state

    def _bring_up(self) -> None:
        with self.database.read(latest=True) as connection:
            stamp = read_stamp(connection, self.dataset) or NO_DATASET
            known, waiting = live_seqs(connection, self.dataset), _waiting(connection, self.dataset)
        if stamp == NO_DATASET:
            self.held = None
            self.drop()
            return
        state, held = self.open(), self.held
        gone = new = np.empty(0, np.int64)
        if held is not None and held.stamp.state == state and held.stamp.is_related(stamp):
            gone = np.setdiff1d(held.known, known)
            new = np.setdiff1d(known, np.setdiff1d(held.known, held.waiting))
        elif state != stamp.state:
            gone, new = self._compare(known)
        if state != stamp.state:
            self.note("")
            for start in range(0, len(gone), _BATCH):
                self.remove(gone[start : start + _BATCH].tolist())
            for start in range(0, len(new), _BATCH):
                with self.database.read(latest=True) as connection:
                    (points,) = self._load(connection, new[start : start + _BATCH].tolist())
                if points:
                    self.add(points)
            self.note(stamp.state)
        self.held = Held(stamp, known, waiting)

    def _compare(self, known: Seqs) -> tuple[Seqs, Seqs]:
        """Return the passages with points to remove, and those with points to add."""
        stored, wanted = self.ids(), dict[int, int]()
        with self.database.read(latest=True) as connection:
            for start in range(0, len(known), _BATCH):
                batch = known[start : start + _BATCH].tolist()
                rows = connection.execute(_IDS.where(among(chunks.c.seq, batch)))
                wanted |= {_id(*row): row.seq for row in rows}
        gone = {seq for number, seq in stored.items() if number not in wanted}
        new = {seq for number, seq in wanted.items() if number not in stored or seq in gone}
        return np.array(sorted(gone), np.int64), np.array(sorted(new), np.int64)

    def _load(self, connection: Connection, seqs: Sequence[int]) -> Iterator[list[Point]]:
        """Yield the points of these passages in batches; note documents with damaged vectors."""
        for start in range(0, len(seqs), _BATCH):
            query = _POINTS.where(among(chunks.c.seq, seqs[start : start + _BATCH]))
            points, damaged = [], []
            for row in connection.execute(query.order_by(chunks.c.seq, chunk_windows.c.window)):
                if not is_whole_vector(row.embed_key, row.vector, row.checksum):
                    damaged.append(row.embed_key)
                    continue
                vector = np.frombuffer(row.vector, "<f4")
                if vector.shape != (self.dim,):
                    raise EmbeddingMismatchError(
                        f"the store has vectors of {len(vector)} dimensions, but the index expects "
                        f"{self.dim}: rebuild the dataset with one embedding model"
                    )
                number = _id(row.seq, row.chunk_id, row.window, row.embed_key)
                points.append(Point(number, query_vector(vector, self.dim), _payload(row)))
            if damaged:
                self.damaged |= {*documents_of_vectors(connection, damaged)}
            yield points


class Points:
    """The passages of a dataset in one state, and the points to rank them by."""

    def __init__(self, engine: PointEngine, stamp: Stamp, known: Seqs) -> None:
        self.stamp, self._engine, self._known = stamp, engine, known

    @property
    def damaged(self) -> frozenset[str]:
        """Return the ids of documents with a damaged vector."""
        return self._engine.damaged

    def rank(self, vector: Vector, k: int, allowed: Seqs | None = None) -> Hits:
        """Return the nearest passages as ``RankedVectors`` says."""
        engine, seqs = self._engine, self._known if allowed is None else allowed
        if k <= 0 or len(seqs) == 0:
            return Hits()
        query = query_vector(vector, engine.dim)
        few = seqs.tolist() if allowed is not None and len(seqs) <= FEW else None
        while True:
            if (note := engine.follow(self.stamp)) is None:
                return Hits()
            held = engine.held
            try:
                hits = self._nearest(query, k, seqs, few)
            except EngineError:
                if engine.held is held:
                    engine.held = None  # so that the next search looks at the record
                    raise
            else:
                if engine.held is held:  # else the index was rebuilt or closed meanwhile
                    return Hits(hits, fallback=note)

    def _nearest(self, query: Vector, k: int, seqs: Seqs, few: list[int] | None) -> list[Hit]:
        """Return the best passages among ``seqs``; fetch more points until there are enough."""
        limit = k + min(k, _MOST_SPARE) + 8
        if few is None:
            limit = limit * max(len(self._known), len(seqs)) // len(seqs)
        while True:
            found = self._engine.find(query, limit, few)
            hits = best_first(self._check(found, seqs).items(), k)
            if len(found) < limit:
                return hits
            if len(hits) == k and (found[-1].score < hits[-1].score - 1e-6 or limit >= _MOST_TIES):
                return hits
            limit *= 4

    def _check(self, found: Iterable[FoundPoint], seqs: Seqs) -> dict[int, float]:
        """Return the best score of each passage that may answer and is still the same."""
        best: dict[tuple[int, str], float] = {}
        for seq, chunk_id, score in found:  # the first window is the best
            best.setdefault((seq, chunk_id), round(min(1.0, max(-1.0, score)), 6) + 0.0)
        numbers = np.array([seq for seq, _ in best], np.int64)
        here = numbers[np.isin(numbers, seqs)].tolist()
        query = select(chunks.c.seq, chunks.c.chunk_id).where(among(chunks.c.seq, here))
        with self._engine.database.read() as connection:
            live = {tuple(row) for row in connection.execute(query)}
        return {seq: score for (seq, chunk_id), score in best.items() if (seq, chunk_id) in live}


_IDS = select(
    chunks.c.seq, chunks.c.chunk_id, chunk_windows.c.window, chunk_windows.c.embed_key
).select_from(embedded_windows)
_POINTS = select(
    *_IDS.selected_columns,
    documents.c.source_doc_id,
    documents.c.metadata,
    chunks.c.title,
    chunks.c.headings,
    embeddings.c.vector,
    embeddings.c.checksum,
).select_from(embedded_windows.join(documents, documents.c.id == chunks.c.document_id))


def _id(seq: int, chunk_id: str, window: int, embed_key: str) -> int:
    digest = sha1(f"{seq} {chunk_id} {window} {embed_key}".encode(), usedforsecurity=False)
    return int.from_bytes(digest.digest()[:8], "big") >> 1  # 63 bits: SQLite has signed numbers


def _payload(row: Any) -> dict[str, Any]:
    source, headings = json.loads(row.metadata).get("source_url"), json.loads(row.headings)
    shown = [one for one in headings if isinstance(one, str)]
    payload = {SEQ: row.seq, CHUNK: row.chunk_id, DOC: row.source_doc_id, "title": row.title}
    payload |= {"section": " > ".join(shown)} if shown else {}
    return payload | ({"source_url": source} if isinstance(source, str) else {})


def _waiting(connection: Connection, dataset: str) -> npt.NDArray[np.int64]:
    """Return the passages that lack the vector of some window."""
    joined = chunks.join(chunk_windows, chunk_windows.c.seq == chunks.c.seq).outerjoin(
        embeddings, embeddings.c.embed_key == chunk_windows.c.embed_key
    )
    lacking = select(chunks.c.seq).select_from(joined).where(embeddings.c.embed_key.is_(None))
    found = connection.scalars(lacking.where(chunks.c.dataset == dataset).distinct())
    return np.array(sorted(found), np.int64)
