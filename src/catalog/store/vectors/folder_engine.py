"""Base of engines with their points in a folder: one per dataset, open in one process at a time."""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
import weakref
from abc import ABC, abstractmethod
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from filelock import FileLock, Timeout

from catalog.core.errors import EngineBlockedError, EngineError, EngineLockedError
from catalog.core.files import make_folder
from catalog.store.database import Database
from catalog.store.engine_types import Hit, Restriction, read_stamp
from catalog.store.statistics import count_vectors
from catalog.store.vectors.base import POINTS_LOCK
from catalog.store.vectors.outbox import Outbox, StaleIndexError, is_pending
from catalog.store.vectors.point_search import (
    PointCondition,
    PointHit,
    check_dataset,
    nearest_chunks,
)
from catalog.store.vectors.points import PointIndex, query_vector

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_OPENED: weakref.WeakValueDictionary[tuple[int, Path], FolderEngine] = weakref.WeakValueDictionary()
"""The engine that opened an index last, by process and folder."""
FORMAT = 3  # of the folder: its payload, tokens, indexes and state file
ROOM = 64 * 2**20  # bytes that must be free before anything is written
_COPIES = 3  # of the vectors: two while a segment is rewritten, and room for quantized ones
_PAYLOAD = 1_000  # bytes a point

_log = logging.getLogger(__name__)


class FolderIndex(PointIndex, Protocol):
    """An open index of points that is entirely in one folder."""

    def nearest(
        self, vector: npt.NDArray[np.float32], limit: int, condition: PointCondition | None
    ) -> list[PointHit]:
        """Return the nearest points that meet the condition, best first, at most ``limit``."""
        ...

    def optimize(self) -> bool:
        """Remove remains of earlier points while searches go on; return whether there were any."""
        ...

    def close(self) -> None:
        """Flush and release the folder; may be called twice."""
        ...


