"""Answers of a query engine without a language model: the passages' own best sentences, cited."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from llama_index.core.base.response.schema import RESPONSE_TYPE, Response
from llama_index.core.callbacks import CallbackManager
from llama_index.core.llms.mock import MockLLM
from llama_index.core.prompts.mixin import PromptDictType
from llama_index.core.response_synthesizers.base import BaseSynthesizer, QueryTextType
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle, TextNode

from catalog.answers.extracting import extract_sentences
from catalog.retrieval.citations import format_citation
from catalog.search_v2.nodes import PassageNode, ScoredPassage

NOTHING = "No passage was found."


class CitedSentences(BaseSynthesizer):
    """Answer with the sentences that answer best, word for word and cited; no model is asked.

    ``sentences`` is how many at most. Each has the number of its node, and a line for each of these
    says which passage that is. Works on any nodes: one that is no passage of ours is cited by its
    path or file name.
    """

    def __init__(
        self, callback_manager: CallbackManager | None = None, *, sentences: int = 3
    ) -> None:
        # A model given explicitly: LlamaIndex would look for OpenAI otherwise.
        super().__init__(llm=MockLLM(), callback_manager=callback_manager, empty_response=NOTHING)
        self._most = sentences

    def synthesize(
        self,
        query: QueryTextType,
        nodes: list[NodeWithScore],
        additional_source_nodes: Sequence[NodeWithScore] | None = None,
        **kwargs: Any,
    ) -> RESPONSE_TYPE:
        """Return the sentences as the response's text, and all nodes as its sources."""
        response = super().synthesize(query, self._extracted(query, nodes), **kwargs)
        return self._with_sources(response, [*nodes, *(additional_source_nodes or ())])

    async def asynthesize(
        self,
        query: QueryTextType,
        nodes: list[NodeWithScore],
        additional_source_nodes: Sequence[NodeWithScore] | None = None,
        **kwargs: Any,
    ) -> RESPONSE_TYPE:
        """Do the same as :meth:`synthesize`."""
        response = await super().asynthesize(query, self._extracted(query, nodes), **kwargs)
        return self._with_sources(response, [*nodes, *(additional_source_nodes or ())])

    def _extracted(
        self, query: QueryTextType, nodes: Sequence[NodeWithScore]
    ) -> list[NodeWithScore]:
        """Return the parts of the answer as nodes, none of no nodes."""
        text = query.query_str if isinstance(query, QueryBundle) else query
        parts = _extract(text, nodes, self._most) if nodes else ()
        return [NodeWithScore(node=TextNode(text=part)) for part in parts if part]

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


def _extract(query: str, nodes: Sequence[NodeWithScore], most: int) -> Iterator[str]:
    """Yield the best sentences with their numbers, and then what the numbers stand for."""
    sources = [_Source.of(number, node) for number, node in enumerate(nodes, start=1)]
    sentences, _ = extract_sentences(query, sources, most)
    cited = {number for sentence in sentences for number in sentence.citations}
    yield "\n".join(sentence.marked() for sentence in sentences)
    yield "\n".join(
        f"[{number}] {_cite(node)}"
        for number, node in enumerate(nodes, start=1)
        if number in cited or not cited
    )


class _Source(NamedTuple):
    rank: int
    title: str
    sections: Sequence[str]
    text: str
    score: float
    relevance: float | None
    link: None = None

    @classmethod
    def of(cls, number: int, node: NodeWithScore) -> _Source:
        chunk = node.node.chunk if isinstance(node.node, PassageNode) else None
        return cls(
            rank=number,
            title=chunk.title if chunk else "",
            sections=chunk.sections if chunk else (),
            text=node.node.get_content(metadata_mode=MetadataMode.NONE),
            score=node.score or 0.0,
            relevance=node.relevance if isinstance(node, ScoredPassage) else None,
        )


def _cite(node: NodeWithScore) -> str:
    if isinstance(node.node, PassageNode):
        return f"{node.node.chunk.path} {format_citation(node.node.chunk)}"
    metadata = node.node.metadata
    names = (metadata.get(key) for key in ("path", "file_path", "file_name"))
    return str(next(filter(None, names), node.node.ref_doc_id or node.node.node_id))
