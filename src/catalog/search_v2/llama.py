"""Search as LlamaIndex objects: everything that a LlamaIndex user takes from here, in one place.

================================  ===========================================================
``CatalogRetriever``              the whole query path as one retriever
``HybridRetrieverFactoryV2``      both legs, fused: makes ``QueryFusionRetriever`` objects
``DatasetRetriever``              what it makes for a dataset
``QueryExpansionRetrieverV2``     the same with a language model's other words for the query
``LexicalRetriever``              one leg over one dataset (``BaseRetriever``)
``VectorRetriever``               the other
``ServicePostprocessor``          the stages after fusion as one postprocessor
``LexVecQueryTransform``          other words for a query as a query transform
``IngestionPipelineBuilderV2``    an ``IngestionPipeline`` into a dataset
================================  ===========================================================

Postprocessors and transforms stand beside them. All can be imported from ``catalog.search_v2``.
What is given no service uses the one that this process shares: that of the effective settings.
The service itself runs the retrievers and postprocessors; the others call it.
``docs/decisions/0015-where-llamaindex-runs.md`` says why the line is drawn there.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from llama_index.core import Settings as LlamaSettings
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle
from pydantic import PrivateAttr

from catalog.core.param_types import DatasetChoice, Mode
from catalog.core.params import SearchParams
from catalog.core.query import parse_query
from catalog.ingest.transforms import (
    CachedEmbedding,
    ChunkPersistenceTransform,
    ChunkSplitter,
    EmbeddingPrefixTransform,
    PersistenceTransform,
)
from catalog.search_v2.expansion.sources import LexVecQueryTransform
from catalog.search_v2.ingestion import IngestionPipelineBuilderV2
from catalog.search_v2.legs import LexicalRetriever, VectorRetriever
from catalog.search_v2.passages import PassagePostprocessor
from catalog.search_v2.relevance import RelevanceEstimator
from catalog.search_v2.request import check_search, for_agent, search_arguments
from catalog.search_v2.rerank.postprocessor import RerankPostprocessor
from catalog.search_v2.retriever_factory import (
    DatasetRetriever,
    HybridRetrieverFactoryV2,
    QueryExpansionRetrieverV2,
)
from catalog.search_v2.select import (
    DistinctText,
    KeepFirst,
    KeywordChunkSelector,
    MaxChunksPerDocument,
    SimilarityThreshold,
    TokenBudget,
)
from catalog.search_v2.service import SearchServiceV2
from catalog.search_v2.shared import shared_service
from catalog.search_v2.temporal import TemporalExpansion

if TYPE_CHECKING:
    from llama_index.core.callbacks import CallbackManager

__all__ = [
    "CachedEmbedding",
    "CatalogRetriever",
    "ChunkPersistenceTransform",
    "ChunkSplitter",
    "DatasetRetriever",
    "DistinctText",
    "EmbeddingPrefixTransform",
    "HybridRetrieverFactoryV2",
    "IngestionPipelineBuilderV2",
    "KeepFirst",
    "KeywordChunkSelector",
    "LexVecQueryTransform",
    "LexicalRetriever",
    "MaxChunksPerDocument",
    "PersistenceTransform",
    "QueryExpansionRetrieverV2",
    "RelevanceEstimator",
    "RerankPostprocessor",
    "SearchServiceV2",
    "ServicePostprocessor",
    "SimilarityThreshold",
    "TemporalExpansion",
    "TokenBudget",
    "VectorRetriever",
]


class CatalogRetriever(BaseRetriever):
    """The v2 query path over a dataset, several or all as one LlamaIndex retriever, for any query.

    ``search`` are parameters of :class:`SearchParams`, such as ``top_k``, ``filters`` and
    ``rerank``; LlamaIndex's ``similarity_top_k`` is ``top_k``. Several datasets are as one; without
    any all are. ``whole=False`` ends after selection, for those who chain the later stages
    themselves. A query bundle's ``embedding`` or ``custom_embedding_strs`` are searched for by
    meaning in place of the query.
    """

    def __init__(
        self,
        dataset: DatasetChoice = None,
        *,
        service: SearchServiceV2 | None = None,
        whole: bool = True,
        callback_manager: CallbackManager | None = None,
        **search: Any,
    ) -> None:
        self._service, self._is_whole = service, whole
        self._params = SearchParams("", dataset=dataset, **search_arguments(search))
        check_search(self._params)
        super().__init__(callback_manager or LlamaSettings.callback_manager)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        service = self._service or shared_service()
        params = replace(self._params, query=query_bundle.query_str)
        return service.nodes(params, is_refined=self._is_whole, bundle=query_bundle)

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)


class ServicePostprocessor(PassagePostprocessor):
    """The service's own stages in one, told what a query is about and not how it was typed.

    ``stages`` are LlamaIndex postprocessors, to be taken out and used.
    """

    stages: list[BaseNodePostprocessor]
    _max_chars: int = PrivateAttr()
    _mode: Mode = PrivateAttr()

    def __init__(self, service: SearchServiceV2 | None = None, **search: Any) -> None:
        params = SearchParams("", **search_arguments(search))
        service = service or shared_service()
        super().__init__(stages=service.postprocessors(params))
        self._max_chars = service.parts.rag.max_query_chars
        self._mode = for_agent(params, service.parts.settings).mode or "hybrid"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if query_bundle is not None:
            parsed = parse_query(query_bundle.query_str, max_chars=self._max_chars)
            query_bundle = QueryBundle(parsed.about(self._mode))
        for stage in self.stages:
            stage.callback_manager = self.callback_manager
            nodes = stage.postprocess_nodes(nodes, query_bundle)
        return nodes
