"""The v2 pipeline: opt-in successor of ``catalog.search``, driven by ``IDX_RAG_V2__*``.

``search`` is the whole of it as a function, ``ask`` answers from what it finds and ``generate``
makes a document of it. Every LlamaIndex part can be imported from here as well, and is loaded when
it is: ``from catalog.search_v2 import CatalogRetriever``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from catalog.core.edges import asked_at
from catalog.core.param_fields import takes
from catalog.core.params import SearchParams
from catalog.search_v2.shared import close, shared_service

if TYPE_CHECKING:
    from catalog.core.results import SearchResults
    from catalog.search_v2.llama import (
        CachedEmbedding,
        CatalogRetriever,
        ChunkPersistenceTransform,
        ChunkSplitter,
        DatasetRetriever,
        DistinctText,
        EmbeddingPrefixTransform,
        HybridRetrieverFactoryV2,
        IngestionPipelineBuilderV2,
        KeepFirst,
        KeywordChunkSelector,
        LexicalRetriever,
        LexVecQueryTransform,
        MaxChunksPerDocument,
        PersistenceTransform,
        QueryExpansionRetrieverV2,
        RelevanceEstimator,
        RerankPostprocessor,
        SearchServiceV2,
        ServicePostprocessor,
        SimilarityThreshold,
        TemporalExpansion,
        TokenBudget,
        VectorRetriever,
    )

__all__ = [
    "AnswerQueryEngine",
    "CachedEmbedding",
    "CatalogRetriever",
    "ChunkPersistenceTransform",
    "ChunkSplitter",
    "CitedSentences",
    "CollectionRetriever",
    "CollectionSearch",
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
    "PrecomputedLeg",
    "PrecomputedRetriever",
    "QueryEngineBuilderV2",
    "QueryExpansionRetrieverV2",
    "RelevanceEstimator",
    "RerankPostprocessor",
    "SearchServiceV2",
    "ServicePostprocessor",
    "SimilarityThreshold",
    "TemporalExpansion",
    "TokenBudget",
    "VectorRetriever",
    "ask",
    "close",
    "generate",
    "precomputed_hybrid",
    "search",
]
_PRECOMPUTED = "catalog.search_v2.precomputed.precomputed_retriever"
_ELSEWHERE = {
    "CollectionRetriever": "catalog.search_v2.collections",
    "CollectionSearch": "catalog.search_v2.collections",
    "PrecomputedLeg": _PRECOMPUTED,
    "PrecomputedRetriever": _PRECOMPUTED,
    "precomputed_hybrid": _PRECOMPUTED,
    "AnswerQueryEngine": "catalog.answers.llama_engines",
    "CitedSentences": "catalog.answers.cited_sentences",
    "QueryEngineBuilderV2": "catalog.answers.query_engine_builder",
    "ask": "catalog.answers.answering",
    "generate": "catalog.answers.generating",
}


@takes(SearchParams)
def search(params: SearchParams) -> SearchResults:
    """Return the ``top_k`` best passages of a dataset for a query, best first.

    Uses the effective settings (``catalog config``) and keeps one service open for each set of
    them in this process; :func:`close` releases it. See ``SearchServiceV2.search`` for the rules.
    """
    with asked_at("python"):
        return shared_service().run_logged(params)


def __getattr__(name: str) -> Any:
    """Load the LlamaIndex parts, and answers, when the first of them is asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    part = getattr(import_module(_ELSEWHERE.get(name, "catalog.search_v2.llama")), name)
    globals()[name] = part
    return part


def __dir__() -> list[str]:
    """List every name there is, loaded or not."""
    return sorted({*globals(), *__all__})
