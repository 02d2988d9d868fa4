"""One opened store with its settings, model and engines: what services and commands share."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from catalog.core.errors import ConfigError
from catalog.core.settings import Settings, load_settings, needs_rebuild, with_rag
from catalog.store import Database
from catalog.store.lexical import get_lexical_engine
from catalog.store.model import StoredModel, require_model
from catalog.store.passages import all_datasets, require_dataset
from catalog.store.vectors import get_vector_engine

if TYPE_CHECKING:
    from catalog.embedding.resilient import ResilientEmbedding
    from catalog.search_v2.query_vectors import QueryVectors
    from catalog.store.lexical.base import LexicalEngine
    from catalog.store.vectors.base import VectorEngine


LEG_THREADS = 8
_OF_THE_STORE = ("qdrant_url", "qdrant_api_key")  # engines are shared between views


class Workspace:
    """Opens the store at once and everything else when first needed; close it, or use ``with``."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.database = (
            Database(settings.database_url) if settings.database_url else Database.at(settings.home)
        )
        self._lexical: dict[tuple[str, str], LexicalEngine] = {}
        self._vector: dict[tuple[str, str], VectorEngine] = {}
        self._lock = Lock()

    @classmethod
    def open(
        cls, *, preset: str | None = None, overrides: Mapping[str, Any] | None = None
    ) -> Workspace:
        """The workspace of the effective settings; see ``load_settings``."""
        return cls(load_settings(preset=preset, overrides=overrides).settings)

    def view(self, changes: Mapping[str, Any]) -> Workspace:
        """This store, model and indexes under other v2 settings; only the original is closed.

        Raises :class:`ConfigError` for a setting that would need a rebuild.
        """
        for name in changes:
            if needs_rebuild(f"rag_v2.{name}") or name in _OF_THE_STORE:
                raise ConfigError(
                    f"{name} shapes the index: change it and rebuild, in another home"
                )
        settings = with_rag(self.settings, changes)
        from catalog.embedding import query_prefix

        _ = self.model, self.threads  # made before the copy, so that they are shared
        other = copy(self)
        other.settings = settings
        if settings.rag_v2.embed_prefix_query != self.settings.rag_v2.embed_prefix_query:
            prefix = query_prefix(settings.embedding, settings.rag_v2)
            other.__dict__["model"] = self.model.model_copy(update={"query_prefix": prefix})
        other.__dict__.pop("query_vectors", None)
        return other

    @cached_property
    def model(self) -> ResilientEmbedding:
        """The embedding model; its weights load at its first use."""
        from catalog.embedding import get_embed_model

        return get_embed_model(self.settings.embedding, rag=self.settings.rag_v2)

    @cached_property
    def query_vectors(self) -> QueryVectors:
        """Query embeddings through the cache."""
        from catalog.search_v2.query_vectors import QueryVectors

        return QueryVectors(self.model, self.database, self.settings.rag_v2.query_cache_size)

    @cached_property
    def threads(self) -> ThreadPoolExecutor:
        """Threads in which legs run beside each other."""
        return ThreadPoolExecutor(max_workers=LEG_THREADS, thread_name_prefix="catalog-leg")

    @property
    def wanted_model(self) -> StoredModel:
        """The configured model, as a store remembers it."""
        encoder = self.model.encoder
        return StoredModel(encoder.model, encoder.fingerprint, encoder.dim)

    def datasets(self) -> list[str]:
        """The names of the datasets there are."""
        with self.database.read() as connection:
            return [one.name for one in all_datasets(connection)]

    def require_dataset(self, name: str) -> None:
        """Raise :class:`UnknownDatasetError`, listing what there is, unless it exists."""
        with self.database.read() as connection:
            require_dataset(connection, name)

    def folder(self, dataset: str) -> Path:
        """Where the dataset's derived indexes live; it may be deleted at any time."""
        return self.settings.home / "indexes" / dataset

    def lexical(self, dataset: str) -> LexicalEngine:
        """The configured lexical engine."""
        name = self.settings.rag_v2.lexical_engine
        with self._lock:
            if (name, dataset) not in self._lexical:
                folder = self.folder(dataset) / name
                engine = get_lexical_engine(name, self.database, dataset, folder)
                self._lexical[name, dataset] = engine
            return self._lexical[name, dataset]

    def vector(self, dataset: str) -> VectorEngine:
        """The configured vector engine; raises ``EmbeddingMismatchError`` for another model."""
        return self._vector_engine(self.settings.rag_v2.vector_engine, dataset)

    def exact(self, dataset: str) -> VectorEngine:
        """The engine that needs no index of its own."""
        return self._vector_engine("exact", dataset)

    def _vector_engine(self, name: str, dataset: str) -> VectorEngine:
        rag, encoder = self.settings.rag_v2, self.model.encoder
        with self._lock:
            if (name, dataset) not in self._vector:
                require_model(self.database, self.wanted_model)
                self._vector[name, dataset] = get_vector_engine(
                    name,
                    self.database,
                    dataset,
                    self.folder(dataset) / name,
                    dim=encoder.dim,
                    fingerprint=encoder.fingerprint,
                    url=rag.qdrant_url,
                    api_key=rag.qdrant_api_key,
                )
            return self._vector[name, dataset]

    def close(self) -> None:
        """Release indexes, locks and connections; safe to call twice."""
        with self._lock:
            engines: list[LexicalEngine | VectorEngine] = [
                *self._lexical.values(),
                *self._vector.values(),
            ]
            self._lexical.clear()
            self._vector.clear()
        if "threads" in self.__dict__:
            self.__dict__.pop("threads").shutdown()
        for engine in engines:
            engine.close()
        self.database.close()

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
