"""Selection stages, as LlamaIndex postprocessors that work on any retriever's nodes."""

from __future__ import annotations

from collections import Counter

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle
from pydantic import Field


class MaxChunksPerDocument(BaseNodePostprocessor):
    """Keeps at most ``limit`` passages of one document, in the order given; 0 keeps all.

    1 is best-chunk mode. Fetch more than you need before it: it only takes away.
    """

    limit: int = Field(3, ge=0)

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        del query_bundle
        if self.limit == 0:
            return nodes
        seen: Counter[str] = Counter()
        kept: list[NodeWithScore] = []
        for node in nodes:
            document = _document_of(node)
            seen[document] += 1
            if seen[document] <= self.limit:
                kept.append(node)
        return kept


def _document_of(node: NodeWithScore) -> str:
    """The document a node was cut from; a node that names none stands for itself."""
    named = node.node.metadata.get("source_doc_id") or node.node.ref_doc_id
    return str(named or node.node.node_id)
