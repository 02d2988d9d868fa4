"""v1's fusion: both legs under LlamaIndex's stock ``QueryFusionRetriever``."""

from __future__ import annotations

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.llms.mock import MockLLM
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES
from llama_index.core.schema import NodeWithScore


class HybridSearch:
    """Reciprocal rank fusion of the stock class: ``1 / (60 + rank)``, ranks from 0."""

    def __init__(
        self, lexical: BaseRetriever, vector: BaseRetriever, similarity_top_k: int
    ) -> None:
        self._legs = [lexical, vector]
        self._similarity_top_k = similarity_top_k

    def as_retriever(self) -> QueryFusionRetriever:
        """Return the fusion of both legs, which calls no language model."""
        return QueryFusionRetriever(
            self._legs,
            llm=MockLLM(),  # never asked; without one the class looks for OpenAI
            mode=FUSION_MODES.RECIPROCAL_RANK,
            similarity_top_k=self._similarity_top_k,
            num_queries=1,
            use_async=False,
        )

    def search(self, query: str) -> list[NodeWithScore]:
        """Return the fused chunks, best first."""
        return self.as_retriever().retrieve(query)
