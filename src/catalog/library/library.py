"""One opened store with its settings, model and engines: what services and commands share."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from catalog.core.errors import ConfigError, UnknownDatasetError
from catalog.core.lru_cache import LRUCache
from catalog.core.settings import Settings, load_settings, needs_rebuild, with_rag
from catalog.store import Database
from catalog.store.chunks import list_datasets, require_dataset
from catalog.store.lexical import get_lexical_engine
from catalog.store.stored_model import StoredModel, require_model
from catalog.store.vectors import get_vector_engine

if TYPE_CHECKING:
    from llama_index.core.llms import LLM

    from catalog.core.params import Mode
    from catalog.embedding.resilient import ResilientEmbedding
    from catalog.search_v2.caches import ModelCache, QueryVectors
    from catalog.search_v2.expansion.expanded_retriever import CachedRetrieval
    from catalog.search_v2.expansion.expander import Expander
    from catalog.search_v2.relevance import Calibration, Signals
    from catalog.search_v2.rerank.base import Reranker
    from catalog.store.engine_types import Stamp
    from catalog.store.lexical.base import LexicalEngine
    from catalog.store.vectors.base import VectorEngine


LEG_THREADS = 8
_KEPT_SEARCHES = 64
_OF_THE_RERANKER = (
    "rerank_provider",
    "rerank_model",
    "rerank_max_tokens",
    "rerank_url",
    "rerank_api_key",
    "rerank_budget_ms",  # also how long a request may take
)
_OF_THE_STORE = ("qdrant_url", "qdrant_api_key")  # engines are shared between views


class Library:
    """Opens the store at once and everything else when first needed; close it, or use ``with``."""

    def __init__(self, settings: Settings, *, llm: LLM | None = None) -> None:
        self.settings = settings
        self._llm = llm
        self.database = (
            Database(settings.database_url) if settings.database_url else Database.at(settings.home)
        )
        self._expanded: dict[str, tuple[Stamp | None, LRUCache[Hashable, CachedRetrieval]]] = {}
        self._calibrations: dict[Signals, Calibration | None] = {}
        self._lexical: dict[tuple[str, str], LexicalEngine] = {}
        self._vector: dict[tuple[str, str], VectorEngine] = {}
        self._lock = Lock()

    @classmethod
    def open(
        cls, *, preset: str | None = None, overrides: Mapping[str, Any] | None = None
    ) -> Library:
        """The library of the effective settings; see ``load_settings``."""
        return cls(load_settings(preset=preset, overrides=overrides).settings)

    def view(self, changes: Mapping[str, Any]) -> Library:
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
        rag = settings.rag_v2
        if rag.expansion_enabled or (rag.rerank_enabled and rag.rerank_provider == "llm"):
            _ = self.llm
        other = copy(self)
        other.settings = settings
        if settings.rag_v2.embed_prefix_query != self.settings.rag_v2.embed_prefix_query:
            prefix = query_prefix(settings.embedding, settings.rag_v2)
            other.__dict__["model"] = self.model.model_copy(update={"query_prefix": prefix})
        other._expanded = {}
        for name in ("query_vectors", "expander", "rerank_cache"):
            other.__dict__.pop(name, None)
        if any(name in changes for name in _OF_THE_RERANKER):
            other.__dict__.pop("reranker", None)
        elif settings.rag_v2.rerank_enabled:
            other.__dict__["reranker"] = self.reranker  # one model for all views
        return other

    @cached_property
    def model(self) -> ResilientEmbedding:
        """The embedding model; its weights load at its first use."""
        from catalog.embedding import get_embed_model

        return get_embed_model(self.settings.embedding, rag=self.settings.rag_v2)

    @cached_property
    def query_vectors(self) -> QueryVectors:
        """Query embeddings through the cache."""
        from catalog.search_v2.caches import QueryVectors

        return QueryVectors(self.model, self.database, self.settings.rag_v2.query_cache_size)

    @cached_property
    def llm(self) -> LLM:
        """The language model given or configured; raises :class:`ConfigError` without one."""
        from catalog.llm import get_llm

        found = self._llm or get_llm(self.settings.llm)
        if found is None:
            raise ConfigError(
                "this needs a language model: set IDX_LLM__PROVIDER, or leave expansion and the "
                "llm reranker off"
            )
        return found

    @cached_property
    def expander(self) -> Expander:
        """Other words for queries, through the cache; raises as :attr:`llm` does."""
        from catalog.search_v2.caches import ModelCache
        from catalog.search_v2.expansion.expander import Expander
        from catalog.search_v2.expansion.sources import get_source

        rag = self.settings.rag_v2
        cache = ModelCache(self.database, kind="expansion", lifetime=rag.cache_ttl_seconds)
        return Expander(get_source(rag.expansion_source, self.llm), cache, rag)

    def expanded(self, dataset: str, stamp: Stamp | None) -> LRUCache[Hashable, CachedRetrieval]:
        """Expanded retrievals of late over this state of the dataset; those of another go."""
        with self._lock:
            known = self._expanded.get(dataset)
            if known is None or known[0] != stamp:
                known = self._expanded[dataset] = (stamp, LRUCache(_KEPT_SEARCHES))
            return known[1]

    @cached_property
    def reranker(self) -> Reranker:
        """The configured reranker; its model loads at its first use."""
        from catalog.search_v2.rerank import get_reranker

        rag, embedding = self.settings.rag_v2, self.settings.embedding
        llm = self.llm if rag.rerank_provider == "llm" else None
        return get_reranker(
            rag,
            llm=llm,
            llm_seconds=self.settings.llm.timeout_seconds,
            threads=embedding.threads,
            offline=embedding.offline,
        )

    @cached_property
    def rerank_cache(self) -> ModelCache:
        """Scores of the reranker, by query and text."""
        from catalog.search_v2.caches import ModelCache

        lifetime = self.settings.rag_v2.cache_ttl_seconds
        return ModelCache(self.database, kind="rerank", lifetime=lifetime)

    def calibration(self, mode: Mode, *, reranked: bool) -> Calibration | None:
        """What turns the scores of such searches into relevance, if anything was fitted."""
        from catalog.search_v2.relevance import Signals, find_calibration

        signals = Signals.of(self, mode, reranked=reranked)
        if signals not in self._calibrations:
            self._calibrations[signals] = find_calibration(self, signals)
        return self._calibrations[signals]

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
            return [one.name for one in list_datasets(connection)]

    def require_dataset(self, name: str) -> None:
        """Raise :class:`UnknownDatasetError`, listing what there is, unless it exists."""
        with self.database.read() as connection:
            require_dataset(connection, name)

    def chosen_dataset(self, named: str | None) -> str:
        """The dataset named, or the only one; raises :class:`UnknownDatasetError`."""
        if named is not None:
            self.require_dataset(named)
            return named
        names = self.datasets()
        if len(names) == 1:
            return names[0]
        known = ", ".join(names) or "none yet; 'catalog index build FOLDER --dataset NAME'"
        raise UnknownDatasetError(f"say which dataset; datasets: {known}")

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

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
