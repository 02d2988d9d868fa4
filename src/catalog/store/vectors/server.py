"""The Qdrant engine by URL: one collection per dataset on a server that many may share."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from filelock import FileLock, Timeout

from catalog.core.errors import EngineError, EngineLockedError
from catalog.core.ids import sha1_hex
from catalog.store.database import Database
from catalog.store.engine_types import Hit, Restriction
from catalog.store.vectors.outbox import Outbox, StaleIndexError
from catalog.store.vectors.point_search import check_dataset, nearest_chunks
from catalog.store.vectors.points import query_vector
from catalog.store.vectors.server_index import QdrantServer, ServerIndex

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from qdrant_client import QdrantClient

FORMAT = 2  # of the collection: its payload, tokens and note
BUILD_WAIT_SECONDS = 600.0
APPLY_WAIT_SECONDS = 5.0


class ServerEngine:
    """Qdrant behind ``client``, in the collection ``{collection_prefix}{dataset}``.

    The collection is opened, or built from the truth, at the first search or refresh; ours for
    another model or format is dropped and rebuilt. A collection that is not ours, or another
    store's, raises :class:`EngineError`; :meth:`rebuild` takes over another store's. Processes
    on one machine take turns at writing. The client stays the caller's to close, unless
    ``owns_client``.
    """

    name = "qdrant"

    def __init__(
        self,
        database: Database,
        dataset: str,
        client: QdrantClient,
        collection_prefix: str,
        dim: int,
        fingerprint: str,
        *,
        owns_client: bool = False,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.collection = collection_name(collection_prefix, dataset)
        self._database = database
        self._dataset = dataset
        self._owns_client = owns_client
        self._dim = dim
        self._fingerprint = fingerprint
        self._server = QdrantServer(client, address_of(client), sleep)
        self._outbox = Outbox(database, dataset, dim, self._keep_applied)
        self._guard = threading.RLock()
        self._index: ServerIndex | None = None
        lock_file = f"{database.url.database}.{sha1_hex(self.collection)[:12]}.lock"
        self._lock = FileLock(lock_file, mode=0o600, thread_local=False)

    def search(
        self, vector: npt.NDArray[np.float32], k: int, restriction: Restriction
    ) -> list[Hit]:
        """Search as :class:`VectorEngine` says, with the outbox applied first."""
        check_dataset(restriction, self._dataset)
        query = query_vector(vector, self._dim)
        if k <= 0 or restriction.scope.is_nothing:
            return []
        while True:
            index = self._current()
            fetch = partial(index.nearest, query)
            try:
                hits = nearest_chunks(self._database, restriction, k, fetch)
            except EngineError:
                if index is self._index:
                    raise
            else:
                if index is self._index:
                    return hits  # otherwise the collection was rebuilt under this search

    @property
    def damaged(self) -> frozenset[str]:
        """Return the ids of documents of which a damaged vector was left out, as far as seen."""
        return frozenset(self._outbox.damaged)

    def pop_defect(self) -> str:
        """Return an empty text: the server sees to its files."""
        return ""

    def refresh(self) -> int:
        """Apply the outbox and return the number of points changed."""
        with self._guard, self._writing(BUILD_WAIT_SECONDS):
            return self._bring_up(wait=True)[1]

    def rebuild(self) -> int:
        """Fill a new collection from the truth and return its number of points."""
        with self._guard, self._writing(BUILD_WAIT_SECONDS):
            self._index = None
            self._server.owner(self.collection)
            self._index, count = self._build()
            self._bring_up(wait=True)
        return count

    def verify(self) -> int:
        """Return the number of points that are missing, too many or not as in the truth."""
        with self._guard, self._writing(BUILD_WAIT_SECONDS):
            return self._outbox.compare(self._bring_up(wait=True)[0])

    def close(self) -> None:
        """Forget the collection, and close the client if it is the engine's own."""
        with self._guard:
            self._index = None
            if self._owns_client:
                self._server.client.close()

    def _current(self) -> ServerIndex:
        """Return the collection, with everything applied unless another process is at it."""
        index = self._index
        if index is not None and self._outbox.is_empty():
            return index
        wait = BUILD_WAIT_SECONDS if index is None else APPLY_WAIT_SECONDS
        with self._guard:
            try:
                with self._writing(wait):
                    index, _ = self._bring_up(wait=False)
            except EngineLockedError:
                if index is None:
                    raise
        return index

    def _bring_up(self, *, wait: bool) -> tuple[ServerIndex, int]:
        """Return the collection with the outbox applied, and the number of points changed."""
        while True:
            try:
                index = self._open()
                return index, self._outbox.apply(index, wait=wait)
            except StaleIndexError:  # the truth was replaced meanwhile
                self._index = None

    def _open(self) -> ServerIndex:
        if self._index is None or not self._outbox.is_of_truth():
            note, complete = self._server.owner(self.collection), self._note(complete=True)
            if note is not None and note.get("store") != complete["store"]:
                raise EngineError(
                    f"the collection {self.collection!r} at {self._server.address} belongs to "
                    "another catalog store: choose another collection prefix, or rebuild"
                )
            is_ours = note is not None and complete.items() <= note.items()
            if is_ours and self._outbox.adopt(note and note.get("applied")):
                self._index = ServerIndex(self._server, self.collection)
            else:
                self._index, _ = self._build()
        return self._index

    def _build(self) -> tuple[ServerIndex, int]:
        """Make a collection with every point, noted as complete when it is; return their number."""
        note = self._note(complete=False)
        index = ServerIndex.create(self._server, self.collection, self._dim, note)
        return index, self._outbox.fill(index)

    def _keep_applied(self, applied: dict[str, Any]) -> None:
        note = self._note(complete=True) | {"applied": applied}
        self._server.set_note(self.collection, note)

    def _note(self, *, complete: bool) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "store": self._database.meta("store_id"),
            "dataset": self._dataset,
            "fingerprint": self._fingerprint,
            "dim": self._dim,
            "complete": complete,
        }

    @contextmanager
    def _writing(self, seconds: float) -> Iterator[None]:
        """Hold the lock under which one process at a time writes to the collection."""
        try:
            self._lock.acquire(timeout=seconds)
        except Timeout as error:
            raise EngineLockedError(
                f"another process is writing to the collection {self.collection!r}"
            ) from error
        try:
            yield
        finally:
            self._lock.release()


def collection_name(prefix: str, dataset: str) -> str:
    """Return a name Qdrant accepts; a dataset name that it would not take gets a hash."""
    name = f"{prefix}{dataset}"
    plain = re.sub(r"[^\w.-]", "-", name)[:200]
    return name if plain == name else f"{plain}-{sha1_hex(name)[:8]}"


def address_of(client: QdrantClient) -> str:
    """Return where the client points to, without credentials."""
    options = client.init_options
    if options.get("url"):
        parts = urlsplit(str(options["url"]))
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}" if parts.hostname else "a given URL"
    host = options.get("host")
    return f"{host}:{options.get('port')}" if host else "this process"
