"""Search of embeddings that were computed earlier, without a call to any model.

``SemanticContextRetriever(cache_dir=".emb_cache").retrieve(query_embedding=vector, top_k=5)``
"""

from __future__ import annotations

from catalog.core.errors import SemanticConfigError as ConfigError
from catalog.core.errors import SemanticIndexError as IndexError  # noqa: A004 - the design's name
from catalog.core.errors import SemanticQueryError as QueryError
from catalog.core.errors import SemanticRetrievalError
from catalog.search_v2.precomputed.embedding_index import EmbeddingIndex
from catalog.search_v2.precomputed.semantic_retriever import SemanticContextRetriever
from catalog.search_v2.precomputed.semantic_types import (
    AgentContextConfig,
    ChunkWithScore,
    EmbeddingMetadata,
    EmbeddingProvider,
    EmbeddingVector,
    RetrieverConfig,
)

__all__ = [
    "AgentContextConfig",
    "ChunkWithScore",
    "ConfigError",
    "EmbeddingIndex",
    "EmbeddingMetadata",
    "EmbeddingProvider",
    "EmbeddingVector",
    "IndexError",
    "QueryError",
    "RetrieverConfig",
    "SemanticContextRetriever",
    "SemanticRetrievalError",
]
