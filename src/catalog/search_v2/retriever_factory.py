"""Hybrid retrievers: which legs a query gets, how deep they go, what binds them."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

from llama_index.core.llms import LLM
from llama_index.core.schema import NodeWithScore, QueryBundle

from catalog.core.errors import InputError, QueryError
from catalog.core.param_types import DatasetChoice, Mode
from catalog.core.params import SearchParams
from catalog.core.query import ParsedQuery, parse_query
from catalog.search_v2.expansion.expanded_retriever import ExpandedRetrieverV2
from catalog.search_v2.expansion.plan import ExpansionPlan
from catalog.search_v2.leg_maker import LegMaker, bundle_about
from catalog.search_v2.request import (
    SearchRequest,
    check_search,
    for_agent,
    read_request,
    search_arguments,
)
from catalog.search_v2.retriever import FusionRetriever, HybridRetrieverV2
from catalog.search_v2.search_parts import SearchParts
from catalog.search_v2.stages import StageLog
from catalog.store.engine_types import Restriction

if TYPE_CHECKING:
    from llama_index.core.callbacks import CallbackManager

_log = logging.getLogger(__name__)


class HybridRetrieverFactoryV2:
    """Build hybrid retrievers of a service's parts, or of those that this process shares."""

    def __init__(self, parts: SearchParts | None = None, *, stages: StageLog | None = None) -> None:
        self._given_parts = parts
        self._stages = stages

    @overload
    def build(
        self,
        query: None = None,
        dataset_name: DatasetChoice = None,
        k_lex: int | None = None,
        k_dense: int | None = None,
        k_fused: int | None = None,
        *,
        mode: Mode = "hybrid",
        **narrow: Any,
    ) -> DatasetRetriever: ...

    @overload
    def build(
        self,
        query: str | ParsedQuery,
        dataset_name: DatasetChoice = None,
        k_lex: int | None = None,
        k_dense: int | None = None,
        k_fused: int | None = None,
        *,
        within: Restriction | None = None,
        mode: Mode = "hybrid",
        expansion: ExpansionPlan | None = None,
        **narrow: Any,
    ) -> HybridRetrieverV2: ...

    def build(
        self,
        query: str | ParsedQuery | None = None,
        dataset_name: DatasetChoice = None,
        k_lex: int | None = None,
        k_dense: int | None = None,
        k_fused: int | None = None,
        *,
        within: Restriction | None = None,
        mode: Mode = "hybrid",
        expansion: ExpansionPlan | None = None,
        **narrow: Any,
    ) -> HybridRetrieverV2 | DatasetRetriever:
        """Return a ``QueryFusionRetriever`` over the mode's legs; depths default to the settings.

        Without a query it serves any, each planned on its own: see :class:`DatasetRetriever`.
        For one query, its phrases and exclusions bind every leg, expansions included; those of a
        typed query's phrases only the part they stand in. What is then asked of the retriever
        should be what the parsed query is ``about``.
        With an ``expansion`` the legs are asked its lines as well.

        ``narrow`` are ``filters``, ``doc_ids``, ``docs``, ``file_type`` and ``name`` of
        :class:`SearchParams`. Several datasets are as one; without any all are. Raises
        :class:`InputError` for a depth below 1, :class:`QueryError` for a typed query without a
        part for the mode's legs.
        """
        depths = check_depths(k_lex, k_dense, k_fused)
        if query is None:
            return DatasetRetriever(
                dataset_name, *depths, mode=mode, parts=self._given_parts, **narrow
            )
        parts = self._parts
        rag = parts.rag
        parsed = (
            parse_query(query, max_chars=rag.max_query_chars) if isinstance(query, str) else query
        )
        if within is None:
            narrow = search_arguments(narrow)
            params = SearchParams(parsed.original, dataset=dataset_name, mode=mode, **narrow)
            request = read_request(for_agent(params, parts.settings), parts, StageLog())
            within = request.restriction
            parsed = request.query if isinstance(query, str) else parsed
        maker = LegMaker(
            parts,
            replace(within, without=parsed.exclusions, containing=parsed.required),
            k_lex or rag.fts_top_k,
            k_dense or rag.vector_top_k,
            mode,
        )
        legs = maker.make(parsed.parts, is_own=not parsed.is_typed)
        if not legs:
            raise QueryError(f"the typed query has no part for mode {mode}")
        top_k = k_fused or rag.fusion_top_k
        if expansion is None:
            return HybridRetrieverV2(
                parts, legs, dataset=within.dataset, top_k=top_k, stages=self._stages
            )
        return ExpandedRetrieverV2(
            parts,
            legs,
            dataset=within.dataset,
            top_k=top_k,
            stages=self._stages,
            plan=expansion,
            maker=maker,
        )

    @property
    def _parts(self) -> SearchParts:
        return self._given_parts or _shared_parts()


