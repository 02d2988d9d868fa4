"""Answers as LlamaIndex query engines, and sentences of passages as a synthesizer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple

from llama_index.core import Settings as LlamaSettings
from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.response.schema import (
    RESPONSE_TYPE,
    AsyncStreamingResponse,
    Response,
    StreamingResponse,
)
from llama_index.core.callbacks import CallbackManager, CBEventType, EventPayload
from llama_index.core.instrumentation.events import retrieval, synthesis
from llama_index.core.llms import LLM, MockLLM
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.prompts.mixin import PromptDictType
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.response_synthesizers.base import BaseSynthesizer, QueryTextType
from llama_index.core.response_synthesizers.context_only import ContextOnly
from llama_index.core.response_synthesizers.no_text import NoText
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle, TextNode
from llama_index_instrumentation import get_dispatcher

from catalog.answers.answering import answer_events
from catalog.answers.extracting import choose_sentences, rank_candidates
from catalog.core.errors import InputError
from catalog.core.params import AskParams, DatasetChoice
from catalog.core.retrieval_events import asked_at
from catalog.llm import GivenLLM, LanguageModel, as_language_model, llm_of_settings
from catalog.retrieval.citations import format_citation
from catalog.retrieval.request import search_arguments
from catalog.retrieval.shared import shared_service
from catalog.search_v2.fused_retrievers import LaterSettings
from catalog.search_v2.nodes import PassageNode, ScoredPassage, link_neighbours
from catalog.search_v2.retrievers import CatalogRetriever, ScoreName

if TYPE_CHECKING:
    from llama_index.core.prompts.mixin import PromptMixinType

    from catalog.core.answers import Answer, AnswerEvent
    from catalog.core.results import SearchResult
    from catalog.retrieval.search import Searcher

NOTHING = "No passage was found."
_dispatcher = get_dispatcher(__name__)


class AnswerQueryEngine(LaterSettings[AskParams], BaseQueryEngine):
    """Answer like ``catalog ask``: checked sentences that cite the source nodes, or abstain.

    ``ask`` are parameters of :class:`AskParams`, such as ``role``. ``llm`` writes, else the model
    named by ``model``, that of LlamaIndex's ``Settings``, or the configured one. The response's
    metadata is the whole answer as JSON; its source nodes are the results in order, so that ``[n]``
    is the nth. With ``streaming`` it arrives by sentences. ``service`` defaults to the shared one.

    Examples:
        >>> from catalog.search_v2 import AnswerQueryEngine
        >>> response = AnswerQueryEngine("notes", top_k=3).query("how often are keys rotated")
        >>> print(response)
        Rotate the API keys every ninety days with the keys command. [1]
        >>> response.source_nodes[0].metadata["citation"]
        '[source: Keys, lines 4-12]'
    """

    def __init__(
        self,
        dataset: DatasetChoice = None,
        *,
        service: Searcher | None = None,
        llm: LanguageModel | GivenLLM | None = None,
        streaming: bool = False,
        callback_manager: CallbackManager | None = None,
        **ask: Any,
    ) -> None:
        own = ("service", "llm", "streaming", "callback_manager")
        ask = search_arguments({"dataset": dataset, **ask}, *own, kind=AskParams)
        self._service, self._is_streaming = service, streaming
        self._llm = None if llm is None else as_language_model(llm)
        self._default_llm = None if (of := llm_of_settings()) is None else as_language_model(of)
        self._params = AskParams("", **ask)
        super().__init__(callback_manager or LlamaSettings.callback_manager)

    def retrieve(self, query_bundle: QueryBundle | str) -> list[NodeWithScore]:
        """Return the source nodes of the answer, without answering."""
        if isinstance(query_bundle, str):
            query_bundle = QueryBundle(query_bundle)
        with asked_at("python"):
            return self._retrieve(query_bundle)[0]

    async def aretrieve(self, query_bundle: QueryBundle | str) -> list[NodeWithScore]:
        """Return the source nodes like :meth:`retrieve`."""
        return await asyncio.to_thread(self.retrieve, query_bundle)

    def _query(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        asked: dict[str, Any] = {EventPayload.QUERY_STR: query_bundle.query_str}
        with self.callback_manager.event(CBEventType.QUERY, asked) as query, asked_at("python"):
            nodes, events = self._retrieve(query_bundle)
            _dispatcher.event(synthesis.SynthesizeStartEvent(query=query_bundle))
            with self.callback_manager.event(CBEventType.SYNTHESIZE, asked) as event:
                response: RESPONSE_TYPE
                if self._is_streaming:
                    response = _stream(events, nodes)
                else:
                    said = [one.answer for one in events if one.answer is not None]
                    text, told = (said[-1].text, said[-1].to_dict()) if said else (NOTHING, {})
                    response = Response(text, nodes, told)
                event.on_end({EventPayload.RESPONSE: response})
            _dispatcher.event(synthesis.SynthesizeEndEvent(query=query_bundle, response=response))
            query.on_end({EventPayload.RESPONSE: response})
        return response

    def _retrieve(
        self, query_bundle: QueryBundle
    ) -> tuple[list[NodeWithScore], Iterator[AnswerEvent]]:
        """Return the source nodes, and the further events of the answer: none to no question."""
        if not query_bundle.query_str.strip():
            return [], iter(())
        service = self._service or shared_service()
        params = replace(self._params, question=query_bundle.query_str)
        llm = self._llm or (self._default_llm if params.model is None else None)
        events = answer_events(service, params, llm=llm)
        _dispatcher.event(retrieval.RetrievalStartEvent(str_or_query_bundle=query_bundle))
        asked: dict[str, Any] = {EventPayload.QUERY_STR: query_bundle.query_str}
        with self.callback_manager.event(CBEventType.RETRIEVE, asked) as event:
            found = next(events).results
            assert found is not None
            nodes = link_neighbours([*map(_source_node, found)], service.library.database)
            event.on_end({EventPayload.NODES: nodes})
        _dispatcher.event(
            retrieval.RetrievalEndEvent(str_or_query_bundle=query_bundle, nodes=nodes)
        )
        return nodes, events

    async def _aquery(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        within: Callable[..., Any] = copy_context().run
        run = partial(asyncio.to_thread, within)
        response: RESPONSE_TYPE = await run(self._query, query_bundle)
        if not isinstance(response, StreamingResponse):
            return response
        written = response.response_gen

        async def parts() -> AsyncGenerator[str, None]:
            while (part := await run(next, written, None)) is not None:
                yield str(part)

        return AsyncStreamingResponse(parts(), response.source_nodes, response.metadata)

    def _get_prompt_modules(self) -> PromptMixinType:
        return {}


def _source_node(result: SearchResult) -> NodeWithScore:
    """Return a result as a node; the metadata ``number`` is that of the citations."""
    told: dict[str, Any] = {
        "number": result.rank,
        "citation": result.citation,
        "link": result.link,
        "relevance": result.relevance,
    }
    assert result._chunk is not None  # it was found in this process
    return NodeWithScore(node=PassageNode.of(result._chunk).with_metadata(told), score=result.score)


def _stream(events: Iterator[AnswerEvent], nodes: list[NodeWithScore]) -> StreamingResponse:
    """Return a response that streams its text; its sources are there at once."""
    metadata: dict[str, Any] = {}

    def text() -> Generator[str, None, None]:
        written = ""
        answer: Answer | None = None
        for event in events:
            if event.sentence is not None:
                part = f"{event.sentence.breaks}{event.sentence.marked()}"
                part = part if written else part.lstrip()
                written += part
                yield part
            answer = event.answer or answer
        whole = NOTHING if answer is None else answer.text
        metadata.update({} if answer is None else answer.to_dict())
        if written != whole:
            yield f"{chr(10) * 2 if written else ''}{whole}"

    return StreamingResponse(text(), nodes, metadata)


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
        super().__init__(llm=MockLLM(), callback_manager=callback_manager)
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
        """Return the parts of the answer as nodes; without nodes, the part that says so."""
        text = query.query_str if isinstance(query, QueryBundle) else query
        parts = _extract(text, nodes, self._most) if nodes else (NOTHING,)
        return [NodeWithScore(node=TextNode(text=part)) for part in parts if part]

    def get_response(
        self, query_str: str, text_chunks: Sequence[str], **_: Any
    ) -> str | Generator[str, None, None]:
        """Return the texts, with a blank line between them."""
        del query_str
        text = "\n\n".join(text_chunks) or NOTHING
        return (part for part in [text]) if self._streaming else text

    async def aget_response(
        self, query_str: str, text_chunks: Sequence[str], **_: Any
    ) -> str | AsyncGenerator[str, None]:
        """Answer like :meth:`get_response`."""
        response = self.get_response(query_str, text_chunks)

        async def parts() -> AsyncGenerator[str, None]:
            for part in response:
                yield part

        return response if isinstance(response, str) else parts()

    def _with_sources(self, response: RESPONSE_TYPE, nodes: list[NodeWithScore]) -> RESPONSE_TYPE:
        response.source_nodes = nodes
        response.metadata = self._get_metadata_for_response([node.node for node in nodes])
        return response

    def _get_prompts(self) -> PromptDictType:
        return {}

    def _update_prompts(self, prompts: PromptDictType) -> None:
        pass


def _extract(query: str, nodes: Sequence[NodeWithScore], most: int) -> Iterator[str]:
    """Yield the best sentences with their numbers, then the sources of the numbers."""
    sources = [_Source.of(number, node) for number, node in enumerate(nodes, start=1)]
    sentences = choose_sentences(rank_candidates(query, sources), most)
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

        It answers from the same passages as ``retrieve``, after the ``node_postprocessors``.
        Without an ``llm``, here or in LlamaIndex's ``Settings``, the answer is the sentences that
        answer best (:class:`CitedSentences`); it never abstains, unlike
        :class:`AnswerQueryEngine`. ``streaming`` returns the answer while the model writes it.
        Raises :class:`InputError` for an unknown argument, and for one about writing if no model
        made here writes.
        """
        writing = {name: arguments.pop(name) for name in _SYNTHESIS if name in arguments}
        arguments = {"dataset_name": dataset_name, **arguments}
        own = signature(type(self).build_query_engine).parameters
        search = search_arguments(arguments, *own, *_SYNTHESIS)
        model = llm or llm_of_settings()
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
        retriever = CatalogRetriever(
            service=self._service, score=score, callback_manager=callbacks, **search
        )
        stages = list(node_postprocessors or ())
        return RetrieverQueryEngine(
            retriever, response_synthesizer, stages, callback_manager=callbacks
        )
