"""The v1 search service: one query, two legs, the stock fusion."""

from __future__ import annotations

import time
from threading import Lock
from typing import overload

from llama_index.core.llms import LLM
from llama_index.core.schema import NodeWithScore

from catalog.core.errors import ConfigError
from catalog.core.ids import check_dataset_name
from catalog.core.settings import Settings
from catalog.core.text import storable
from catalog.ingest.sync_report import Progress
from catalog.search.dataset_index import DatasetIndex, LoadedIndex
from catalog.search.embed_model import ResilientEmbedding, get_embed_model
from catalog.search.fts_chunk import FTSChunkRetriever
from catalog.search.hybrid import HybridSearch
from catalog.search.models import BaselineResult, BaselineResults, SearchCriteria
from catalog.search.rerank import BaselineReranker
from catalog.search.vector import VectorSearch
from catalog.store import Database
from catalog.store.chunks import require_dataset

MIN_DEPTH = 20


class SearchService:
    """Search one store like v1. Thread-safe; keep it open, because indexes load once.

    No ``IDX_RAG_V2__*`` setting affects it. A dataset's index follows the dataset: the first search
    after a change builds it completely again.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        embed_model: ResilientEmbedding | None = None,
        llm: LLM | None = None,
    ) -> None:
        self._settings = settings
        self._embed_model = embed_model or get_embed_model(settings.embedding)
        self._llm = llm
        url = settings.database_url
        self._database = Database(url, settings.home) if url else Database.at(settings.home)
        self._indexes: dict[str, LoadedIndex] = {}
        self._lock = Lock()

    @overload
    def search(self, query: SearchCriteria) -> BaselineResults: ...
    @overload
    def search(
        self,
        query: str,
        *,
        dataset: str,
        top_k: int = 10,
        mode: str = "hybrid",
        rerank: bool = False,
    ) -> BaselineResults: ...
    def search(
        self,
        query: str | SearchCriteria,
        *,
        dataset: str | None = None,
        top_k: int = 10,
        mode: str = "hybrid",
        rerank: bool = False,
    ) -> BaselineResults:
        """Return the ``top_k`` best passages of a dataset for a query, best first.

        Every character of the query is plain text. Raises :class:`InputError` kinds for a bad
        call, and :class:`ConfigError` for ``rerank`` without a language model.
        """
        started = time.perf_counter()
        if isinstance(query, SearchCriteria):
            criteria = query
        else:
            values = {"query": query, "dataset": dataset, "top_k": top_k}
            criteria = SearchCriteria.model_validate({**values, "mode": mode, "rerank": rerank})
        nodes = self._retrieve(criteria)
        return BaselineResults(
            tuple(_result(node, rank) for rank, node in enumerate(nodes, start=1)),
            query=criteria.query,
            dataset=criteria.dataset,
            mode=criteria.mode,
            elapsed_ms=round((time.perf_counter() - started) * 1000, 3),
        )

    def index(self, dataset: str, progress: Progress | None = None) -> None:
        """Bring v1's index of a dataset up to date; a search does that as well if necessary."""
        self._current_index(dataset, progress)

    def close(self) -> None:
        """Release indexes and connections; safe to call twice, and in a forked child."""
        if self._database.is_of_parent:
            return
        with self._lock:
            self._indexes.clear()
        self._database.close()

    def _retrieve(self, criteria: SearchCriteria) -> list[NodeWithScore]:
        llm = self._language_model() if criteria.rerank else None
        index = self._current_index(criteria.dataset)
        query = storable(criteria.query)
        nodes = _candidates(index, query, criteria)
        if llm is not None:
            return BaselineReranker(llm, criteria.top_k).rerank(nodes, query)
        return nodes[: criteria.top_k]

    def _language_model(self) -> LLM:
        if self._llm is None:
            raise ConfigError(
                "v1 reranks with a language model, but none was given: use "
                "SearchService(settings, llm=...), or leave rerank off"
            )
        return self._llm

    def _current_index(self, dataset: str, progress: Progress | None = None) -> LoadedIndex:
        """Return the current index of the dataset, without waiting if it exists."""
        with self._database.read() as connection:
            require_dataset(connection, storable(dataset))
        check_dataset_name(dataset)  # it names a folder from here on
        index = DatasetIndex(self._database, self._settings.home / "v1", dataset, self._embed_model)
        loaded = self._indexes.get(dataset)
        if loaded is not None and loaded.stamp == index.stamp():
            return loaded
        with self._lock:
            loaded = self._indexes.get(dataset)
            if loaded is None or loaded.stamp != index.stamp():
                loaded = self._indexes[dataset] = index.load(progress)
            return loaded


def _candidates(index: LoadedIndex, query: str, criteria: SearchCriteria) -> list[NodeWithScore]:
    """Return ``top_k`` passages of the mode, or all that a leg gives if they are reranked."""
    depth = max(MIN_DEPTH, 2 * criteria.top_k)
    lexical = FTSChunkRetriever(index.chunks, index.vectors.docstore, depth)
    vector = VectorSearch(index.vectors, depth)
    if criteria.mode == "lexical":
        return lexical.retrieve(query)
    if criteria.mode == "vector":
        return vector.search(query)
    count = depth if criteria.rerank else criteria.top_k
    return HybridSearch(lexical, vector.as_retriever(), count).search(query)


def _result(node: NodeWithScore, rank: int) -> BaselineResult:
    metadata = node.node.metadata
    return BaselineResult(
        rank=rank,
        score=float(node.score or 0.0),
        path=metadata["path"],
        source_doc_id=metadata["source_doc_id"],
        chunk_id=node.node.node_id,
        title=metadata["title"],
        text=node.text,
    )