class DatasetRetriever(FusionRetriever):
    """Search a dataset, several or all by both legs, fused, for whatever query it is given.

    ``narrow`` are ``filters``, ``doc_ids``, ``docs``, ``file_type``, ``name`` and ``strict`` of
    :class:`SearchParams`. A stage that fails is logged, and an error with ``strict``.
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
        callback_manager: CallbackManager | None = None,
        **narrow: Any,
    ) -> None:
        narrow = search_arguments(narrow, "k_lex", "k_dense", "k_fused")
        chosen = narrow.keys() & {
            *("top_k", "rerank", "expand", "explain", "compare_with_v1"),
            *("agent", "similarity_threshold", "sort", "recency_half_life_days"),
        }
        if chosen:
            names = ", ".join(sorted(chosen))
            raise InputError(
                f"{names}: not of fusion alone; k_fused is its depth, and ask "
                "CatalogRetriever for the rest"
            )
        self._depths = check_depths(k_lex, k_dense, k_fused)
        self._params = SearchParams("", dataset=dataset, mode=mode, **narrow)
        check_search(self._params)
        self._given_parts = parts
        super().__init__((), k_fused or 0, callback_manager)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        parts = self._given_parts or _shared_parts()
        stages = StageLog(strict=self._params.strict)
        params = replace(self._params, query=query_bundle.query_str)
        request = read_request(params, parts, stages)
        retriever = HybridRetrieverFactoryV2(parts, stages=stages).build(
            request.query,
            None,
            *self._depths,
            within=request.restriction,
            mode=request.mode,
            expansion=self._plan(parts, request),
        )
        nodes = retriever._retrieve(bundle_about(query_bundle, request.query, request.mode))
        stages.log_failures(_log)
        return nodes

    def _plan(self, parts: SearchParts, request: SearchRequest) -> ExpansionPlan | None:
        """Return what else is to be asked; nothing here."""
        del parts, request
        return None


class QueryExpansionRetrieverV2(DatasetRetriever):
    """A :class:`DatasetRetriever` that also asks a language model's other words for the query.

    The model is ``llm``, else the one that the settings name; :class:`ConfigError` without one.
    The query's own lists weigh ``original_weight``, the others ``expansion_weight``; filters and
    scope bind both. A query that is typed, or sure already, is not expanded.
    """

    def __init__(
        self, dataset: DatasetChoice = None, *, llm: LLM | None = None, **settings: Any
    ) -> None:
        super().__init__(dataset, **settings)
        self._given_llm = llm

    def _plan(self, parts: SearchParts, request: SearchRequest) -> ExpansionPlan | None:
        if request.query.is_typed:
            return None
        expander = None if self._given_llm is None else parts.expander_of(self._given_llm)
        return ExpansionPlan(parts, strict=self._params.strict, expander=expander)


def check_depths(
    k_lex: int | None, k_dense: int | None, k_fused: int | None
) -> tuple[int | None, int | None, int | None]:
    """Return the depths as they are; raise :class:`InputError` for one below 1."""
    for name, depth in (("k_lex", k_lex), ("k_dense", k_dense), ("k_fused", k_fused)):
        if depth is not None and (isinstance(depth, bool) or depth < 1):
            raise InputError(f"{name} is {depth}: use 1 or more, or leave it out")
    return k_lex, k_dense, k_fused


def _shared_parts() -> SearchParts:
    from catalog.search_v2.shared import shared_service

    return shared_service().parts
