"""The factory of hybrid retrievers: which legs a query gets, how deep they go, what binds them."""

from __future__ import annotations

from dataclasses import replace

from catalog.core.errors import QueryError
from catalog.core.params import Mode
from catalog.core.query import ParsedQuery, parse_query
from catalog.search_v2.expansion.expanded_retriever import QueryExpansionRetrieverV2
from catalog.search_v2.expansion.plan import ExpansionPlan
from catalog.search_v2.legs import LegMaker
from catalog.search_v2.retriever import HybridRetrieverV2
from catalog.search_v2.search_parts import SearchParts
from catalog.search_v2.stages import StageLog
from catalog.store.engine_types import Restriction


class HybridRetrieverFactoryV2:
    """Build the retriever of one query from a service's parts, ``SearchServiceV2.parts``."""

    def __init__(self, parts: SearchParts, *, stages: StageLog | None = None) -> None:
        self._parts = parts
        self._stages = stages

    def build(
        self,
        query: str | ParsedQuery,
        dataset_name: str,
        k_lex: int | None = None,
        k_dense: int | None = None,
        k_fused: int | None = None,
        *,
        within: Restriction | None = None,
        mode: Mode = "hybrid",
        expansion: ExpansionPlan | None = None,
    ) -> HybridRetrieverV2:
        """Return a ``QueryFusionRetriever`` over the mode's legs; depths default to the settings.

        The query's phrases bind the lexical leg, expansions included, and its exclusions both;
        what is then asked of the retriever should be what the parsed query is ``about``. With an
        ``expansion`` the legs are asked its lines as well. Raises :class:`QueryError` for a
        typed query without a part for the mode's legs.
        """
        rag = self._parts.rag
        if isinstance(query, str):
            query = parse_query(query, max_chars=rag.max_query_chars)
        maker = LegMaker(
            self._parts,
            replace(within or Restriction(dataset_name), without=query.exclusions),
            k_lex or rag.fts_top_k,
            k_dense or rag.vector_top_k,
            mode,
            phrases=() if query.is_typed else query.phrases,
        )
        legs = maker.make(query.parts, is_own=not query.is_typed)
        if not legs:
            raise QueryError(f"the typed query has no part for mode {mode}")
        top_k = k_fused or rag.fusion_top_k
        if expansion is None:
            return HybridRetrieverV2(
                self._parts, legs, dataset=dataset_name, top_k=top_k, stages=self._stages
            )
        return QueryExpansionRetrieverV2(
            self._parts,
            legs,
            dataset=dataset_name,
            top_k=top_k,
            stages=self._stages,
            plan=expansion,
            maker=maker,
        )
