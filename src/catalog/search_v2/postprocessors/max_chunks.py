"""A cap on the passages of one document."""

from __future__ import annotations

from collections import Counter

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle
from pydantic import Field

from catalog.search_v2.postprocessors.nodes import document_of


class MaxChunksPerDocument(BaseNodePostprocessor):
    """Keeps at most ``limit`` passages of one document, in the order given; 0 keeps all.

    1 is best-chunk mode. Fetch more than you need before it: it only takes away.
    """

    limit: int = Field(3, ge=0)

    @classmethod
    def class_name(cls) -> str:
        """The name LlamaIndex stores it under."""
        return "MaxChunksPerDocument"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        del query_bundle
        if self.limit == 0:
            return nodes
        seen: Counter[str] = Counter()
        kept: list[NodeWithScore] = []
        for node in nodes:
            document = document_of(node)
            seen[document] += 1
            if seen[document] <= self.limit:
                kept.append(node)
        return kept
