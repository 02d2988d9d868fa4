"""Search as LlamaIndex objects: everything that a LlamaIndex user takes from here, in one place.

================================  ===========================================================
``LexicalRetriever``              one leg over one dataset (``BaseRetriever``)
``VectorRetriever``               the other
``HybridRetrieverFactoryV2``      both, fused: makes a ``QueryFusionRetriever`` for a query
``CatalogRetriever``              the whole query path as one retriever
``ServicePostprocessor``          the stages after fusion as one postprocessor
``QueryEngineBuilderV2``          a ``RetrieverQueryEngine`` of the last two
================================  ===========================================================

The first three are what the service itself runs; the others call it. The postprocessors that a
``ServicePostprocessor`` chains are in ``select``, ``rerank``, ``relevance`` and ``temporal``.
``docs/decisions/0015-where-llamaindex-runs.md`` says why the line is drawn there.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
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

from catalog.core.params import SearchParams
from catalog.core.query import parse_query
from catalog.search_v2.legs import LexicalRetriever, VectorRetriever
from catalog.search_v2.passages import PassagePostprocessor
from catalog.search_v2.retriever_factory import HybridRetrieverFactoryV2
from catalog.search_v2.service import SearchServiceV2

__all__ = [
    "CatalogRetriever",
    "HybridRetrieverFactoryV2",
    "LexicalRetriever",
    "QueryEngineBuilderV2",
    "ServicePostprocessor",
    "VectorRetriever",
]


class CatalogRetriever(BaseRetriever):
    """The v2 query path as one LlamaIndex retriever; plan and legs are made per query.

    ``search`` are parameters of :class:`SearchParams`. ``whole=False`` ends after selection, for
    those who chain the later stages themselves.
    """

    def __init__(
        self, service: SearchServiceV2, dataset: str, *, whole: bool = True, **search: Any
    ) -> None:
        self._service, self._is_whole = service, whole
        self._params = SearchParams("", dataset=dataset, **search)
        super().__init__()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        params = replace(self._params, query=query_bundle.query_str)
        return self._service.nodes(params, is_refined=self._is_whole)

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)


class ServicePostprocessor(PassagePostprocessor):
    """The service's own stages in one, told what a query is about and not how it was typed.

    ``stages`` are LlamaIndex postprocessors, to be taken out and used.
    """

    stages: list[BaseNodePostprocessor]
    _service: SearchServiceV2 = PrivateAttr()
    _params: SearchParams = PrivateAttr()

    def __init__(self, service: SearchServiceV2, **search: Any) -> None:
        params = SearchParams("", **search)
        super().__init__(stages=service.postprocessors(params))
        self._service, self._params = service, params

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if query_bundle is not None:
            most = self._service.parts.rag.max_query_chars
            parsed = parse_query(query_bundle.query_str, max_chars=most)
            query_bundle = QueryBundle(parsed.about(self._params.mode))
        for stage in self.stages:
            nodes = stage.postprocess_nodes(nodes, query_bundle)
        return nodes


class QueryEngineBuilderV2:
    """Assemble retriever, stages and answer synthesis."""

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
        """Return a query engine over one dataset; ``search`` takes what ``retrieve`` takes.

        Its postprocessors are the service's own (reranking, relevance, the cuts, evidence of
        recordings), so that it answers from the passages ``retrieve`` gives, and then those added
        here. Without an ``llm`` it answers with the passages themselves (``source_nodes``) and asks
        no model.
        """
        model = llm or MockLLM()  # given explicitly: LlamaIndex would look for OpenAI otherwise
        synthesizer = NoText(llm=model) if llm is None else CompactAndRefine(llm=model)
        own = ServicePostprocessor(self._service, **search)
        return RetrieverQueryEngine.from_args(
            CatalogRetriever(self._service, dataset_name, whole=False, **search),
            llm=model,
            response_synthesizer=synthesizer,
            node_postprocessors=[own, *postprocessors],
        )
