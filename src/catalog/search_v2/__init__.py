"""The v2 pipeline: opt-in successor of ``catalog.search``, with settings ``IDX_RAG_V2__*``.

One import for all: the verbs as functions (``index``, ``search``, ``ask``, ``compare`` …) and every
LlamaIndex part. A name is loaded when it is first used, also where its room is above this one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from catalog.core.arguments import takes
from catalog.core.params import SearchParams
from catalog.core.retrieval_events import asked_at
from catalog.retrieval.shared import close as close
from catalog.retrieval.shared import shared_service

if TYPE_CHECKING:  # for type checkers: the same names as in _NAMES, public by their alias
    from catalog.answers.answering import ask as ask
    from catalog.answers.generating import generate as generate
    from catalog.core.results import SearchResults
    from catalog.interfaces.python import browse as browse
    from catalog.interfaces.python import compare as compare
    from catalog.interfaces.python import get as get
    from catalog.interfaces.python import index as index
    from catalog.interfaces.python import remove as remove
    from catalog.interfaces.python import replay as replay
    from catalog.interfaces.python import tune as tune
    from catalog.interfaces.python import why as why
    from catalog.search_v2.collections import CollectionRetriever as CollectionRetriever
    from catalog.search_v2.collections import CollectionSearch as CollectionSearch
    from catalog.search_v2.ingestion import ChunkSplitter as ChunkSplitter
    from catalog.search_v2.ingestion import DatasetVectorStore as DatasetVectorStore
    from catalog.search_v2.ingestion import IngestionPipelineBuilderV2 as IngestionPipelineBuilderV2
    from catalog.search_v2.ingestion_places import (
        EmbeddingPrefixTransform as EmbeddingPrefixTransform,
    )
    from catalog.search_v2.ingestion_storing import CachedEmbedding as CachedEmbedding
    from catalog.search_v2.ingestion_storing import (
        ChunkPersistenceTransform as ChunkPersistenceTransform,
    )
    from catalog.search_v2.ingestion_storing import IngestionReport as IngestionReport
    from catalog.search_v2.ingestion_storing import PersistenceTransform as PersistenceTransform
    from catalog.search_v2.nodes import docstore as docstore
    from catalog.search_v2.postprocessors import DistinctText as DistinctText
    from catalog.search_v2.postprocessors import KeywordChunkSelector as KeywordChunkSelector
    from catalog.search_v2.postprocessors import MaxChunksPerDocument as MaxChunksPerDocument
    from catalog.search_v2.postprocessors import RerankPostprocessor as RerankPostprocessor
    from catalog.search_v2.postprocessors import TemporalExpansion as TemporalExpansion
    from catalog.search_v2.postprocessors import TokenBudget as TokenBudget
    from catalog.search_v2.query_engine import AnswerQueryEngine as AnswerQueryEngine
    from catalog.search_v2.query_engine import CitedSentences as CitedSentences
    from catalog.search_v2.query_engine import QueryEngineBuilderV2 as QueryEngineBuilderV2
    from catalog.search_v2.retrievers import CatalogRetriever as CatalogRetriever
    from catalog.search_v2.retrievers import DatasetRetriever as DatasetRetriever
    from catalog.search_v2.retrievers import HybridRetrieverFactoryV2 as HybridRetrieverFactoryV2
    from catalog.search_v2.retrievers import PrecomputedRetriever as PrecomputedRetriever
    from catalog.search_v2.retrievers import QueryExpansionRetrieverV2 as QueryExpansionRetrieverV2
    from catalog.search_v2.service import SearchServiceV2 as SearchServiceV2

_NAMES = {
    "answers.answering": "ask",
    "answers.generating": "generate",
    "interfaces.python": "browse compare get index remove replay tune why",
    "search_v2.collections": "CollectionRetriever CollectionSearch",
    "search_v2.ingestion": "ChunkSplitter DatasetVectorStore IngestionPipelineBuilderV2",
    "search_v2.ingestion_places": "EmbeddingPrefixTransform",
    "search_v2.ingestion_storing": "CachedEmbedding ChunkPersistenceTransform IngestionReport "
    "PersistenceTransform",
    "search_v2.nodes": "docstore",
    "search_v2.postprocessors": "DistinctText KeywordChunkSelector MaxChunksPerDocument "
    "RerankPostprocessor TemporalExpansion TokenBudget",
    "search_v2.query_engine": "AnswerQueryEngine CitedSentences QueryEngineBuilderV2",
    "search_v2.retrievers": "CatalogRetriever DatasetRetriever "
    "HybridRetrieverFactoryV2 PrecomputedRetriever QueryExpansionRetrieverV2",
    "search_v2.service": "SearchServiceV2",
}
_MODULE_OF = {name: f"catalog.{at}" for at, names in _NAMES.items() for name in names.split()}
if not TYPE_CHECKING:  # which would take the list as all that there is
    __all__ = [*sorted(_MODULE_OF), "close", "search"]


@takes(SearchParams)
def search(params: SearchParams) -> SearchResults:
    """Return the ``top_k`` best passages of a dataset for a query, best first.

    Uses the effective settings (``catalog config``) and keeps one service open for each set of
    them in this process; :func:`close` releases it. See ``SearchServiceV2.search`` for the rules.

    Examples:
        >>> from catalog.search_v2 import search
        >>> results = search("how often do keys change", dataset="notes", top_k=3)
        >>> results[0].path, results[0].citation
        ('keys.md', '[source: Keys, lines 4-12]')
    """
    with asked_at("python"):
        return shared_service().run_logged(params)


def __getattr__(name: str) -> Any:
    """Load the LlamaIndex parts, and answers, at their first use."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    part = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
    return part


def __dir__() -> list[str]:
    """List all names, loaded or not."""
    return sorted({*globals(), *_MODULE_OF})
