"""Whose turn it is to write to a collection of a Qdrant server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from threading import RLock

from filelock import FileLock, Timeout

from catalog.core.errors import EngineLockedError, StoreBusyError
from catalog.core.ids import sha1_hex
from catalog.store.database import Database

BUILD_WAIT_SECONDS = 600.0
APPLY_WAIT_SECONDS = 5.0


class CollectionTurns:
    """The locks under which one thread of one process at a time writes to a collection.

    One is between the threads of this process, one between the processes of this machine; the
    third all machines see that share a store in Postgres.
    """

    def __init__(self, database: Database, collection: str) -> None:
        self._database, self._collection = database, collection
        lock_file = f"{database.file}.{sha1_hex(collection)[:12]}.lock"
        self._lock = FileLock(lock_file, mode=0o600, thread_local=False)
        self._guard = RLock()

    @contextmanager
    def take(self, seconds: float) -> Iterator[None]:
        """Hold all locks; raise :class:`EngineLockedError` if one takes longer than this."""
        with self.enter(seconds), ExitStack() as held:
            try:
                held.enter_context(self._lock.acquire(timeout=seconds))
                held.enter_context(self._hold_shared(seconds))
            except (Timeout, StoreBusyError) as error:
                raise EngineLockedError(
                    f"another process is writing to the collection {self._collection!r}"
                ) from error
            yield

    @contextmanager
    def enter(self, seconds: float) -> Iterator[None]:
        """Hold the lock between threads; raise :class:`EngineLockedError` after so long."""
        if not self._guard.acquire(timeout=seconds):
            message = f"another thread is writing to the collection {self._collection!r}"
            raise EngineLockedError(message)
        try:
            yield
        finally:
            self._guard.release()

    def _hold_shared(self, seconds: float) -> AbstractContextManager[object]:
        if self._database.engine.dialect.name != "postgresql":
            return nullcontext()
        from catalog.store.postgres_pool import begin_derived

        return begin_derived(self._database, f"collection {self._collection}", seconds)
