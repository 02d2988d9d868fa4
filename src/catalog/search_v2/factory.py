"""Building the retriever of one query from a workspace's engines and settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from catalog.core.errors import QueryError
from catalog.core.query import ParsedQuery, SubQuery, parse_query
from catalog.core.results import Mode
from catalog.search_v2.legs import LegQuery, LexicalRetriever, VectorRetriever
from catalog.search_v2.retrievers import HybridRetrieverV2
from catalog.search_v2.stages import StageLog
from catalog.search_v2.workspace import Library
from catalog.store.restriction import Restriction

if TYPE_CHECKING:
    from catalog.search_v2.expansion.plan import ExpansionPlan


class HybridRetrieverFactoryV2:
    """Builds the retriever of one query from the workspace's engines and settings."""

    def __init__(self, workspace: Library, *, stages: StageLog | None = None) -> None:
        self._workspace = workspace
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
        """A ``QueryFusionRetriever`` over the legs the mode asks for; depths default to settings.

        The query's phrases bind the lexical leg, expansions included, and its exclusions both;
        what is then asked of the retriever should be what the parsed query is ``about``. With an
        ``expansion`` the legs are asked its lines as well. Raises :class:`QueryError` for a
        typed query without a part for the mode's legs.
        """
        rag = self._workspace.settings.rag_v2
        if isinstance(query, str):
            query = parse_query(query, max_chars=rag.max_query_chars)
        allowed = replace(within or Restriction(dataset_name), without=query.exclusions)
        legs = LegMaker(
            self._workspace,
            allowed,
            k_lex or rag.fts_top_k,
            k_dense or rag.vector_top_k,
            mode,
            phrases=() if query.is_typed else query.phrases,
        )
        asked = list(legs.asked(query.parts, own=not query.is_typed))
        if not asked:
            raise QueryError(f"the typed query has no part for mode {mode}")
        top_k = k_fused or rag.fusion_top_k
        if expansion is None:
            return HybridRetrieverV2(
                self._workspace, asked, dataset=dataset_name, top_k=top_k, stages=self._stages
            )
        from catalog.search_v2.expansion.retriever import QueryExpansionRetrieverV2

        return QueryExpansionRetrieverV2(
            self._workspace,
            asked,
            dataset=dataset_name,
            top_k=top_k,
            stages=self._stages,
            plan=expansion,
            legs=legs,
        )


class LegMaker:
    """Makes the retrievers of sub-queries, all under one restriction.

    ``phrases`` must stand in every lexical hit, those of expansions too.
    """

    def __init__(
        self,
        workspace: Library,
        allowed: Restriction,
        k_lex: int,
        k_dense: int,
        mode: Mode,
        *,
        phrases: tuple[str, ...] = (),
    ) -> None:
        self._workspace, self._allowed, self._phrases = workspace, allowed, phrases
        self._k_lex, self._k_dense, self._mode = k_lex, k_dense, mode

    def asked(self, parts: tuple[SubQuery, ...], *, own: bool = False) -> Iterator[LegQuery]:
        """The parts that the mode has a leg for, each with its retriever."""
        for part in parts:
            if part.is_for(self._mode):
                make = self._lexical if part.kind == "lex" else self._vector
                yield LegQuery(part, make(part), is_own=own)

    def _lexical(self, part: SubQuery) -> LexicalRetriever:
        engine = self._workspace.lexical(self._allowed.dataset)
        phrases = tuple(dict.fromkeys((*self._phrases, *part.phrases)))
        holding = replace(self._allowed, containing=phrases)
        return LexicalRetriever(self._workspace.database, engine, holding, self._k_lex)

    def _vector(self, part: SubQuery) -> VectorRetriever:
        return VectorRetriever(
            self._workspace,
            self._allowed,
            self._k_dense,
            side="document" if part.kind == "hyde" else "query",
        )
