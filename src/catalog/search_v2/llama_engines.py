"""Answers as LlamaIndex engines: for one question, and for a conversation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from llama_index.core import Settings as LlamaSettings
from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.response.schema import (
    RESPONSE_TYPE,
    AsyncStreamingResponse,
    Response,
    StreamingResponse,
)
from llama_index.core.callbacks import CBEventType, EventPayload
from llama_index.core.instrumentation.events.retrieval import (
    RetrievalEndEvent,
    RetrievalStartEvent,
)
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index_instrumentation import get_dispatcher

from catalog.answers.answering import answer_events
from catalog.core.params import AskParams, DatasetChoice
from catalog.core.retrieval_events import asked_at
from catalog.llm import GivenLLM, LanguageModel, as_language_model
from catalog.retrieval.request import search_arguments
from catalog.retrieval.shared import shared_service
from catalog.search_v2.later_settings import LaterSettings
from catalog.search_v2.nodes import PassageNode, link_neighbours

if TYPE_CHECKING:
    from llama_index.core.callbacks import CallbackManager
    from llama_index.core.prompts.mixin import PromptMixinType

    from catalog.core.answers import Answer, AnswerEvent
    from catalog.core.results import SearchResult, SearchResults
    from catalog.retrieval.search import Searcher

_dispatcher = get_dispatcher(__name__)
_REMEMBERED = 3000  # tokens of a conversation


class AnswerQueryEngine(LaterSettings[AskParams], BaseQueryEngine):
    """Answer like ``catalog ask``: checked sentences that cite the source nodes, or abstain.

    ``ask`` are parameters of :class:`AskParams`, such as ``role``; ``llm`` writes instead of the
    configured model. The response's metadata is the whole answer as JSON; its source nodes are the
    results in order, so that ``[n]`` is the nth. With ``streaming`` the response arrives sentence
    by sentence. Without a ``service`` the process's shared one is used.

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
        ask = search_arguments(ask, *own, kind=AskParams)
        self._service, self._is_streaming = service, streaming
        self._llm = None if llm is None else as_language_model(llm)
        self._params = AskParams("", dataset=dataset, **ask)
        super().__init__(callback_manager or LlamaSettings.callback_manager)

    @property
    def llm(self) -> LanguageModel | None:
        """The language model that writes, if any does."""
        return self._llm or (self._service or shared_service()).library.optional_llm

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
            response = _stream(events, nodes) if self._is_streaming else _respond(events, nodes)
            query.on_end({EventPayload.RESPONSE: response})
        return response

    def _retrieve(
        self, query_bundle: QueryBundle
    ) -> tuple[list[NodeWithScore], Iterator[AnswerEvent]]:
        """Return the source nodes, and the further events of the answer."""
        service = self._service or shared_service()
        params = replace(self._params, question=query_bundle.query_str)
        events = answer_events(service, params, llm=self._llm)
        _dispatcher.event(RetrievalStartEvent(str_or_query_bundle=query_bundle))
        asked: dict[str, Any] = {EventPayload.QUERY_STR: query_bundle.query_str}
        with self.callback_manager.event(CBEventType.RETRIEVE, asked) as retrieval:
            found = next(events).results
            assert found is not None
            nodes = link_neighbours(source_nodes(found), service.library.database)
            retrieval.on_end({EventPayload.NODES: nodes})
        _dispatcher.event(RetrievalEndEvent(str_or_query_bundle=query_bundle, nodes=nodes))
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


def source_nodes(results: SearchResults) -> list[NodeWithScore]:
    """Return the results as nodes; the metadata ``number`` is that of the citations."""
    return [_source_node(result) for result in results]


def _source_node(result: SearchResult) -> NodeWithScore:
    told: dict[str, Any] = {
        "number": result.rank,
        "citation": result.citation,
        "link": result.link,
        "relevance": result.relevance,
    }
    assert result._chunk is not None  # it was found in this process
    return NodeWithScore(node=PassageNode.of(result._chunk).with_metadata(told), score=result.score)


def _respond(events: Iterator[AnswerEvent], nodes: list[NodeWithScore]) -> Response:
    """Return the whole answer."""
    *_, last = events
    assert last.answer is not None
    return Response(last.answer.text, nodes, last.answer.to_dict())


def _stream(events: Iterator[AnswerEvent], nodes: list[NodeWithScore]) -> StreamingResponse:
    """Return a response that streams its text; its sources are there at once."""
    metadata: dict[str, Any] = {}

    def text() -> Generator[str, None, None]:
        written = ""
        answer: Answer | None = None
        for event in events:
            if event.sentence is not None:
                part = f"{event.sentence.breaks if written else ''}{event.sentence.marked()}"
                written += part
                yield part
            answer = event.answer or answer
        assert answer is not None
        metadata.update(answer.to_dict())
        if written != answer.text:
            yield f"{chr(10) * 2 if written else ''}{answer.text}"

    return StreamingResponse(text(), nodes, metadata)
