"""Search as LlamaIndex retrievers: the legs, their fusion, and the whole query path."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks import CallbackManager
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from catalog.core.arguments import check_params
from catalog.core.errors import InputError, QueryError
from catalog.core.params import DatasetChoice, SearchParams
from catalog.llm import GivenLLM, LanguageModel, as_language_model, llm_of_settings
from catalog.retrieval.legs import expand, plan_legs
from catalog.retrieval.parts import SearchParts, StageLog
from catalog.retrieval.request import one_of, read_request, search_arguments
from catalog.retrieval.search import find, question_about
from catalog.retrieval.shared import shared_service
from catalog.search_v2.fused_retrievers import (
    FusedRetrievers,
    FusionRetriever,
    LaterSettings,
    StoreRetriever,
    check_depths,
)
from catalog.search_v2.nodes import ScoredPassage, to_nodes, to_question
from catalog.search_v2.service import find_nodes

if TYPE_CHECKING:
    from catalog.retrieval.search import Searcher
    from catalog.search_v2.precomputed import (
        AgentContextConfig,
        EmbeddingProvider,
        SemanticContextRetriever,
    )

_log = logging.getLogger(__name__)
ScoreName = Literal["fused", "relevance"]


class HybridRetrieverFactoryV2:
    """Build hybrid retrievers from a service's parts, by default the shared service's.

    Examples:
        >>> from catalog.search_v2 import HybridRetrieverFactoryV2
        >>> fused = HybridRetrieverFactoryV2().build(dataset_name="notes", k_fused=1)
        >>> [node.metadata["path"] for node in fused.retrieve("bake bread")]
        ['recipes/bread.txt']
    """

    __slots__ = ("_given",)  # so that a setting of another name raises

    def __init__(self, service: Searcher | SearchParts | None = None) -> None:
        self._given = service

    def build(
        self,
        dataset_name: DatasetChoice = None,
        k_lex: int | None = None,
        k_dense: int | None = None,
        k_fused: int | None = None,
        **narrow: Any,
    ) -> DatasetRetriever:
        """Return a ``QueryFusionRetriever`` over the mode's legs; depths default to the settings.

        It serves any query; see :class:`DatasetRetriever`. Several datasets are searched as one, by
        default all. Raises :class:`InputError` for a depth below 1, and for a query.
        """
        if "query" in narrow:
            raise InputError("build makes a retriever for any query: build(…).retrieve(query)")
        narrow = {"dataset_name": dataset_name, "service": self._given, **narrow}
        return DatasetRetriever(k_lex=k_lex, k_dense=k_dense, k_fused=k_fused, **narrow)

    def over(
        self,
        retrievers: Iterable[BaseRetriever],
        *,
        weights: Iterable[float] | None = None,
        bonus: tuple[float, float] = (0.05, 0.02),
        k: int = 60,
        k_fused: int | None = None,
        strict: bool = False,
        callback_manager: CallbackManager | None = None,
        retriever_weights: Iterable[float] | None = None,
        similarity_top_k: int | None = None,
    ) -> FusedRetrievers:
        """Return a ``QueryFusionRetriever`` over any LlamaIndex retrievers; it needs no store.

        A node's score is the sum of ``weight / (k + rank)`` over the retrievers that found it, with
        ranks from 1, and the ``bonus`` of its best rank: the first number for rank 1, the second
        for ranks 2 and 3. Nodes with the same ``node_id`` are one; those of a retriever that shares
        no id with another are matched by equal texts of one file. ``weights`` (in LlamaIndex
        ``retriever_weights``) are by default 1, and 0 switches a retriever off. The best
        ``k_fused`` (``similarity_top_k``) are kept, by default 30. Each retriever ranks as it
        returns its nodes. What ``BM25Retriever`` adds with score 0 is left out.

        A retriever that fails is logged and the rest answers; with ``strict`` that raises
        :class:`StageFailedError`. If every one fails, :class:`EngineError` names each failure.
        Raises :class:`InputError` for what cannot be fused.
        """
        retrievers = list(retrievers)
        weights = one_of(weights=weights, retriever_weights=retriever_weights)
        depth = one_of(k_fused=k_fused, similarity_top_k=similarity_top_k)
        check_depths(k_fused=depth)
        return FusedRetrievers(
            retrievers,
            [1.0] * len(retrievers) if weights is None else list(weights),
            bonus,
            k,
            30 if depth is None else depth,
            strict=strict,
            callback_manager=callback_manager,
        )


class DatasetRetriever(LaterSettings[SearchParams], FusionRetriever):
    """Search a dataset, several or all by both legs, fused, for any query.

    ``narrow`` are parameters of :class:`SearchParams`: ``mode``, ``filters``, ``doc_ids``,
    ``docs``, ``file_type``, ``name``, ``strict``. A failed stage is logged, and raised with
    ``strict``. LlamaIndex's ``similarity_top_k`` is ``k_fused``.

    Examples:
        >>> from catalog.search_v2 import DatasetRetriever
        >>> retriever = DatasetRetriever("notes", k_lex=20, k_dense=20, k_fused=1)
        >>> [node.metadata["path"] for node in retriever.retrieve("bake bread")]
        ['recipes/bread.txt']
    """

    _expands = False
    _own_llm: LanguageModel | None = None

    def __init__(
        self,
        dataset: DatasetChoice = None,
        k_lex: int | None = None,
        k_dense: int | None = None,
        k_fused: int | None = None,
        *,
        service: Searcher | SearchParts | None = None,
        callback_manager: CallbackManager | None = None,
        **narrow: Any,
    ) -> None:
        k_fused = one_of(k_fused=k_fused, similarity_top_k=narrow.pop("similarity_top_k", None))
        check_depths(k_lex=k_lex, k_dense=k_dense, k_fused=k_fused)
        narrow = search_arguments({"dataset": dataset, **narrow}, "k_lex", "k_dense", "k_fused")
        _check_narrow(narrow)
        self._depths = {"k_lex": k_lex, "k_dense": k_dense}
        self._params = SearchParams("", **narrow)
        check_params(self._params)
        self._service = service
        super().__init__((), k_fused, callback_manager)

    def _find(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        given: Any = self._service or shared_service()
        parts: SearchParts = getattr(given, "parts", given)
        stages = StageLog(strict=self._params.strict)
        params = replace(self._params, query=query_bundle.query_str)
        request = read_request(params, parts, stages)
        question = question_about(to_question(query_bundle), request)
        query = request.query
        make_legs = partial(
            plan_legs,
            replace(request.restriction, without=query.exclusions, containing=query.required),
            mode=request.mode,
            k_lex=self._depths["k_lex"] or parts.rag.fts_top_k,
            k_dense=self._depths["k_dense"] or parts.rag.vector_top_k,
        )
        if not (legs := make_legs(query.parts)):
            raise QueryError(f"the typed query has no part for mode {request.mode}")
        if self._expands and not query.is_typed:
            expander = parts.expander_of(self._own_llm) if self._own_llm else parts.expander
            legs += make_legs(expand(parts, legs, question, stages, expander))
        k_fused = self.similarity_top_k or parts.rag.fusion_top_k
        passages = find(parts, legs, question, k_fused, stages).passages
        stages.log_failures(_log)
        return to_nodes(passages, parts.database)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("similarity_top_k", "k_fused"):
            FusionRetriever.__setattr__(self, "similarity_top_k", value)
        elif name in ("k_lex", "k_dense"):
            check_depths(**{name: value})
            self._depths = {**self._depths, name: value}
        else:
            _check_narrow([name])
            super().__setattr__(name, value)


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

    _expands = True

    def __init__(
        self,
        dataset: DatasetChoice = None,
        *,
        llm: LanguageModel | GivenLLM | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(dataset, **settings)
        given = llm or llm_of_settings()
        self._own_llm = None if given is None else as_language_model(given)


class CatalogRetriever(LaterSettings[SearchParams], StoreRetriever):
    """The whole v2 query path over a dataset, several or all, as one LlamaIndex retriever.

    ``search`` are parameters of :class:`SearchParams`, such as ``top_k``, ``filters`` and
    ``rerank``; LlamaIndex's ``similarity_top_k`` is ``top_k``. Several datasets are searched as
    one, by default all. Scores are those of fusion and reranking, or with ``score="relevance"``
    each passage's relevance from 0 to 1, for stages that cut off by score. ``whole=False`` ends
    after selection, for callers who chain the later stages themselves. A document gives more
    passages than settings allow (``max_chunks_per_doc``) if there are not enough others for
    ``top_k``.

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
        given, own = {"dataset": dataset, **search}, ("service", "whole", "callback_manager")
        self._params = SearchParams("", **search_arguments(given, *own, "score"))
        check_params(self._params)
        super().__init__(callback_manager)

    def _find(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
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


class PrecomputedRetriever(StoreRetriever):
    """Retrieve chunks of a folder of embeddings as LlamaIndex nodes.

    A query's vector is the embedding in its bundle, or else that of the ``provider``, by default
    the one of ``semantic``. Raises :class:`SemanticQueryError` without either.

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
        callback_manager: CallbackManager | None = None,
    ) -> None:
        self._semantic, self._provider, self._config = semantic, provider, config
        super().__init__(callback_manager)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return (self._find if query_bundle.embedding else super()._retrieve)(query_bundle)

    def _find(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        embedding: Any = query_bundle.embedding
        if embedding is None:
            embedding = self._semantic.embed(query_bundle.query_str, self._provider)
        nodes = []
        for chunk in self._semantic.retrieve(embedding, config=self._config):
            text, told = chunk.content or "", dict(chunk.metadata)
            vector = chunk.embedding.tolist()
            node = TextNode(id_=chunk.chunk_id, text=text, metadata=told, embedding=vector)
            nodes.append(NodeWithScore(node=node, score=chunk.score))
        return nodes
