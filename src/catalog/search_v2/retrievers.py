"""v2's hybrid retriever and the factory that builds one for a query."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.llms.mock import MockLLM
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES, QUERY_GEN_PROMPT
from llama_index.core.schema import NodeWithScore, QueryBundle

from catalog.core.errors import CatalogError, EngineError
from catalog.core.query import ParsedQuery, parse_query
from catalog.core.results import Mode
from catalog.search_v2.adaptive import adaptive
from catalog.search_v2.fusion import Fused, Leg, RankedList, relative_score, rrf, single
from catalog.search_v2.legs import LegHits, LexicalRetriever, VectorRetriever
from catalog.search_v2.passages import PassageNode, ScoredPassage
from catalog.search_v2.stages import Stages
from catalog.search_v2.workspace import Workspace
from catalog.store.passages import live_chunk_ids, load_chunks
from catalog.store.restriction import Restriction

Answer = tuple[float, LegHits | CatalogError]  # milliseconds, and what the leg had to say
ATTEMPTS = 3  # how often the legs run free before a search holds one state of the store
HELD_ATTEMPTS = 3  # then: another thread of this process may still move an index on


@dataclass(frozen=True, slots=True)
class _Settled:
    nodes: list[ScoredPassage]
    candidates: int
    is_whole: bool  # no document changed between being hit and being read
    ms: float


class HybridRetrieverV2(QueryFusionRetriever):
    """Both legs at once, fused as the settings say; a drop-in ``QueryFusionRetriever``.

    The stock class ignores weights, merges equal texts, counts ranks from 0, wants an LLM and
    runs synchronous retrievers one after the other: of it only the type is used. A failing leg
    is a failed stage, not a failed query, unless every leg fails. ``stages`` tells how the last
    retrieval went; build one retriever per query.
    """

    def __init__(
        self,
        workspace: Workspace,
        legs: Sequence[LexicalRetriever | VectorRetriever],
        *,
        dataset: str,
        top_k: int,
        stages: Stages | None = None,
    ) -> None:
        # The stock __init__ only sets these, after looking for LangChain and OpenAI (7 ms).
        self.num_queries, self.query_gen_prompt = 1, QUERY_GEN_PROMPT
        self.similarity_top_k, self.mode = top_k, FUSION_MODES.RECIPROCAL_RANK
        self.use_async = False
        self._retrievers, self._llm = list(legs), MockLLM()
        self._retriever_weights = [1.0 / len(legs)] * len(legs)
        BaseRetriever.__init__(self)
        self._workspace, self._dataset = workspace, dataset
        self._settings = workspace.settings.rag_v2
        self._legs = tuple(legs)
        self.stages = stages or Stages()
        self.exhausted = False

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        for _ in range(ATTEMPTS):
            answers = self._ask_all(query_bundle)
            settled = self._settle(query_bundle.query_str, answers)
            if settled.is_whole:
                return self._told(answers, settled)
        return self._retrieve_held(query_bundle)

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        for _ in range(ATTEMPTS):
            asked = [asyncio.to_thread(self._ask, leg, query_bundle) for leg in self._legs]
            answers = await asyncio.gather(*asked)
            settled = await asyncio.to_thread(self._settle, query_bundle.query_str, answers)
            if settled.is_whole:
                return self._told(answers, settled)
        return await asyncio.to_thread(self._retrieve_held, query_bundle)

    def _retrieve_held(self, query: QueryBundle) -> list[NodeWithScore]:
        """Leg after leg on one state of the store: slower, but no writer can come between."""
        for _ in range(HELD_ATTEMPTS):
            with self._workspace.database.snapshot():
                answers = [self._ask(leg, query) for leg in self._legs]
                settled = self._settle(query.query_str, answers)
            if settled.is_whole:
                break
        return self._told(answers, settled)

    def _ask_all(self, query: QueryBundle) -> list[Answer]:
        *others, last = self._legs
        jobs = [
            self._workspace.threads.submit(contextvars.copy_context().run, self._ask, leg, query)
            for leg in others
        ]
        in_this_thread = self._ask(last, query)
        return [*(job.result() for job in jobs), in_this_thread]

    def _ask(self, leg: LexicalRetriever | VectorRetriever, query: QueryBundle) -> Answer:
        started = time.perf_counter()
        answer: LegHits | CatalogError
        try:
            if isinstance(leg, LexicalRetriever):
                answer = leg.leg(query.query_str)
            else:
                answer = leg.leg(query.query_str, query.embedding)
        except CatalogError as error:
            answer = error
        except Exception as error:  # noqa: BLE001 - recorded as the leg's failure
            answer = EngineError(f"{type(error).__name__}: {error}")
            answer.__cause__ = error
        return (time.perf_counter() - started) * 1000, answer

    def _settle(self, query: str, answers: Sequence[Answer]) -> _Settled:
        """Join the hits to the truth, fuse, and read the best passages: one state of the store."""
        started = time.perf_counter()
        found = [
            (_kind(leg), answer)
            for leg, (_, answer) in zip(self._legs, answers, strict=True)
            if isinstance(answer, LegHits)
        ]
        seqs = {hit.seq for _, answer in found for hit in answer.hits}
        with self._workspace.database.read() as connection:
            ids = live_chunk_ids(connection, self._dataset, seqs)
            fused = self._combined([self._ranked(kind, query, one, ids) for kind, one in found])
            kept = fused[: self.similarity_top_k]
            seq_of = {chunk_id: seq for seq, chunk_id in ids.items()}
            chunks = load_chunks(connection, self._dataset, [seq_of[one.chunk_id] for one in kept])
        nodes = [
            ScoredPassage.of(PassageNode.of(chunks[seq_of[one.chunk_id]]), one) for one in kept
        ]
        ms = (time.perf_counter() - started) * 1000
        return _Settled(nodes, len(fused), is_whole=len(ids) == len(seqs), ms=ms)

    def _told(self, answers: Sequence[Answer], settled: _Settled) -> list[NodeWithScore]:
        """Report every stage, and the nodes; raises the first error when every leg failed."""
        errors = []
        self.exhausted = settled.candidates <= self.similarity_top_k
        for leg, (ms, answer) in zip(self._legs, answers, strict=True):
            if isinstance(answer, CatalogError):
                errors.append(answer)
                self.stages.failed(_kind(leg), ms, answer)
                continue
            if answer.fallback:
                self.stages.fell_back(_kind(leg), answer.fallback)
            counted = f"{answer.engine}: {len(answer.hits)} hits"
            self.stages.ran(_kind(leg), ms, "; ".join(filter(None, (counted, answer.note))))
            self.exhausted = self.exhausted and len(answer.hits) < leg.top_k
        if len(errors) == len(self._legs):
            raise errors[0]
        note = f"{self.fusion}: {settled.candidates} candidates"
        if not settled.is_whole:
            changing = "documents kept changing; hits that vanished are left out"
            self.stages.fell_back("fuse", changing)
            note = f"{note}; {changing}"
        self.stages.ran("fuse", settled.ms, note)
        return list(settled.nodes)

    def _ranked(self, kind: Leg, query: str, answer: LegHits, ids: dict[int, str]) -> RankedList:
        live = [(ids[hit.seq], hit.score) for hit in answer.hits if hit.seq in ids]
        factor = (
            self._settings.lexical_weight if kind == "lexical" else self._settings.vector_weight
        )
        return RankedList(
            leg=kind,
            engine=answer.engine,
            query=query,
            origin="original",
            weight=factor * self._settings.original_weight,
            hits=tuple(sorted(live, key=lambda hit: (-hit[1], hit[0]))),
        )

    def _combined(self, lists: Sequence[RankedList]) -> list[Fused]:
        if len(self._legs) == 1:
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
        """How the legs become one list, as explanations name it."""
        return "none" if len(self._legs) == 1 else self._settings.fusion_mode


def _kind(leg: LexicalRetriever | VectorRetriever) -> Leg:
    return "lexical" if isinstance(leg, LexicalRetriever) else "vector"


class HybridRetrieverFactoryV2:
    """Builds the retriever of one query from the workspace's engines and settings."""

    def __init__(self, workspace: Workspace, *, stages: Stages | None = None) -> None:
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
    ) -> HybridRetrieverV2:
        """A ``QueryFusionRetriever`` over the legs the mode asks for; depths default to settings.

        The query's phrases bind the lexical leg and its exclusions both; what is then asked of
        the retriever should be the parsed query's ``text``.
        """
        rag = self._workspace.settings.rag_v2
        if isinstance(query, str):
            query = parse_query(query, max_chars=rag.max_query_chars)
        allowed = replace(within or Restriction(dataset_name), without=query.exclusions)
        legs: list[LexicalRetriever | VectorRetriever] = []
        if mode in ("lexical", "hybrid"):
            engine = self._workspace.lexical(dataset_name)
            holding = replace(allowed, containing=query.phrases)
            k = k_lex or rag.fts_top_k
            legs.append(LexicalRetriever(self._workspace.database, engine, holding, k))
        if mode in ("vector", "hybrid"):
            legs.append(VectorRetriever(self._workspace, allowed, k_dense or rag.vector_top_k))
        return HybridRetrieverV2(
            self._workspace,
            legs,
            dataset=dataset_name,
            top_k=k_fused or rag.fusion_top_k,
            stages=self._stages,
        )
