"""A floor under the relevance of what is shown."""

from __future__ import annotations

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle
from pydantic import Field


class SimilarityThreshold(BaseNodePostprocessor):
    """Drops nodes whose relevance is below ``minimum``, a number in 0..1; 0 keeps all.

    The relevance is what a node says in ``relevance``; of nodes that have no such attribute it is
    the score, if that lies in 0..1. A passage of v2 that was not calibrated, or a node scored by
    BM25, cannot be judged: it stays unless ``keep_unjudged`` is off. Scores of other people's
    fusions lie in 0..1 too without being a relevance: do not put this behind one.
    """

    minimum: float = Field(0.0, ge=0.0, le=1.0)
    keep_unjudged: bool = True

    @classmethod
    def class_name(cls) -> str:
        """The name LlamaIndex stores it under."""
        return "SimilarityThreshold"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        del query_bundle
        if self.minimum == 0:
            return nodes
        return [node for node in nodes if self._keeps(node)]

    def _keeps(self, node: NodeWithScore) -> bool:
        relevance = _relevance(node)
        return self.keep_unjudged if relevance is None else relevance >= self.minimum


def _relevance(node: NodeWithScore) -> float | None:
    if hasattr(node, "relevance"):
        said: float | None = node.relevance
        return said
    return node.score if node.score is not None and 0.0 <= node.score <= 1.0 else None
