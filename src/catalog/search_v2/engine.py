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

from catalog.search_v2.service import SearchServiceV2


class CatalogRetriever(BaseRetriever):
    """The whole v2 query path as one LlamaIndex retriever; plan and legs are made per query."""

    def __init__(self, service: SearchServiceV2, dataset: str, **search: Any) -> None:
        self._service, self._dataset, self._search = service, dataset, search
        super().__init__()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self._service.retrieve(query_bundle.query_str, dataset=self._dataset, **self._search)

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)


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

        Without an ``llm`` it answers with the passages themselves (``source_nodes``) and asks
        no model.
        """
        asked = llm or MockLLM()  # given explicitly: LlamaIndex would look for OpenAI otherwise
        synthesizer = NoText(llm=asked) if llm is None else CompactAndRefine(llm=asked)
        return RetrieverQueryEngine.from_args(
            CatalogRetriever(self._service, dataset_name, **search),
            llm=asked,
            response_synthesizer=synthesizer,
            node_postprocessors=list(postprocessors),
        )
