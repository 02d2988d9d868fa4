"""Every text once, so that a passage filed twice does not fill an answer."""

from __future__ import annotations

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from catalog.search_v2.frame_text import frame_body
from catalog.search_v2.postprocessors.nodes import is_frame, text_of


class DistinctText(BaseNodePostprocessor):
    """Drops a node whose text equals an earlier node's, whitespace apart; case matters.

    A node without a text, such as an image, equals no other. Of a video's frame the heading with
    its time does not count: a slide that stays is one text, at whichever second.
    """

    @classmethod
    def class_name(cls) -> str:
        """The name LlamaIndex stores it under."""
        return "DistinctText"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        del query_bundle
        kept: list[NodeWithScore] = []
        seen: set[str] = set()
        for node in nodes:
            text = " ".join(_shown(node).split())
            if text not in seen:
                kept.append(node)
            if text:
                seen.add(text)
        return kept


def _shown(node: NodeWithScore) -> str:
    text = text_of(node)
    return frame_body(text) if is_frame(node) else text
