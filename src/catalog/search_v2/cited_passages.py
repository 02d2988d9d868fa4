"""Answers without a language model: the passages themselves, each behind its citation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.base.response.schema import RESPONSE_TYPE, Response
from llama_index.core.callbacks import CallbackManager
from llama_index.core.llms.mock import MockLLM
from llama_index.core.prompts.mixin import PromptDictType
from llama_index.core.response_synthesizers.base import BaseSynthesizer, QueryTextType
from llama_index.core.schema import NodeWithScore, TextNode

from catalog.search_v2.citations import format_citation
from catalog.search_v2.passages import PassageNode
from catalog.search_v2.select import text_of

NOTHING = "No passage was found."


class CitedPassages(BaseSynthesizer):
    """Answer with the passages, best first, numbered and cited; no model is asked.

    Works on any nodes: one that is no passage of ours is cited by its path or file name.
    """

    def __init__(self, callback_manager: CallbackManager | None = None) -> None:
        # A model given explicitly: LlamaIndex would look for OpenAI otherwise.
        super().__init__(llm=MockLLM(), callback_manager=callback_manager, empty_response=NOTHING)

    def synthesize(
        self,
        query: QueryTextType,
        nodes: list[NodeWithScore],
        additional_source_nodes: Sequence[NodeWithScore] | None = None,
        **kwargs: Any,
    ) -> RESPONSE_TYPE:
        """Return the passages as the response's text, and themselves as its sources."""
        response = super().synthesize(query, _cited(nodes), **kwargs)
        return self._with_sources(response, [*nodes, *(additional_source_nodes or ())])

    async def asynthesize(
        self,
        query: QueryTextType,
        nodes: list[NodeWithScore],
        additional_source_nodes: Sequence[NodeWithScore] | None = None,
        **kwargs: Any,
    ) -> RESPONSE_TYPE:
        """Do the same as :meth:`synthesize`."""
        response = await super().asynthesize(query, _cited(nodes), **kwargs)
        return self._with_sources(response, [*nodes, *(additional_source_nodes or ())])

    def get_response(self, query_str: str, text_chunks: Sequence[str], **_: Any) -> str:
        """Return the texts, a blank line between them."""
        del query_str
        return "\n\n".join(text_chunks) or NOTHING

    async def aget_response(self, query_str: str, text_chunks: Sequence[str], **_: Any) -> str:
        """Do the same as :meth:`get_response`."""
        return self.get_response(query_str, text_chunks)

    def _with_sources(self, response: RESPONSE_TYPE, nodes: list[NodeWithScore]) -> RESPONSE_TYPE:
        if isinstance(response, Response):
            response.source_nodes = nodes
            response.metadata = self._get_metadata_for_response([node.node for node in nodes])
        return response

    def _get_prompts(self) -> PromptDictType:
        return {}

    def _update_prompts(self, prompts: PromptDictType) -> None:
        pass


def _cited(nodes: Sequence[NodeWithScore]) -> list[NodeWithScore]:
    """Return nodes whose text begins with number and citation."""
    return [
        NodeWithScore(node=TextNode(text=f"[{number}] {_cite(node)}\n{_read(node)}"))
        for number, node in enumerate(nodes, start=1)
    ]


def _cite(node: NodeWithScore) -> str:
    if isinstance(node.node, PassageNode):
        return f"{node.node.chunk.path} {format_citation(node.node.chunk)}"
    metadata = node.node.metadata
    names = (metadata.get(key) for key in ("path", "file_path", "file_name"))
    return str(next(filter(None, names), node.node.ref_doc_id or node.node.node_id))


def _read(node: NodeWithScore) -> str:
    """Return what is said and shown around a passage of a recording, else its text."""
    return str(node.node.metadata.get("evidence") or text_of(node)).strip()
