"""Search as LlamaIndex retrievers: the legs, their fusion, and the whole query path."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

from llama_index.core import Settings as LlamaSettings
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks import CallbackManager
from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle, TextNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    VectorStoreQuery,
    VectorStoreQueryResult,
)
from pydantic import PrivateAttr

from catalog.core.arguments import check_params
from catalog.core.errors import InputError, QueryError, SemanticQueryError
from catalog.core.params import DatasetChoice, Mode, SearchParams
from catalog.llm import GivenLLM, LanguageModel, as_language_model
from catalog.retrieval.expansion import Expander
from catalog.retrieval.legs import expand, plan_legs
from catalog.retrieval.parts import SearchParts, StageLog
from catalog.retrieval.request import read_request, search_arguments, take_similarity_top_k
from catalog.retrieval.search import find, question_about
from catalog.retrieval.shared import shared_service
from catalog.search_v2.fused_retrievers import (
    FusedRetrievers,
    FusionRetriever,
    LaterSettings,
    check_depths,
)
from catalog.search_v2.nodes import ScoredPassage, ScoreName, to_nodes, to_question
from catalog.search_v2.service import find_nodes, llm_of_settings

if TYPE_CHECKING:
    from catalog.retrieval.search import Searcher
    from catalog.search_v2.precomputed import (
        AgentContextConfig,
        EmbeddingProvider,
        SemanticContextRetriever,
    )

_log = logging.getLogger(__name__)


class HybridRetrieverFactoryV2:
    """Build hybrid retrievers from a service's parts, by default the shared service's.

    Examples:
        >>> from catalog.search_v2 import HybridRetrieverFactoryV2
        >>> fused = HybridRetrieverFactoryV2().build(dataset_name="notes", k_fused=1)
        >>> [node.metadata["path"] for node in fused.retrieve("bake bread")]
        ['recipes/bread.txt']
    """

    __slots__ = ("_given_parts", "_stages")  # so that a setting of another name raises

    def __init__(
        self,
        parts: SearchParts | Searcher | None = None,
        *,
        service: Searcher | None = None,
        stages: StageLog | None = None,
    ) -> None:
        given: Any = service if parts is None else parts
        self._given_parts: SearchParts | None = getattr(given, "parts", given)
        self._stages = stages

    def build(
        self,
        dataset_name: DatasetChoice = None,
        k_lex: int | None = None,
        k_dense: int | None = None,
        k_fused: int | None = None,
        *,
        mode: Mode = "hybrid",
        **narrow: Any,
    ) -> DatasetRetriever:
        """Return a ``QueryFusionRetriever`` over the mode's legs; depths default to the settings.

        It serves any query; see :class:`DatasetRetriever`. Several datasets are searched as one, by
        default all. Raises :class:`InputError` for a depth below 1.
        """
        return DatasetRetriever(
            dataset_name, k_lex, k_dense, k_fused, mode=mode, parts=self._given_parts, **narrow
        )

    def over(
        self,
        retrievers: Iterable[BaseRetriever],
        *,
        weights: Iterable[float] | None = None,
        bonus: tuple[float, float] = (0.05, 0.02),
        k: int = 60,
        k_fused: int = 30,
        strict: bool = False,
    ) -> FusedRetrievers:
        """Return a ``QueryFusionRetriever`` over any LlamaIndex retrievers; it needs no store.

        A node's score is the sum of ``weight / (k + rank)`` over the retrievers that found it, with
        ranks from 1, and the ``bonus`` of its best rank: the first number for rank 1, the second
        for ranks 2 and 3. Nodes with the same ``node_id`` are one, and the best ``k_fused`` are
        kept. Weights default to 1. Each retriever ranks as it returns its nodes. What
        ``BM25Retriever`` adds to its list with score 0 is left out.

        A retriever that fails is logged and the rest answers; with ``strict`` that raises
        :class:`StageFailedError`. If every one fails, :class:`EngineError` names each failure.
        Raises :class:`InputError` for what cannot be fused.
        """
        retrievers = list(retrievers)
        return FusedRetrievers(
            retrievers,
            [1.0] * len(retrievers) if weights is None else list(weights),
            bonus,
            k,
            check_depths(None, None, k_fused)[2] or 0,
            strict=strict,
            stages=self._stages,
        )


class DatasetRetriever(LaterSettings[SearchParams], FusionRetriever):
    """Search a dataset, several or all by both legs, fused, for any query.

    ``narrow`` are ``filters``, ``doc_ids``, ``docs``, ``file_type``, ``name`` and ``strict`` of
    :class:`SearchParams`. A failed stage is logged, and raised with ``strict``. LlamaIndex's
    ``similarity_top_k`` is ``k_fused``.

    Examples:
        >>> from catalog.search_v2 import DatasetRetriever
        >>> retriever = DatasetRetriever("notes", k_lex=20, k_dense=20, k_fused=1)
        >>> [node.metadata["path"] for node in retriever.retrieve("bake bread")]
        ['recipes/bread.txt']
    """

    def __init__(
        self,
        dataset: DatasetChoice = None,
        k_lex: int | None = None,
        k_dense: int | None = None,
        k_fused: int | None = None,
        *,
        mode: Mode = "hybrid",
        parts: SearchParts | None = None,
        service: Searcher | None = None,
        callback_manager: CallbackManager | None = None,
        **narrow: Any,
    ) -> None:
        given = take_similarity_top_k({"k_fused": k_fused, **narrow}, "k_fused")
        k_fused = given.pop("k_fused")
        narrow = search_arguments(given, "k_lex", "k_dense", "k_fused")
        _check_narrow(narrow)
        self._depths = check_depths(k_lex, k_dense, k_fused)[:2]
        self._params = SearchParams("", dataset=dataset, mode=mode, **narrow)
        check_params(self._params)
        self._given_parts = service.parts if parts is None and service is not None else parts
        super().__init__((), k_fused, callback_manager)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        parts = self._given_parts or shared_service().parts
        stages = StageLog(strict=self._params.strict)
        params = replace(self._params, query=query_bundle.query_str)
        request = read_request(params, parts, stages)
        question = question_about(to_question(query_bundle), request)
        query, (k_lex, k_dense) = request.query, self._depths
        make_legs = partial(
            plan_legs,
            replace(request.restriction, without=query.exclusions, containing=query.required),
            mode=request.mode,
            k_lex=k_lex or parts.rag.fts_top_k,
            k_dense=k_dense or parts.rag.vector_top_k,
        )
        legs = make_legs(query.parts)
        if not legs:
            raise QueryError(f"the typed query has no part for mode {request.mode}")
        expander = None if query.is_typed else self._expander(parts)
        if expander is not None:
            legs += make_legs(expand(parts, legs, question, stages, expander))
        k_fused = self.similarity_top_k or parts.rag.fusion_top_k
        passages = find(parts, legs, question, k_fused, stages).passages
        stages.log_failures(_log)
        return to_nodes(passages, parts.database)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("similarity_top_k", "k_fused"):
            FusionRetriever.__setattr__(self, "similarity_top_k", value)
        elif name in ("k_lex", "k_dense"):
            k_lex, k_dense = self._depths
            k_lex, k_dense = (value, k_dense) if name == "k_lex" else (k_lex, value)
            self._depths = check_depths(k_lex, k_dense, None)[:2]
        else:
            _check_narrow([name])
            super().__setattr__(name, value)

    def _expander(self, parts: SearchParts) -> Expander | None:  # noqa: ARG002  (none here)
        """Return what expands queries, ``None`` if nothing does."""
        return None


_NOT_OF_FUSION = {
    *("top_k", "rerank", "expand", "explain", "compare_with_v1"),
    *("agent", "similarity_threshold", "sort", "recency_half_life_days"),
}


def _check_narrow(names: Iterable[str]) -> None:
    if chosen := ", ".join(sorted(_NOT_OF_FUSION.intersection(names))):
        raise InputError(
            f"{chosen}: not of fusion alone; k_fused is its depth, and ask CatalogRetriever for "
            "the rest"
        )


class QueryExpansionRetrieverV2(DatasetRetriever):
    """A :class:`DatasetRetriever` that also searches for a language model's other words.

    The model is ``llm``, else that of LlamaIndex's ``Settings``, else the configured one;
    :class:`ConfigError` without any. The
    query's own lists have the weight ``original_weight``, those of the expansion
    ``expansion_weight``; filters and scope restrict both. A typed query, or one with a certain
    result already, is not expanded.

    Examples:
        >>> from catalog.search_v2 import QueryExpansionRetrieverV2
        >>> retriever = QueryExpansionRetrieverV2("notes", k_fused=1)  # asks IDX_LLM__PROVIDER
        >>> retriever.retrieve("swapping credentials")[0].metadata["path"]
        'keys.md'
    """

    def __init__(
        self,
        dataset: DatasetChoice = None,
        *,
        llm: LanguageModel | GivenLLM | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(dataset, **settings)
        given = llm or llm_of_settings()
        self._given_llm = None if given is None else as_language_model(given)

    def _expander(self, parts: SearchParts) -> Expander:
        return parts.expander_of(self._given_llm) if self._given_llm else parts.expander


class CatalogRetriever(LaterSettings[SearchParams], BaseRetriever):
    """The whole v2 query path over a dataset, several or all, as one LlamaIndex retriever.

    ``search`` are parameters of :class:`SearchParams`, such as ``top_k``, ``filters`` and
    ``rerank``; LlamaIndex's ``similarity_top_k`` is ``top_k``. Several datasets are searched as
    one, by default all. Scores are those of fusion and reranking, or with ``score="relevance"``
    each passage's relevance from 0 to 1, for stages that cut off by score. ``whole=False`` ends
    after selection, for callers who chain the later stages themselves. A query bundle's
    ``embedding`` or ``custom_embedding_strs`` replace the query in the search by meaning, but an
    embedding of another length than the store's vectors is ignored. A document gives more
    passages than settings allow (``max_chunks_per_doc``) if there are not enough others for
    ``top_k``. Parameters and ``score`` can also be set later, as attributes.

    Examples:
        >>> from catalog.search_v2 import CatalogRetriever
        >>> retriever = CatalogRetriever("notes", top_k=3, filters={"tags": "ops"})
        >>> [node.metadata["path"] for node in retriever.retrieve("how often are keys rotated")]
        ['keys.md']
    """

    def __init__(
        self,
        dataset: DatasetChoice = None,
        *,
        service: Searcher | None = None,
        whole: bool = True,
        score: ScoreName = "fused",
        callback_manager: CallbackManager | None = None,
        **search: Any,
    ) -> None:
        self._service, self._is_whole = service, whole
        self.score = score
        arguments = search_arguments(search, "service", "whole", "score", "callback_manager")
        self._params = SearchParams("", dataset=dataset, **arguments)
        check_params(self._params)
        super().__init__(callback_manager or LlamaSettings.callback_manager)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        service = self._service or shared_service()
        params = replace(self._params, query=query_bundle.query_str)
        nodes = find_nodes(service, params, query_bundle, is_refined=self._is_whole, is_filled=True)
        for node in nodes:
            if self._score == "relevance" and isinstance(node, ScoredPassage):
                node.score = node.relevance
        return nodes

    @property
    def score(self) -> ScoreName:
        """The kind of score that the nodes have."""
        return self._score

    @score.setter
    def score(self, name: ScoreName) -> None:
        if name not in get_args(ScoreName):
            raise InputError(f"no score {name!r}; scores: {', '.join(get_args(ScoreName))}")
        if name == "relevance" and not self._is_whole:
            raise InputError("only a whole search has a relevance: leave out whole or score")
        self._score = name

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)


class PrecomputedRetriever(BaseRetriever):
    """Retrieve chunks of a folder of embeddings as LlamaIndex nodes.

    A query's vector is the embedding in its bundle, or else the provider's. Raises
    :class:`SemanticQueryError` without either.

    Examples:
        >>> from llama_index.core import QueryBundle
        >>> from catalog.search_v2 import PrecomputedRetriever
        >>> from catalog.search_v2.precomputed import SemanticContextRetriever
        >>> retriever = PrecomputedRetriever(SemanticContextRetriever(cache_dir=".emb_cache"))
        >>> nodes = retriever.retrieve(QueryBundle("rotate keys", embedding=[0.9, 0.1]))
        >>> [(node.metadata["source_file"], round(node.score, 2)) for node in nodes]
        [('keys.md', 0.99), ('recipes/bread.txt', 0.11)]
    """

    def __init__(
        self,
        semantic: SemanticContextRetriever,
        provider: EmbeddingProvider | None = None,
        config: AgentContextConfig | None = None,
    ) -> None:
        self._semantic, self._provider, self._config = semantic, provider, config
        super().__init__()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        embedding = query_bundle.embedding
        if embedding is None:
            if self._provider is None:
                raise SemanticQueryError(
                    "no embedding of the query: give one in the QueryBundle, or a provider"
                )
            embedding = self._provider.get_query_embedding(query_bundle.query_str)
        nodes = []
        for chunk in self._semantic.retrieve(embedding, config=self._config):
            text, told = chunk.content or "", dict(chunk.metadata)
            vector = chunk.embedding.tolist()
            node = TextNode(id_=chunk.chunk_id, text=text, metadata=told, embedding=vector)
            nodes.append(NodeWithScore(node=node, score=chunk.score))
        return nodes


class DatasetVectorStore(BasePydanticVectorStore):
    """A dataset as a vector store to read, for ``VectorStoreIndex.from_vector_store``.

    The query's embedding and filters are used, whatever engine the dataset has. Give the index the
    store's own model: an embedding of another length is ignored. Documents are added
    and deleted by the pipeline of :class:`IngestionPipelineBuilderV2`.

    Examples:
        >>> from llama_index.core.vector_stores import VectorStoreQuery
        >>> from catalog.search_v2 import DatasetVectorStore
        >>> query = VectorStoreQuery(query_str="how hot is the oven", similarity_top_k=1)
        >>> DatasetVectorStore("notes").query(query).nodes[0].metadata["path"]
        'recipes/bread.txt'
    """

    stores_text: bool = True
    dataset: str
    _service: Searcher | None = PrivateAttr()

    def __init__(self, dataset: str, *, service: Searcher | None = None) -> None:
        super().__init__(stores_text=True, dataset=dataset)
        self._service = service

    @property
    def client(self) -> Searcher:
        """The service that searches."""
        return self._service or shared_service()

    def query(self, query: VectorStoreQuery, **_: Any) -> VectorStoreQueryResult:
        """Return the nearest passages, best first."""
        retriever = DatasetRetriever(
            self.dataset,
            k_dense=query.similarity_top_k,
            k_fused=query.similarity_top_k,
            mode="vector",
            service=self.client,
            filters=query.filters,
            doc_ids=query.doc_ids,
        )
        bundle = QueryBundle(query.query_str or " ", embedding=query.query_embedding)
        found = retriever.retrieve(bundle)
        nodes = [one.node for one in found]
        ids, scores = [node.node_id for node in nodes], [one.get_score() for one in found]
        return VectorStoreQueryResult(nodes=nodes, similarities=scores, ids=ids)

    def add(self, nodes: Sequence[BaseNode], **_: Any) -> list[str]:  # noqa: ARG002
        """Raise :class:`InputError`: a pipeline adds documents."""
        raise InputError(
            "this vector store is only read: add and delete documents by "
            "IngestionPipelineBuilderV2().build_pipeline(…)"
        )

    def delete(self, ref_doc_id: str, **_: Any) -> None:  # noqa: ARG002
        """Raise :class:`InputError`: a pipeline deletes documents."""
        self.add([])
