"""Every vector engine of ours over a small dataset with hand-made vectors."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from httpx import Headers
from qdrant_client.http.exceptions import UnexpectedResponse

import postgres
from catalog.core.settings import QdrantSettings, RAGv2Settings
from catalog.store.database import Database, EngineSetup
from catalog.store.engines import VectorEngine
from catalog.store.vectors.flat import FlatEngine
from catalog.store.vectors.qdrant_edge import QdrantEdgeEngine
from catalog.testing.vectors import (
    DATASET,
    DIM,
    FINGERPRINT,
    Desk,
    Vector,
    everything,
    only,
    paths_of,
    vector,
)

__all__ = [
    "DATASET", "DIM", "ENGINES", "FINGERPRINT", "Bench", "Vector", "bench", "everything", "only",
    "paths_of", "vector",
]  # fmt: skip

ENGINES = ("flat", "sqlite-vec", "qdrant-edge", "qdrant-memory", "qdrant-server")
ON_POSTGRES = ("flat-postgres",)  # those whose truth is there


class OneAtATime:
    """The client's emulation of a server, which unlike a server cannot take calls in parallel.

    A collection that is not there is a reply with status 404, as from a server.
    """

    def __init__(self, client: Any) -> None:
        self._emulator = client
        self._lock = threading.RLock()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._emulator, name)
        if not callable(found):
            return found

        def call(*given: Any, **more: Any) -> Any:
            try:
                with self._lock:
                    return found(*given, **more)
            except ValueError as error:  # a server says so
                if "not found" not in str(error):
                    raise
                raise UnexpectedResponse(404, "Not Found", b"", Headers()) from error

        return call


class Bench(Desk):
    """A desk for one of our engines, on a Qdrant server or its emulation where it needs one."""

    def __init__(self, folder: Path, kind: str, server_url: str | None = None) -> None:
        self.kind, self.client = kind, None
        super().__init__(folder, self.make)
        if kind in ("qdrant-server", "qdrant-memory"):
            from qdrant_client import QdrantClient

            remote = kind == "qdrant-server"
            made = QdrantClient(**({"url": server_url} if remote else {"location": ":memory:"}))
            self.client: Any = made if remote else OneAtATime(made)

    def make(
        self, database: Database, dataset: str, folder: Path, fingerprint: str = FINGERPRINT
    ) -> VectorEngine:
        prefix = f"test_{abs(hash(self.folder))}_"
        rag = RAGv2Settings(qdrant=QdrantSettings(collection_prefix=prefix))
        setup = EngineSetup(database, dataset, folder, rag, DIM, fingerprint)
        if self.kind in ("flat", "flat-postgres"):
            return FlatEngine(setup)
        if self.kind == "qdrant-edge":
            return QdrantEdgeEngine(setup)
        if self.kind == "sqlite-vec":
            from catalog.store.vectors.sqlite_vec import SqliteVecEngine

            return SqliteVecEngine(setup)
        from catalog.store.vectors.qdrant import QdrantServerEngine

        engine = QdrantServerEngine(setup, self.client)
        engine.sleep = bool
        return engine

    def close(self) -> None:
        if self.kind == "qdrant-server":
            for engine in self.opened:
                self.client.delete_collection(engine.collection)
        super().close()
        if self.client is not None:
            self.client.close()


@contextmanager
def bench(folder: Path, kind: str, server_url: str | None = None) -> Iterator[Bench]:
    """A bench that is closed at the end."""
    on_postgres = postgres.in_place_of_files() if kind in ON_POSTGRES else nullcontext()
    with on_postgres, closing(Bench(folder, kind, server_url)) as made:
        yield made
