"""A LlamaIndex query engine of the search's parts and what writes the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llama_index.core import Settings as LlamaSettings
from llama_index.core.llms import LLM
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import BaseSynthesizer, CompactAndRefine

from catalog.core.errors import InputError
from catalog.core.params import DatasetChoice
from catalog.retrieval.request import search_arguments
from catalog.retrieval.shared import shared_service
from catalog.search_v2.cited_sentences import CitedSentences
from catalog.search_v2.postprocessors import ServicePostprocessor
from catalog.search_v2.retrievers import CatalogRetriever

if TYPE_CHECKING:
    from llama_index.core.callbacks import CallbackManager

    from catalog.retrieval.searcher import Searcher

_ENGINE_ARGUMENTS = (
    "llm",
    "postprocessors",
    "node_postprocessors",
    "response_synthesizer",
    "streaming",
    "callback_manager",
)


class QueryEngineBuilderV2:
    """Assemble retriever, stages and answer synthesis."""

    def __init__(self, service: Searcher | None = None) -> None:
        self._service = service

    def build_query_engine(
        self,
        dataset_name: DatasetChoice = None,
        *,
        llm: LLM | None = None,
        postprocessors: Sequence[BaseNodePostprocessor] = (),
        node_postprocessors: Sequence[BaseNodePostprocessor] | None = None,
        response_synthesizer: BaseSynthesizer | None = None,
        streaming: bool = False,
        callback_manager: CallbackManager | None = None,
        **search: Any,
    ) -> RetrieverQueryEngine:
        """Return a query engine over datasets; ``search`` takes what ``retrieve`` takes.

        Its postprocessors are the service's own (reranking, relevance, the cuts, evidence of
        recordings), so that it answers from the passages ``retrieve`` gives, and then those added
        here, as ``postprocessors`` or by LlamaIndex's name for them. Without an ``llm``, here or in
        LlamaIndex's ``Settings``, its answer is the sentences that answer best, with
        their passages (:class:`CitedSentences`), and no model is asked; it never abstains, as
        :class:`AnswerQueryEngine` does. ``streaming`` gives the answer as the model writes it.
        Raises :class:`InputError` for an argument there is not, and for ``streaming``
        where no model made here writes.
        """
        search = search_arguments(search, *_ENGINE_ARGUMENTS)
        model = llm or LlamaSettings._llm  # Settings.llm would look for OpenAI
        callbacks = callback_manager or LlamaSettings.callback_manager
        if streaming and (response_synthesizer is not None or model is None):
            raise InputError(
                "streaming needs a language model: give llm, or leave streaming out"
                if response_synthesizer is None
                else "streaming is for the response_synthesizer to do: make it with streaming=True"
            )
        if response_synthesizer is None and model is None:
            service = self._service or shared_service()
            most = service.parts.settings.answers.sentences
            response_synthesizer = CitedSentences(callbacks, sentences=most)
        elif response_synthesizer is None:
            response_synthesizer = CompactAndRefine(
                llm=model, callback_manager=callbacks, streaming=streaming
            )
        own = ServicePostprocessor(self._service, **search)
        retriever = CatalogRetriever(
            dataset_name, service=self._service, whole=False, callback_manager=callbacks, **search
        )
        stages = [own, *postprocessors, *(node_postprocessors or ())]
        return RetrieverQueryEngine(
            retriever, response_synthesizer, stages, callback_manager=callbacks
        )
