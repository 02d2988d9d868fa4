"""A small dataset with hand-made vectors, and every vector engine over it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import select

import postgres
from builders import NOW, make_database, put
from catalog.core.documents import MetadataValue, Modality
from catalog.core.scope import Scope
from catalog.store.database import Database
from catalog.store.embedding_cache import save
from catalog.store.engine_types import Restriction
from catalog.store.schema import chunks, documents
from catalog.store.vectors.base import VectorEngine
from catalog.store.vectors.edge import EdgeEngine
from catalog.store.vectors.exact import ExactEngine

ENGINES = (
    "exact",
    "pgvector",
    "sqlite-vec",
    "qdrant-edge",
    "qdrant-memory",
    "qdrant-server",
)
ON_POSTGRES = ("exact-postgres", "pgvector")  # those whose truth is there
DATASET = "notes"
FINGERPRINT = "toy/1"
DIM = 8

Vector = npt.NDArray[np.float32]


def vector(*numbers: float) -> Vector:
    """These numbers, filled up with zeros."""
    return np.array([*numbers, *[0.0] * (DIM - len(numbers))], dtype=np.float32)


class OneAtATime:
    """The client's emulation of a server, which unlike a server cannot take calls in parallel."""

    def __init__(self, client: Any) -> None:
        self._emulator = client
        self._lock = threading.RLock()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._emulator, name)
        if not callable(found):
            return found

        def call(*given: Any, **more: Any) -> Any:
            with self._lock:
                return found(*given, **more)

        return call


@dataclass
class Bench:
    """A store in a folder, and engines over it that are closed at the end."""

    folder: Path
    kind: str
    server_url: str | None = None
    database: Database = field(init=False)
    client: Any = None
    opened: list[VectorEngine] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.database = make_database(self.folder)
        if self.kind in ("qdrant-server", "qdrant-memory"):
            from qdrant_client import QdrantClient

            remote = self.kind == "qdrant-server"
            where = {"url": self.server_url} if remote else {"location": ":memory:"}
            made = QdrantClient(**where)
            self.client = made if remote else OneAtATime(made)

    @property
    def derives(self) -> bool:
        """Whether the engine keeps an index beside the truth."""
        return not self.kind.startswith("exact")

    def engine(self) -> VectorEngine:
        """A fresh engine of this bench's kind, over the same folder or server."""
        made = self._make()
        self.opened.append(made)
        return made

    def _make(self) -> VectorEngine:
        if self.kind in ("exact", "exact-postgres"):
            return ExactEngine(self.database, DATASET)
        if self.kind == "qdrant-edge":
            return EdgeEngine(self.database, DATASET, self.folder / "index", DIM, FINGERPRINT)
        if self.kind == "sqlite-vec":
            from catalog.store.vectors.sqlite_vec import SqliteVecEngine

            return SqliteVecEngine(self.database, DATASET, self.folder / "index", DIM, FINGERPRINT)
        if self.kind in ON_POSTGRES:
            from catalog.store.vectors.pgvector import PgVectorEngine

            return PgVectorEngine(self.database, DATASET, DIM, FINGERPRINT)
        from catalog.store.vectors.server import ServerEngine

        prefix = f"test_{abs(hash(self.folder))}_"
        return ServerEngine(
            self.database, DATASET, self.client, prefix, DIM, FINGERPRINT, sleep=lambda _s: None
        )

    def reopen(self, engine: VectorEngine) -> VectorEngine:
        """Close the engine and open the same index again."""
        engine.close()
        return self.engine()

    def embed(self, vectors: Mapping[str, Vector]) -> None:
        """Keep vectors under these keys."""
        with self.database.write() as connection:
            save(connection, vectors, fingerprint=FINGERPRINT, side="document", now=NOW)

    def put(
        self,
        path: str,
        *passages: Vector | Sequence[Vector],
        texts: Sequence[str] = (),
        metadata: Mapping[str, MetadataValue] | None = None,
        sections: Sequence[str] = (),
        modality: Modality = "text",
        page: int | None = None,
        page_breaks: Sequence[int] = (),
        title: str = "",
    ) -> list[int]:
        """Publish a document: per chunk its vector, or those of its windows; the row numbers."""
        keys: list[list[str]] = []
        for passage in passages:
            windows = [passage] if isinstance(passage, np.ndarray) else list(passage)
            keyed = {one.tobytes().hex(): one for one in windows}
            self.embed(keyed)
            keys.append([one.tobytes().hex() for one in windows])
        given = list(texts) or [f"{path} passage {index}" for index in range(len(passages))]
        return put(
            self.database,
            DATASET,
            path,
            given,
            title=title,
            metadata=metadata,
            sections=sections,
            embed_keys=keys,
            modality=modality,
            page=page,
            page_breaks=page_breaks,
        )

    def close(self) -> None:
        for engine in self.opened:
            if self.kind == "qdrant-server":
                for one in self.client.get_collections().collections:
                    if one.name.startswith(engine.collection):
                        self.client.delete_collection(one.name)
            engine.close()
        if self.client is not None:
            self.client.close()
        self.database.close()


def everything() -> Restriction:
    """No restriction within the dataset."""
    return Restriction(DATASET)


def only(*paths: str) -> Restriction:
    """Restricted to these documents."""
    return Restriction(DATASET, Scope.of(f"{DATASET}:{path}" for path in paths))


def paths_of(database: Database, seqs: Sequence[int]) -> list[str]:
    """The documents of these chunks, in the order given."""
    query = select(chunks.c.seq, documents.c.path).join(
        documents, documents.c.id == chunks.c.document_id
    )
    with database.read() as connection:
        found = {row.seq: row.path for row in connection.execute(query)}
    return [found[seq] for seq in seqs]


@contextmanager
def bench(folder: Path, kind: str, server_url: str | None = None) -> Iterator[Bench]:
    """A bench that is closed at the end."""
    on_postgres = postgres.in_place_of_files() if kind in ON_POSTGRES else nullcontext()
    with on_postgres, closing(Bench(folder, kind, server_url)) as made:
        yield made
