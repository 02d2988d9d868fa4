"""Build a LlamaIndex query engine from the search's parts and an answer synthesizer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Iterator, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple

from llama_index.core import Settings as LlamaSettings
from llama_index.core.base.response.schema import RESPONSE_TYPE
from llama_index.core.callbacks import CallbackManager
from llama_index.core.llms import LLM
from llama_index.core.llms.mock import MockLLM
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.prompts.mixin import PromptDictType
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.response_synthesizers.base import BaseSynthesizer, QueryTextType
from llama_index.core.response_synthesizers.context_only import ContextOnly
from llama_index.core.response_synthesizers.no_text import NoText
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle, TextNode

from catalog.answers.extracting import extract_sentences
from catalog.core.errors import InputError
from catalog.core.params import DatasetChoice
from catalog.retrieval.citations import format_citation
from catalog.retrieval.request import search_arguments
from catalog.retrieval.shared import shared_service
from catalog.search_v2.nodes import PassageNode, ScoredPassage, ScoreName
from catalog.search_v2.postprocessors import ServicePostprocessor
from catalog.search_v2.retrievers import CatalogRetriever

if TYPE_CHECKING:
    from llama_index.core.callbacks import CallbackManager

    from catalog.retrieval.search import Searcher


NOTHING = "No passage was found."


class CitedSentences(BaseSynthesizer):
    """Answer with the sentences that answer best, word for word and cited, without a model.

    At most ``sentences`` are used. Each has the number of its node, and a line for each number
    names the passage. Works on any nodes: one that is not our passage is cited by its path or file
    name.

    Examples:
        >>> from catalog.search_v2 import CatalogRetriever, CitedSentences
        >>> nodes = CatalogRetriever("notes", top_k=1).retrieve("when do backups run")
        >>> print(CitedSentences(sentences=1).synthesize("when do backups run", nodes))
        Backups run at midnight and are kept for thirty days. [1]
        <BLANKLINE>
        [1] guides/backup.md [source: Backups, lines 1-3]
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
        """Answer like :meth:`synthesize`."""
        response = await super().asynthesize(query, self._extracted(query, nodes), **kwargs)
        return self._with_sources(response, [*nodes, *(additional_source_nodes or ())])

    def _extracted(
        self, query: QueryTextType, nodes: Sequence[NodeWithScore]
    ) -> list[NodeWithScore]:
        """Return the parts of the answer as nodes; empty without nodes."""
        text = query.query_str if isinstance(query, QueryBundle) else query
        parts = _extract(text, nodes, self._most) if nodes else ()
        return [NodeWithScore(node=TextNode(text=part)) for part in parts if part]

    def get_response(
        self, query_str: str, text_chunks: Sequence[str], **_: Any
    ) -> str | Generator[str, None, None]:
        """Return the texts, with a blank line between them; one by one if it streams."""
        del query_str
        parts = _spaced(text_chunks)
        return (part for part in parts) if self._streaming else "".join(parts)

    async def aget_response(
        self, query_str: str, text_chunks: Sequence[str], **_: Any
    ) -> str | AsyncGenerator[str, None]:
        """Answer like :meth:`get_response`."""
        del query_str
        parts = _spaced(text_chunks)

        async def one_by_one() -> AsyncGenerator[str, None]:
            for part in parts:
                yield part

        return one_by_one() if self._streaming else "".join(parts)

    def _with_sources(self, response: RESPONSE_TYPE, nodes: list[NodeWithScore]) -> RESPONSE_TYPE:
        response.source_nodes = nodes
        response.metadata = self._get_metadata_for_response([node.node for node in nodes])
        return response

    def _get_prompts(self) -> PromptDictType:
        return {}

    def _update_prompts(self, prompts: PromptDictType) -> None:
        pass


def _spaced(texts: Sequence[str]) -> list[str]:
    """Return the texts, with a blank line before each but the first; without any, say so."""
    return [f"\n\n{text}" if n else text for n, text in enumerate(texts)] or [NOTHING]


