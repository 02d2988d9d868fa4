"""The cut at the number of passages asked for."""

from __future__ import annotations

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle
from pydantic import Field


class KeepFirst(BaseNodePostprocessor):
    """Keeps the first ``limit`` passages."""

    limit: int = Field(10, ge=1)

    @classmethod
    def class_name(cls) -> str:
        """The name LlamaIndex serialises."""
        return "KeepFirst"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        del query_bundle
        return nodes[: self.limit]
