"""LlamaIndex query engines over the v2 service."""

from __future__ import annotations

import asyncio
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.llms import LLM
from llama_index.core.llms.mock import MockLLM
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import CompactAndRefine
from llama_index.core.response_synthesizers.no_text import NoText
from llama_index.core.schema import NodeWithScore, QueryBundle
from pydantic import PrivateAttr

from catalog.core.params import Mode
from catalog.core.query import parse_query
from catalog.search_v2.request import read_mode
from catalog.search_v2.service import SearchServiceV2


class CatalogRetriever(BaseRetriever):
    """The v2 query path as one LlamaIndex retriever; plan and legs are made per query.

    ``whole=False`` ends after selection, for those who chain the later stages themselves.
    """

    def __init__(
        self, service: SearchServiceV2, dataset: str, *, whole: bool = True, **search: Any
    ) -> None:
        self._ask = service.retrieve if whole else service.candidates
        self._dataset, self._search = dataset, search
        super().__init__()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self._ask(query_bundle.query_str, dataset=self._dataset, **self._search)

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)


class ServicePostprocessor(BaseNodePostprocessor):
    """The service's own stages in one, told what a query is about and not how it was typed.

    ``stages`` are LlamaIndex postprocessors, to be taken out and used.
    """

    stages: list[BaseNodePostprocessor]
    _service: SearchServiceV2 = PrivateAttr()
    _mode: Mode = PrivateAttr()

    def __init__(self, service: SearchServiceV2, **search: Any) -> None:
        super().__init__(stages=service.postprocessors(**search))
        self._service, self._mode = service, read_mode(search.get("mode", "hybrid"))

    @classmethod
    def class_name(cls) -> str:
        """The name LlamaIndex serialises."""
        return "ServicePostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if query_bundle is not None:
            most = self._service.library.settings.rag_v2.max_query_chars
            parsed = parse_query(query_bundle.query_str, max_chars=most)
            query_bundle = QueryBundle(parsed.about(self._mode))
        for stage in self.stages:
            nodes = stage.postprocess_nodes(nodes, query_bundle)
        return nodes


class QueryEngineBuilderV2:
    """Assembles retriever, selection and answer synthesis."""

    def __init__(self, service: SearchServiceV2) -> None:
        self._service = service

    def build_query_engine(
        self,
        dataset_name: str,
        *,
        llm: LLM | None = None,
        postprocessors: tuple[BaseNodePostprocessor, ...] = (),
        **search: Any,
    ) -> RetrieverQueryEngine:
        """A query engine over one dataset; ``search`` takes what ``retrieve`` takes.

        Its postprocessors are the service's own (reranking, relevance, the cuts, evidence of
        recordings), so that it answers from the passages ``retrieve`` gives, and then those added
        here. Without an ``llm`` it answers with the passages themselves (``source_nodes``) and asks
        no model.
        """
        asked = llm or MockLLM()  # given explicitly: LlamaIndex would look for OpenAI otherwise
        synthesizer = NoText(llm=asked) if llm is None else CompactAndRefine(llm=asked)
        own = ServicePostprocessor(self._service, **search)
        return RetrieverQueryEngine.from_args(
            CatalogRetriever(self._service, dataset_name, whole=False, **search),
            llm=asked,
            response_synthesizer=synthesizer,
            node_postprocessors=[own, *postprocessors],
        )