class FolderEngine(ABC):
    """Nearest points in ``folder``; a subclass chooses the kind of index.

    The first search or refresh opens the folder, or builds it from the store. The folder is rebuilt
    if it is damaged or belongs to another store, model or format. Engines of one process share the
    index that one of them has open. While another process has it open, every call raises
    :class:`EngineLockedError`. If the disk is too full or the folder may not be used, calls raise
    :class:`EngineBlockedError`. Safe to share between threads; usable again after ``close``.
    """

    name: str

    def __init__(
        self, database: Database, dataset: str, folder: Path, dim: int, fingerprint: str
    ) -> None:
        self._database = database
        self._dataset = dataset
        self._folder = folder
        self._index_folder = folder / "shard"
        self._state_file = folder / "state.json"
        self._dim = dim
        self._fingerprint = fingerprint
        self._guard = threading.RLock()
        self._outbox = Outbox(database, dataset, dim, self._write_state)
        self._index: FolderIndex | None = None
        self._defect = ""
        self._release: weakref.finalize[..., FolderEngine] | None = None

    @abstractmethod
    def _create_index(self, folder: Path) -> FolderIndex:
        """Create an empty index; replace whatever is in the folder."""

    @abstractmethod
    def _load_index(self, folder: Path) -> FolderIndex:
        """Open the index in the folder; raise :class:`EngineError` if it must be rebuilt."""

    def search(
        self, vector: npt.NDArray[np.float32], k: int, restriction: Restriction
    ) -> list[Hit]:
        """Search as :class:`VectorEngine` says, with the outbox applied first."""
        check_dataset(restriction, self._dataset)
        if (other := self._opened_by()) is not None:
            return other.search(vector, k, restriction)
        query = query_vector(vector, self._dim)
        if k <= 0 or restriction.scope.is_nothing or self._is_of_nothing():
            return []
        while True:
            index = self._current()
            fetch = partial(index.nearest, query)
            try:
                return nearest_chunks(self._database, restriction, k, fetch)
            except EngineError:
                if index is self._index:  # an index that was closed meanwhile is not a failure
                    raise

    @property
    def damaged(self) -> frozenset[str]:
        """Return the ids of documents with a damaged vector, which is skipped, as far as known."""
        return frozenset((self._opened_by() or self)._outbox.damaged)

    def pop_defect(self) -> str:
        """Return why a damaged index was rebuilt since the last call; "" if it was not."""
        defect, self._defect = self._defect, ""
        return defect

    def refresh(self) -> int:
        """Apply the outbox and return the number of points changed.

        Then remove remains of deleted points and quantize a large index, while searches go on.
        """
        if (other := self._opened_by()) is not None:
            return other.refresh()
        with self._guard:
            index, changed = self._bring_up(wait=True)
        if changed > 0:
            try:
                index.optimize()
            except EngineError:
                if index is self._index:
                    raise
        return changed

    def rebuild(self) -> int:
        """Fill a new index from the store and return its number of points."""
        if (other := self._opened_by()) is not None:
            return other.rebuild()
        with self._guard:
            self.close()
            return self._bring_up(wait=True, rebuild=True)[0].count

    def verify(self) -> int:
        """Return the number of points that are missing, superfluous or different from the store."""
        if (other := self._opened_by()) is not None:
            return other.verify()
        with self._guard:
            return self._outbox.compare(self._bring_up(wait=True)[0])

    def close(self) -> None:
        """Flush, and release the index and its lock; may be called twice."""
        with self._guard:
            self._index = None
            if self._release is not None:
                self._release()
                self._release = None

    def _opened_by(self) -> FolderEngine | None:
        """Return the other engine of this process that has the same index open, if one has."""
        other = _OPENED.get((os.getpid(), self._index_folder))
        if other is None or other is self or other._index is None:
            return None
        return other if other._state() == self._state() else None

    def _is_of_nothing(self) -> bool:
        """Return whether no index is open and the dataset was removed, so that no index is made."""
        if self._index is not None:
            return False
        with self._database.read(latest=True) as connection:
            return read_stamp(connection, self._dataset) is None

    def _current(self) -> FolderIndex:
        """Return the open index with the outbox applied as it was at the beginning of the call."""
        index = self._index
        if index is not None and self._outbox.is_empty():
            return index
        with self._guard:
            return self._bring_up(wait=False)[0]

    def _bring_up(self, *, wait: bool, rebuild: bool = False) -> tuple[FolderIndex, int]:
        """Return the open index with the outbox applied, and the number of points changed."""
        while True:
            try:
                index = self._open(rebuild=rebuild)
                return index, self._apply(index, wait=wait)
            except StaleIndexError:  # the store was replaced meanwhile
                self.close()

    def _apply(self, index: FolderIndex, *, wait: bool) -> int:
        """Apply the outbox unless it is empty; check the space on the disk first."""
        if self._outbox.is_empty():
            return 0
        self._check_room()
        return self._outbox.apply(index, wait=wait)

    def _open(self, *, rebuild: bool = False) -> FolderIndex:
        """Return the open index, or load or build it under the folder's lock."""
        if self._index is not None:
            if self._outbox.is_of_truth():
                return self._index
            self.close()
        lock = self._lock_folder()
        try:
            self._check_room()
            index = (None if rebuild else self._load()) or self._build()
        except BaseException:
            lock.release()
            raise
        self._index = index
        _OPENED[os.getpid(), self._index_folder] = self
        self._release = weakref.finalize(self, _close_and_release, index, lock, os.getpid())
        return index

    def _lock_folder(self) -> FileLock:
        """Take the folder's own lock, because the shard has no lock while it is built."""
        try:
            make_folder(self._folder)
            lock = FileLock(self._folder / POINTS_LOCK, timeout=0, mode=0o600, thread_local=False)
            lock.acquire()
        except Timeout as error:
            message = (
                "another process, such as 'catalog serve', has the vector index of "
                f"{self._dataset!r} open"
            )
            raise EngineLockedError(message) from error
        except OSError as error:
            message = f"cannot use the index folder {self._folder}: {error}"
            raise EngineBlockedError(message) from error
        return lock

    def _load(self) -> FolderIndex | None:
        """Load the index from disk; ``None`` if it belongs to something else or cannot be used."""
        state = self._read_state()
        if state is None and self._state_file.exists():
            self._note_defect(f"{self._state_file.name} cannot be read")
        if not (isinstance(state, dict) and self._state().items() <= state.items()):
            return None
        if not self._outbox.adopt(state.get("applied")):
            _log.info("rebuilding the vector index of %r: it has another state", self._dataset)
            return None
        try:
            index = self._load_index(self._index_folder)
        except EngineBlockedError:
            raise
        except EngineError as error:
            self._note_defect(str(error))
            return None
        if self._is_complete(index):
            return index
        self._note_defect("points are missing")
        index.close()
        return None

    def _note_defect(self, defect: str) -> None:
        self._defect = defect
        _log.warning("rebuilding the vector index of %r: %s", self._dataset, defect)

    def _is_complete(self, index: FolderIndex) -> bool:
        """Return whether the index has as many points as the store, unless changes are pending."""
        with self._database.read() as connection:
            if is_pending(connection, self._dataset):
                return True
            return index.count == count_vectors(connection, self._dataset)

    def _build(self) -> FolderIndex:
        """Build an index with every point; its state is written last, so half an index has none."""
        with self._database.read() as connection:
            self._check_room(count_vectors(connection, self._dataset))
        self._state_file.unlink(missing_ok=True)
        index = self._create_index(self._index_folder)
        try:
            self._outbox.fill(index)
            index.optimize()
        except BaseException:
            index.close()
            raise
        return index

    def _check_room(self, points: int = 0) -> None:
        """Raise :class:`EngineBlockedError` unless the disk has room for this many more points.

        The engine maps sparse files. If the disk is full, a write to such a file ends the process,
        and no error can be reported.
        """
        needed = ROOM + points * (_COPIES * 4 * self._dim + _PAYLOAD)
        try:
            free = shutil.disk_usage(self._folder).free
        except OSError as error:
            raise EngineBlockedError(f"cannot read {self._folder}: {error}") from error
        if free < needed:
            raise EngineBlockedError(
                f"the disk of {self._folder} has {free // 2**20} MB left, but the vector index "
                f"may need {needed // 2**20} MB: free some space"
            )

    def _state(self) -> dict[str, object]:
        """Return the properties for which the folder must have been built."""
        return {
            "format": FORMAT,
            "store": self._database.meta("store_id"),
            "dataset": self._dataset,
            "fingerprint": self._fingerprint,
            "dim": self._dim,
        }

    def _read_state(self) -> object:
        try:
            return json.loads(self._state_file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None

    def _write_state(self, applied: dict[str, Any]) -> None:
        draft = self._state_file.with_suffix(".new")
        with draft.open("w", encoding="utf-8") as handle:
            json.dump({**self._state(), "applied": applied}, handle)
            handle.flush()
            os.fsync(handle.fileno())
        draft.replace(self._state_file)


def _close_and_release(index: FolderIndex, lock: FileLock, process: int) -> None:
    if process != os.getpid():  # a forked child: both belong to its parent
        return
    try:
        index.close()
    finally:
        lock.release()
