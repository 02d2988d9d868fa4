"""Search as LlamaIndex retrievers: the legs, their fusion, and the whole query path."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from llama_index.core import Settings as LlamaSettings
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks import CallbackManager
from llama_index.core.indices.query.query_transform.base import BaseQueryTransform
from llama_index.core.prompts import PromptTemplate
from llama_index.core.prompts.mixin import PromptDictType
from llama_index.core.schema import NodeWithScore, QueryBundle
from pydantic import Field

from catalog.core.errors import DamagedDocumentError, InputError, QueryError
from catalog.core.params import DatasetChoice, Mode, SearchParams
from catalog.core.query import SubQuery
from catalog.llm import GivenLLM, LanguageModel, as_language_model
from catalog.retrieval.expansion import PROMPT, Expander, LexVecSource
from catalog.retrieval.legs import (
    LegQuery,
    LexicalLeg,
    Question,
    VectorLeg,
    plan_legs,
)
from catalog.retrieval.parts import SearchParts
from catalog.retrieval.passages import Passage
from catalog.retrieval.request import (
    SearchRequest,
    check_search,
    read_request,
    search_arguments,
    take_similarity_top_k,
)
from catalog.retrieval.search import expand, find, question_about
from catalog.retrieval.shared import shared_service
from catalog.retrieval.stages import StageLog
from catalog.search_v2.fused_retrievers import FusedRetrievers, FusionRetriever, check_depths
from catalog.search_v2.later_settings import LaterSettings
from catalog.search_v2.nodes import (
    PassageNode,
    ScoreName,
    check_score,
    link_neighbours,
    score_by,
    to_nodes,
    to_question,
)
from catalog.search_v2.service import find_nodes
from catalog.store import Database
from catalog.store.chunks import load_chunks
from catalog.store.lexical.base import LexicalEngine
from catalog.store.restriction import Restriction

if TYPE_CHECKING:
    from catalog.retrieval.search import Searcher

_log = logging.getLogger(__name__)


class WordHit(NodeWithScore):
    """A node whose score is of a search by words: it is no relevance, even if it is below 1."""

    relevance: None = Field(None, exclude=True)


class LegRetriever(BaseRetriever):
    """Retrieve the hits of one leg, within a restriction.

    With a ``sub_query`` it always searches for that, otherwise for the query it gets. By meaning it
    uses the query's embedding, or else its ``custom_embedding_strs``, or else its text.
    """

    def __init__(self, database: Database, leg: LegQuery) -> None:
        self._database, self.leg = database, leg
        super().__init__()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        leg = self.leg
        question, damaged = to_question(query_bundle), list[DamagedDocumentError]()
        prepared = leg.prepare(question)
        with self._database.snapshot(), self._database.read() as connection:
            hits = leg.rank(connection, leg.about(question), prepared).hits
            seqs = [hit.seq for hit in hits]
            chunks = load_chunks(connection, leg.restriction.dataset, seqs, damaged=damaged)
        for error in damaged:
            _log.warning("left out: %s", error)
        scored = NodeWithScore if leg.kind == "vec" else WordHit
        nodes = [
            scored(node=PassageNode.of(chunks[hit.seq]), score=hit.score)
            for hit in hits
            if hit.seq in chunks
        ]
        return link_neighbours(nodes, self._database)


class LexicalRetriever(LegRetriever):
    """BM25 or full-text search over one dataset, or over several as one.

    Examples:
        >>> from catalog.library.library import Library
        >>> from catalog.search_v2 import LexicalRetriever
        >>> from catalog.store.restriction import Restriction
        >>> with Library.open() as library:
        ...     engine = library.indexes.lexical("notes")
        ...     by_words = LexicalRetriever(library.database, engine, Restriction("notes"), top_k=1)
        ...     [node.metadata["path"] for node in by_words.retrieve("bake bread")]
        ['recipes/bread.txt']
    """

    def __init__(
        self,
        database: Database,
        engine: LexicalEngine,
        restriction: Restriction,
        top_k: int,
        sub_query: SubQuery | None = None,
    ) -> None:
        super().__init__(database, LexicalLeg(restriction, top_k, sub_query, database, engine))


class VectorRetriever(LegRetriever):
    """Nearest neighbours over one dataset, or several; cosines are comparable between them.

    Examples:
        >>> from catalog.library.library import Library
        >>> from catalog.search_v2 import SearchServiceV2, VectorRetriever
        >>> from catalog.store.restriction import Restriction
        >>> service = SearchServiceV2(Library.open())
        >>> by_meaning = VectorRetriever(service.parts, Restriction("notes"), top_k=1)
        >>> [node.metadata["path"] for node in by_meaning.retrieve("how hot is the oven")]
        ['recipes/bread.txt']
        >>> service.close()
    """

    def __init__(
        self,
        parts: SearchParts,
        restriction: Restriction,
        top_k: int,
        sub_query: SubQuery | None = None,
    ) -> None:
        super().__init__(parts.database, VectorLeg(restriction, top_k, sub_query, parts))


class HybridRetrieverV2(FusionRetriever):
    """The legs of one query at the same time, fused as the settings say.

    A failing leg is a failed stage, not a failed query, unless every leg fails. ``stages`` has the
    reports of the last retrieval, so build one retriever for each query. The legs that ``expand``
    returns for the question are searched as well.
    """

    legs: tuple[LegQuery, ...]
    stages: StageLog

    def __init__(
        self,
        parts: SearchParts,
        legs: Sequence[LegQuery],
        *,
        top_k: int,
        stages: StageLog | None = None,
        expand: Callable[[Question], Sequence[LegQuery]] | None = None,
    ) -> None:
        super().__init__([LegRetriever(parts.database, leg) for leg in legs], top_k)
        self._parts, self._expand = parts, expand
        vars(self).update(legs=tuple(legs), stages=stages or StageLog())

    def find(self, question: Question) -> list[Passage]:
        """Return the passages of ``retrieve`` without making nodes or reporting to callbacks."""
        added = () if self._expand is None else self._expand(question)
        legs = [*self.legs, *added]
        return find(self._parts, legs, question, self.similarity_top_k, self.stages).passages

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return to_nodes(self.find(to_question(query_bundle)), self._parts.database)


class HybridRetrieverFactoryV2:
    """Build hybrid retrievers from a service's parts, by default the shared service's.

    Examples:
        >>> from catalog.search_v2 import HybridRetrieverFactoryV2
        >>> fused = HybridRetrieverFactoryV2().build(dataset_name="notes", k_fused=1)
        >>> [node.metadata["path"] for node in fused.retrieve("bake bread")]
        ['recipes/bread.txt']
    """

    __slots__ = ("_given_parts", "_stages")

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


def plan_retriever(
    parts: SearchParts,
    request: SearchRequest,
    depths: tuple[int | None, int | None, int | None] = (None, None, None),
    *,
    stages: StageLog | None = None,
    expander: Expander | None = None,
) -> HybridRetrieverV2:
    """Return the retriever of one request; depths default to the settings.

    The query's phrases and exclusions restrict every leg, expansions included; those in a part of a
    typed query restrict only that part. Raises :class:`QueryError` for a typed query without a part
    for the mode's legs.
    """
    rag, query = parts.rag, request.query
    k_lex, k_dense, k_fused = depths
    make_legs = partial(
        plan_legs,
        parts,
        replace(request.restriction, without=query.exclusions, containing=query.required),
        mode=request.mode,
        k_lex=k_lex or rag.fts_top_k,
        k_dense=k_dense or rag.vector_top_k,
    )
    legs, stages = make_legs(query.parts), stages or StageLog()
    if not legs:
        raise QueryError(f"the typed query has no part for mode {request.mode}")

    def more(question: Question) -> list[LegQuery]:
        return make_legs(expand(parts, legs, question, stages, expander))

    return HybridRetrieverV2(
        parts,
        legs,
        top_k=k_fused or rag.fusion_top_k,
        stages=stages,
        expand=None if expander is None else more,
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
        check_search(self._params)
        self._given_parts = service.parts if parts is None and service is not None else parts
        super().__init__((), k_fused, callback_manager)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        parts = self._given_parts or shared_service().parts
        stages = StageLog(strict=self._params.strict)
        params = replace(self._params, query=query_bundle.query_str)
        request = read_request(params, parts, stages)
        depths = (*self._depths, self.similarity_top_k)
        expander = None if request.query.is_typed else self._expander(parts)
        retriever = plan_retriever(parts, request, depths, stages=stages, expander=expander)
        question = question_about(to_question(query_bundle), request)
        passages = retriever.find(question)
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

    The model is ``llm``, or else the configured one; :class:`ConfigError` without either. The
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
        self._given_llm = None if llm is None else as_language_model(llm)

    def _expander(self, parts: SearchParts) -> Expander:
        return parts.expander_of(self._given_llm) if self._given_llm else parts.expander


class LexVecQueryTransform(BaseQueryTransform):
    """The lex, vec and hyde lines of a language model as a LlamaIndex query transform.

    The query is embedded together with its vec and hyde lines.

    Examples:
        >>> from catalog.llm import get_llm
        >>> from catalog.search_v2 import LexVecQueryTransform
        >>> transform = LexVecQueryTransform(get_llm())  # IDX_LLM__PROVIDER
        >>> transform.run("swapping credentials").embedding_strs
        ['swapping credentials', 'how to rotate the API keys']
    """

    def __init__(self, llm: LanguageModel | GivenLLM) -> None:
        super().__init__()
        self._llm, self._prompt = as_language_model(llm), PromptTemplate(PROMPT)

    def _get_prompts(self) -> PromptDictType:
        return {"expansion_prompt": self._prompt}

    def _update_prompts(self, prompts: PromptDictType) -> None:
        self._prompt = cast("PromptTemplate", prompts.get("expansion_prompt", self._prompt))

    def _run(  # the base class names both
        self,
        query_bundle: QueryBundle,
        metadata: dict[str, Any],  # noqa: ARG002
    ) -> QueryBundle:
        query = query_bundle.query_str
        source = LexVecSource(self._llm, self._prompt.format(query="{query}"))
        texts = [line.text for line in source.expand(query) if line.kind != "lex"]
        return QueryBundle(query, custom_embedding_strs=[query, *texts]) if texts else query_bundle


class CatalogRetriever(LaterSettings[SearchParams], BaseRetriever):
    """The whole v2 query path over a dataset, several or all, as one LlamaIndex retriever.

    ``search`` are parameters of :class:`SearchParams`, such as ``top_k``, ``filters`` and
    ``rerank``; LlamaIndex's ``similarity_top_k`` is ``top_k``. Several datasets are searched as
    one, by default all. Scores are those of fusion and reranking, or with ``score="relevance"``
    each passage's relevance from 0 to 1, for stages that cut off by score. ``whole=False`` ends
    after selection, for callers who chain the later stages themselves. A query bundle's
    ``embedding`` or ``custom_embedding_strs`` replace the query in the search by meaning, but an
    embedding of another model is ignored and logged once. A document gives more passages than
    settings allow (``max_chunks_per_doc``) if there are not enough others for ``top_k``. Parameters
    and ``score`` can also be set later, as attributes.

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
        check_search(self._params)
        super().__init__(callback_manager or LlamaSettings.callback_manager)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        service = self._service or shared_service()
        params = replace(self._params, query=query_bundle.query_str)
        nodes = find_nodes(service, params, query_bundle, is_refined=self._is_whole, is_filled=True)
        return score_by(self._score, nodes)

    @property
    def score(self) -> ScoreName:
        """The kind of score that the nodes have."""
        return self._score

    @score.setter
    def score(self, name: ScoreName) -> None:
        if check_score(name) == "relevance" and not self._is_whole:
            raise InputError("only a whole search has a relevance: leave out whole or score")
        self._score = name

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)
