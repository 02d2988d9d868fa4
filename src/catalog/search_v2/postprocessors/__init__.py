"""Selection stages, as LlamaIndex postprocessors that work on any retriever's nodes.

None changes a node or makes a new one: the nodes kept are the very objects given.
"""

from __future__ import annotations

from catalog.search_v2.postprocessors.distinct import DistinctText
from catalog.search_v2.postprocessors.keep_first import KeepFirst
from catalog.search_v2.postprocessors.keyword_chunk import KeywordChunkSelector
from catalog.search_v2.postprocessors.max_chunks import MaxChunksPerDocument
from catalog.search_v2.postprocessors.threshold import SimilarityThreshold
from catalog.search_v2.postprocessors.token_budget import TokenBudget

__all__ = [
    "DistinctText",
    "KeepFirst",
    "KeywordChunkSelector",
    "MaxChunksPerDocument",
    "SimilarityThreshold",
    "TokenBudget",
]
