"""v2's hybrid retriever and the factory that builds one for a query."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.llms.mock import MockLLM
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES, QUERY_GEN_PROMPT
from llama_index.core.schema import NodeWithScore, QueryBundle

from catalog.core.errors import CatalogError, QueryError
from catalog.core.params import Mode
from catalog.core.query import ParsedQuery, SubQuery, parse_query
from catalog.library.library import Library
from catalog.search_v2.adaptive import adaptive
from catalog.search_v2.fusion import FusedHit, Leg, RankedList, relative_score, rrf, single
from catalog.search_v2.legs import (
    EngineHits,
    LegQuery,
    LegResult,
    LexicalRetriever,
    VectorRetriever,
)
from catalog.search_v2.passages import PassageNode, ScoredPassage
from catalog.search_v2.stages import StageLog
from catalog.store.chunks import load_chunks, read_chunk_ids
from catalog.store.engine_types import Restriction

if TYPE_CHECKING:
    from catalog.search_v2.expansion.plan import ExpansionPlan


ATTEMPTS = 3  # how often the legs run free before a search holds one state of the store
HELD_ATTEMPTS = 3  # then: another thread of this process may still move an index on
Ask = Callable[[Sequence[LegQuery], QueryBundle], list[LegResult]]


@dataclass(frozen=True, slots=True)
class FusedState:
    """Fused passages of one state of the store."""

    nodes: list[ScoredPassage]
    candidates: int
    lists: int
    is_whole: bool  # no document changed between being hit and being read
    ms: float


class HybridRetrieverV2(QueryFusionRetriever):
    """Every sub-query at once, fused as the settings say; a drop-in ``QueryFusionRetriever``.

    The stock class ignores weights, merges equal texts, counts ranks from 0, wants an LLM and
    runs synchronous retrievers one after the other: of it only the type is used. A failing leg
    is a failed stage, not a failed query, unless every leg fails. ``stages`` tells how the last
    retrieval went; build one retriever per query.
    """

    def __init__(
        self,
        library: Library,
        asked: Sequence[LegQuery],
        *,
        dataset: str,
        top_k: int,
        stages: StageLog | None = None,
    ) -> None:
        # The stock __init__ only sets these, after looking for LangChain and OpenAI (7 ms).
        self.num_queries, self.query_gen_prompt = 1, QUERY_GEN_PROMPT
        self.similarity_top_k, self.mode = top_k, FUSION_MODES.RECIPROCAL_RANK
        self.use_async = False
        self._retrievers, self._llm = [one.leg for one in asked], MockLLM()
        self._retriever_weights = [1.0 / len(asked)] * len(asked)
        BaseRetriever.__init__(self)
        self._library, self._dataset = library, dataset
        self._settings = library.settings.rag_v2
        self._asked = tuple(asked)
        self._lists = len(asked)
        self.stages = stages or StageLog()
        self.exhausted = False

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        for _ in range(ATTEMPTS):
            answers = self._all_answers(query_bundle, self._beside)
            settled = self._settle(query_bundle, answers)
            if settled.is_whole:
                return self._told(answers, settled)
        return self._retrieve_held(query_bundle)

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)

    def _retrieve_held(self, query: QueryBundle) -> list[NodeWithScore]:
        """Leg after leg on one state of the store: slower, but no writer can come between."""
        for _ in range(HELD_ATTEMPTS):
            with self._library.database.snapshot():
                answers = self._all_answers(query, self._in_turn)
                settled = self._settle(query, answers)
            if settled.is_whole:
                break
        return self._told(answers, settled)

    def _all_answers(self, query: QueryBundle, ask: Ask) -> list[LegResult]:
        answers = ask(self._asked, query)
        return [*answers, *self._further(query, answers, ask)]

    def _further(
        self, query: QueryBundle, answers: Sequence[LegResult], ask: Ask
    ) -> list[LegResult]:
        """What else to ask, seeing the first answers; nothing here."""
        del query, answers, ask
        return []

    def _in_turn(self, asked: Sequence[LegQuery], query: QueryBundle) -> list[LegResult]:
        return [one.answer(query) for one in asked]

    def _beside(self, asked: Sequence[LegQuery], query: QueryBundle) -> list[LegResult]:
        *others, last = asked
        jobs = [
            self._library.threads.submit(contextvars.copy_context().run, one.answer, query)
            for one in others
        ]
        in_this_thread = last.answer(query)
        return [*(job.result() for job in jobs), in_this_thread]

    def _settle(self, query: QueryBundle, answers: Sequence[LegResult]) -> FusedState:
        """Join the hits to the truth, fuse, and read the best passages: one state of the store."""
        started = time.perf_counter()
        seqs = {hit.seq for answer in answers for hit in answer.hits}
        with self._library.database.read() as connection:
            ids = read_chunk_ids(connection, self._dataset, seqs)
            lists = [
                self._ranked(query, answer, answer.found, ids)
                for answer in answers
                if isinstance(answer.found, EngineHits)
            ]
            fused = self._combined(lists, len(answers))
            kept = fused[: self.similarity_top_k]
            seq_of = {chunk_id: seq for seq, chunk_id in ids.items()}
            chunks = load_chunks(connection, self._dataset, [seq_of[one.chunk_id] for one in kept])
        heard = frozenset(
            answer.asked.part.kind
            for answer in answers
            if isinstance(answer.found, EngineHits) and answer.asked.part.origin == "original"
        )
        nodes = [
            ScoredPassage.of(PassageNode.of(chunks[seq_of[one.chunk_id]]), one, heard)
            for one in kept
        ]
        ms = (time.perf_counter() - started) * 1000
        return FusedState(nodes, len(fused), len(answers), is_whole=len(ids) == len(seqs), ms=ms)

    def _told(self, answers: Sequence[LegResult], settled: FusedState) -> list[NodeWithScore]:
        """Report every stage, and the nodes; raises the first error when every leg failed."""
        self._lists = settled.lists
        self.exhausted = settled.candidates <= self.similarity_top_k
        for answer in answers:
            if isinstance(answer.found, CatalogError):
                continue
            self.exhausted = self.exhausted and len(answer.hits) < answer.asked.leg.top_k
        first = [one for one in answers if one.asked.part.origin == "original"]
        for answer in first:
            self._tell(answer)
        further = [one for one in answers if one.asked.part.origin == "expansion"]
        if further:
            self._tell_further(further)
        errors = [one.found for one in answers if isinstance(one.found, CatalogError)]
        if len(errors) == len(answers):
            raise errors[0]
        note = f"{self.fusion}: {settled.candidates} candidates"
        if settled.lists > 2:
            note = f"{note} of {settled.lists} lists"
        if not settled.is_whole:
            changing = "documents kept changing; hits that vanished are left out"
            self.stages.fell_back("fuse", changing)
            note = f"{note}; {changing}"
        self.stages.ran("fuse", settled.ms, note)
        return list(settled.nodes)

    def _tell(self, answer: LegResult) -> None:
        name, found = _leg(answer), answer.found
        if isinstance(found, CatalogError):
            self.stages.failed(name, answer.ms, found)
            return
        if found.fallback:
            self.stages.fell_back(name, found.fallback)
        counted = f"{found.engine}: {len(found.hits)} hits"
        self.stages.ran(name, answer.ms, "; ".join(filter(None, (counted, found.note))))

    def _tell_further(self, answers: Sequence[LegResult]) -> None:
        for answer in answers:
            if isinstance(answer.found, CatalogError):
                self.stages.failed(f"{_leg(answer)} expanded", answer.ms, answer.found)
        done = [answer for answer in answers if isinstance(answer.found, EngineHits)]
        counts = [f"{sum(_leg(one) == leg for one in done)} {leg}" for leg in ("lexical", "vector")]
        hits = sum(len(one.hits) for one in done)
        slowest = max((one.ms for one in done), default=0.0)
        self.stages.ran("expanded legs", slowest, f"{', '.join(counts)}: {hits} hits")

    def _ranked(
        self, query: QueryBundle, answer: LegResult, found: EngineHits, ids: dict[int, str]
    ) -> RankedList:
        live = [(ids[hit.seq], hit.score) for hit in found.hits if hit.seq in ids]
        rag, part, leg = self._settings, answer.asked.part, _leg(answer)
        factor = rag.lexical_weight if leg == "lexical" else rag.vector_weight
        weight = rag.original_weight if part.origin == "original" else rag.expansion_weight
        return RankedList(
            leg=leg,
            engine=found.engine,
            query=answer.asked.text(query),
            origin=part.origin,
            weight=factor * weight,
            hits=tuple(sorted(live, key=lambda hit: (-hit[1], hit[0]))),
        )

    def _combined(self, lists: Sequence[RankedList], asked: int) -> list[FusedHit]:
        if asked == 1:
            return single(lists[0]) if lists else []
        if self._settings.fusion_mode == "adaptive":
            return adaptive(lists)
        if self._settings.fusion_mode == "relative_score":
            return relative_score(lists)
        return rrf(
            lists,
            k=self._settings.rrf_k,
            bonus_first=self._settings.bonus_first,
            bonus_second=self._settings.bonus_second,
        )

    @property
    def fusion(self) -> str:
        """How the lists became one, as explanations name it."""
        return "none" if self._lists == 1 else self._settings.fusion_mode


def _leg(answer: LegResult) -> Leg:
    return "lexical" if isinstance(answer.asked.leg, LexicalRetriever) else "vector"


class HybridRetrieverFactoryV2:
    """Builds the retriever of one query from the library's engines and settings."""

    def __init__(self, library: Library, *, stages: StageLog | None = None) -> None:
        self._library = library
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
        rag = self._library.settings.rag_v2
        if isinstance(query, str):
            query = parse_query(query, max_chars=rag.max_query_chars)
        allowed = replace(within or Restriction(dataset_name), without=query.exclusions)
        legs = LegMaker(
            self._library,
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
                self._library, asked, dataset=dataset_name, top_k=top_k, stages=self._stages
            )
        from catalog.search_v2.expansion.expanded_retriever import QueryExpansionRetrieverV2

        return QueryExpansionRetrieverV2(
            self._library,
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
        library: Library,
        allowed: Restriction,
        k_lex: int,
        k_dense: int,
        mode: Mode,
        *,
        phrases: tuple[str, ...] = (),
    ) -> None:
        self._library, self._allowed, self._phrases = library, allowed, phrases
        self._k_lex, self._k_dense, self._mode = k_lex, k_dense, mode

    def asked(self, parts: tuple[SubQuery, ...], *, own: bool = False) -> Iterator[LegQuery]:
        """The parts that the mode has a leg for, each with its retriever."""
        for part in parts:
            if part.is_for(self._mode):
                make = self._lexical if part.kind == "lex" else self._vector
                yield LegQuery(part, make(part), is_own=own)

    def _lexical(self, part: SubQuery) -> LexicalRetriever:
        engine = self._library.lexical(self._allowed.dataset)
        phrases = tuple(dict.fromkeys((*self._phrases, *part.phrases)))
        holding = replace(self._allowed, containing=phrases)
        return LexicalRetriever(self._library.database, engine, holding, self._k_lex)

    def _vector(self, part: SubQuery) -> VectorRetriever:
        return VectorRetriever(
            self._library,
            self._allowed,
            self._k_dense,
            side="document" if part.kind == "hyde" else "query",
        )