def _extract(query: str, nodes: Sequence[NodeWithScore], most: int) -> Iterator[str]:
    """Yield the best sentences with their numbers, then the sources of the numbers."""
    sources = [_Source.of(number, node) for number, node in enumerate(nodes, start=1)]
    sentences = extract_sentences(query, sources, most)
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


_ENGINE_ARGUMENTS = (
    "llm",
    "node_postprocessors",
    "response_synthesizer",
    "streaming",
    "callback_manager",
    "score",
)
_SILENT: dict[str, type[BaseSynthesizer]] = {"no_text": NoText, "context_only": ContextOnly}
_SYNTHESIS = tuple(signature(get_response_synthesizer).parameters)


class QueryEngineBuilderV2:
    """Assemble retriever, stages and answer synthesis.

    Examples:
        >>> from catalog.search_v2 import QueryEngineBuilderV2
        >>> engine = QueryEngineBuilderV2().build_query_engine("notes", top_k=1)
        >>> print(engine.query("at how many degrees is bread baked"))
        Bake the bread at 230 degrees. [1]
        <BLANKLINE>
        [1] recipes/bread.txt [source: bread, line 1]
    """

    def __init__(self, service: Searcher | None = None) -> None:
        self._service = service

    def build_query_engine(
        self,
        dataset_name: DatasetChoice = None,
        *,
        llm: LLM | None = None,
        node_postprocessors: Sequence[BaseNodePostprocessor] | None = None,
        response_synthesizer: BaseSynthesizer | None = None,
        streaming: bool = False,
        callback_manager: CallbackManager | None = None,
        score: ScoreName = "fused",
        **arguments: Any,
    ) -> RetrieverQueryEngine:
        """Return a query engine over datasets; ``arguments`` are those of ``retrieve``.

        Others are for LlamaIndex's ``get_response_synthesizer``: ``response_mode``, ``output_cls``,
        ``text_qa_template`` … ``score`` is that of :class:`CatalogRetriever`.

        Its postprocessors are the service's own (reranking, relevance, cuts, evidence of
        recordings), so that it answers from the same passages as ``retrieve``, followed by the
        ``node_postprocessors``. Without an ``llm``, here or in LlamaIndex's ``Settings``, the
        answer is the sentences that answer best with their passages (:class:`CitedSentences`),
        without a model; it never abstains, unlike :class:`AnswerQueryEngine`. ``streaming`` returns
        the answer while the model writes it. Raises :class:`InputError` for an unknown argument,
        and for one about writing if no model made here writes.
        """
        writing = {name: arguments.pop(name) for name in _SYNTHESIS if name in arguments}
        search = search_arguments(arguments, *_ENGINE_ARGUMENTS, *_SYNTHESIS)
        model = llm or LlamaSettings._llm  # Settings.llm would look for OpenAI
        callbacks = callback_manager or LlamaSettings.callback_manager
        if streaming:
            writing["streaming"] = True
        silent = _SILENT.get(str(getattr(mode := writing.get("response_mode"), "value", mode)))
        if silent is not None and response_synthesizer is None:
            response_synthesizer = silent(llm=MockLLM(), callback_manager=callbacks)
        elif writing and (response_synthesizer is not None or model is None):
            name = next(iter(writing))
            raise InputError(
                f"{name} needs a language model: give llm, or leave {name} out"
                if response_synthesizer is None
                else f"{name} is for the response_synthesizer: make it with {name}=…"
            )
        if response_synthesizer is None and model is None:
            service = self._service or shared_service()
            most = service.parts.settings.answers.sentences
            response_synthesizer = CitedSentences(callbacks, sentences=most)
        elif response_synthesizer is None:
            response_synthesizer = get_response_synthesizer(
                llm=model, callback_manager=callbacks, **writing
            )
        own = ServicePostprocessor(self._service, score=score, **search)
        retriever = CatalogRetriever(
            dataset_name, service=self._service, whole=False, callback_manager=callbacks, **search
        )
        stages = [own, *(node_postprocessors or ())]
        return RetrieverQueryEngine(
            retriever, response_synthesizer, stages, callback_manager=callbacks
        )
