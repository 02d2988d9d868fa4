"""The Qdrant engine on a server: one collection for each dataset; many processes may share it."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from catalog.core.errors import EngineError, EngineLockedError
from catalog.core.settings import QdrantSettings
from catalog.store.database import Database
from catalog.store.engine_types import Hit, Restriction
from catalog.store.vectors.outbox import Outbox, StaleIndexError
from catalog.store.vectors.point_search import check_dataset, nearest_chunks
from catalog.store.vectors.points import query_vector
from catalog.store.vectors.qdrant_server import (
    APPLY_WAIT_SECONDS,
    BUILD_WAIT_SECONDS,
    CollectionTurns,
    CollectionVersions,
    QdrantServer,
    collection_name,
    was_answered,
)
from catalog.store.vectors.server_index import ServerIndex, read_note, write_note

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from qdrant_client import QdrantClient

FORMAT = 2  # of the collection: its payload, tokens and note
IMPATIENT_SECONDS = 30.0  # searches do not wait for this long after one has waited in vain


class ServerEngine:
    """Qdrant behind ``client``, under the alias ``{collection_prefix}{dataset}``.

    The first search or refresh opens the collection, or builds it from the store. A collection for
    another model or format stays, and processes that have it open search it, until a new one is
    full (:class:`CollectionVersions`). A collection that is not ours, or that belongs to another
    store, raises :class:`EngineError`; :meth:`rebuild` takes over another store's. Processes take
    turns at writing, on one machine and on all machines that share a store in Postgres. The caller
    closes the client unless ``owns_client``.
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
        options: QdrantSettings | None = None,
        owns_client: bool = False,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.collection = collection_name(collection_prefix, dataset)
        self._options = options or QdrantSettings()
        self._database = database
        self._dataset = dataset
        self._owns_client = owns_client
        self._dim = dim
        self._fingerprint = fingerprint
        seconds = self._options.timeout_seconds
        self._server = QdrantServer(client, seconds=seconds, sleep=sleep, clock=clock)
        self._versions = CollectionVersions(self._server, self.collection, fingerprint)
        texts = self._options.texts
        self._outbox = Outbox(database, dataset, dim, self._keep_applied, texts=texts)
        self._index: ServerIndex | None = None
        self._clock, self._impatient_until = clock, 0.0
        self._target = ""  # the collection that the outbox is applied to
        self._turns = CollectionTurns(database, self.collection)

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
            except EngineError as error:
                if index is self._index and not self._forget_if_gone(index, error):
                    raise
            else:
                if index is self._index:
                    return hits  # otherwise the collection was rebuilt under this search

    @property
    def damaged(self) -> frozenset[str]:
        """Return the ids of documents with a damaged vector, which is skipped, as far as known."""
        return frozenset(self._outbox.damaged)

    def pop_defect(self) -> str:
        """Return "": the server takes care of its files."""
        return ""

    def refresh(self) -> int:
        """Apply the outbox and return the number of points changed.

        If the number of points then differs from the store's, for example because a failover lost
        the last writes, all points are compared.
        """
        with self._turns.take(BUILD_WAIT_SECONDS):
            index, changed = self._bring_up(wait=True)
            if index.count != self._outbox.count_points():
                changed += self._outbox.refill(index)
            return changed

    def rebuild(self) -> int:
        """Fill a new collection from the store and return its number of points."""
        with self._turns.take(BUILD_WAIT_SECONDS):
            self._index = None
            live = self._versions.live()
            if live is not None:
                read_note(self._server, live)
            self._index, count = self._build(live, anew=True)
            self._bring_up(wait=True)
        return count

    def verify(self) -> int:
        """Return the number of points that are missing, superfluous or different from the store."""
        with self._turns.take(BUILD_WAIT_SECONDS):
            return self._outbox.compare(self._bring_up(wait=True)[0])

    def close(self) -> None:
        """Forget the collection, and close the client if the engine owns it."""
        self._index = None
        if self._owns_client:
            self._server.client.close()

    def _current(self) -> ServerIndex:
        """Return the collection with the outbox applied, unless another process is writing."""
        index = self._index
        if index is not None and self._outbox.is_empty():
            return index
        seconds = APPLY_WAIT_SECONDS if self._clock() >= self._impatient_until else 0.0
        try:
            with self._turns.enter(seconds), self._server.hurry():
                return self._bring_up_or_adopt(seconds)
        except EngineLockedError:
            self._impatient_until = self._clock() + IMPATIENT_SECONDS
            if index is None:
                raise
            return index  # another thread updates it

    def _bring_up_or_adopt(self, seconds: float) -> ServerIndex:
        try:
            with self._turns.take(seconds):
                return self._bring_up(wait=False)[0]
        except EngineLockedError:
            self._impatient_until = self._clock() + IMPATIENT_SECONDS
            self._index = self._index or self._adopt_as_it_is()
            if self._index is None:
                raise
            return self._index

    def _adopt_as_it_is(self) -> ServerIndex | None:
        """Return the live collection without changing it, while another process is writing."""
        live = self._versions.live()
        return self._adopt(live, may_change=False) if live else None

    def _forget_if_gone(self, index: ServerIndex, error: EngineError) -> bool:
        """Forget a collection that another process has replaced; return whether that happened."""
        if not was_answered(error, 404) or self._versions.live() in (None, index.collection):
            return False
        if self._index is index:
            self._index = None
        return True

    def _bring_up(self, *, wait: bool) -> tuple[ServerIndex, int]:
        """Return the collection with the outbox applied, and the number of points changed."""
        while True:
            try:
                index = self._open()
                return index, self._outbox.apply(index, wait=wait)
            except StaleIndexError:  # the store was replaced meanwhile
                self._index = None

    def _open(self) -> ServerIndex:
        if self._index is None or not self._outbox.is_of_truth():
            live = self._versions.live()
            self._index = (live and self._adopt(live)) or self._build(live, anew=False)[0]
        return self._index

    def _adopt(self, live: str, *, may_change: bool = True) -> ServerIndex | None:
        """Return the live collection if it fits this model and the store, else ``None``."""
        note = self._read_own_note(live)
        if note is None or not self._is_full(note) or not self._outbox.adopt(note.get("applied")):
            return None
        self._target = live
        index = ServerIndex(self._server, live, self._options)
        if not may_change:
            return index
        index.ensure_payload_indexes()
        if note.get("options", layout_of(QdrantSettings())) != layout_of(self._options):
            index.apply_options()
            write_note(self._server, live, note | {"options": layout_of(self._options)})
        return index

    def _build(self, live: str | None, *, anew: bool) -> tuple[ServerIndex, int]:
        """Fill a new collection and publish it; return it with its number of points.

        Unless ``anew``, a collection that is partly filled or was set aside is completed.
        """
        name = self._target = self._versions.free(live)
        note = self._read_note(name) if anew else self._read_own_note(name)
        if note is not None and not anew and self._is_alike(note):
            index = ServerIndex(self._server, name, self._options)
            index.ensure_payload_indexes()
            index.apply_options()
            count = self._outbox.refill(index)
        else:
            begun = self._note(complete=False)
            index = ServerIndex.create(self._server, name, self._dim, begun, self._options)
            count = self._outbox.fill(index)
        self._versions.publish(name, live)
        return index, count

    def _read_note(self, name: str) -> dict[str, Any] | None:
        return read_note(self._server, name)

    def _read_own_note(self, name: str) -> dict[str, Any] | None:
        """Return our note on a collection; raise :class:`EngineError` if it is another store's."""
        note = self._read_note(name)
        if note is not None and note.get("store") != self._note(complete=True)["store"]:
            raise EngineError(
                f"the collection {name!r} at {self._server.address} belongs to "
                "another catalog store: choose another collection prefix, or rebuild"
            )
        return note

    def _is_full(self, note: dict[str, Any]) -> bool:
        return note.get("complete") is True and self._is_alike(note)

    def _is_alike(self, note: dict[str, Any]) -> bool:
        """Return whether the collection is for this dataset, model, format and payload."""
        made = self._note(complete=True)
        return all(note.get(key) == made[key] for key in made.keys() - {"complete", "options"})

    def _keep_applied(self, applied: dict[str, Any]) -> None:
        note = self._note(complete=True) | {"applied": applied}
        write_note(self._server, self._target, note)

    def _note(self, *, complete: bool) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "store": self._database.meta("store_id"),
            "dataset": self._dataset,
            "fingerprint": self._fingerprint,
            "dim": self._dim,
            "texts": self._options.texts,
            "complete": complete,
            "options": layout_of(self._options),
        }


def layout_of(options: QdrantSettings) -> dict[str, Any]:
    """Return the options that can be changed in an existing collection."""
    names = {"replication_factor", "write_consistency_factor", "on_disk", "quantization"}
    return options.model_dump(include=names)
