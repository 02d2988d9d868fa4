"""The hybrid retriever: legs beside each other, fused over one state of the store."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable, Collection, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from operator import itemgetter

from llama_index.core import Settings as LlamaSettings
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks import CallbackManager
from llama_index.core.llms.mock import MockLLM
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES, QUERY_GEN_PROMPT
from llama_index.core.schema import NodeWithScore, QueryBundle

from catalog.core.errors import DamagedDocumentError
from catalog.core.settings import RAGv2Settings
from catalog.search_v2.adaptive import AS_WRITTEN, HAS_WORDS, PRIOR, Balance, adaptive
from catalog.search_v2.fusion import FusedHit, Leg, RankedList, relative_score, rrf, single
from catalog.search_v2.legs import LegRetriever, LegRun, check_embedding
from catalog.search_v2.passages import Passage
from catalog.search_v2.query_words import cover_of, has_as_written, keywords_of
from catalog.search_v2.search_parts import SearchParts
from catalog.search_v2.stages import StageLog
from catalog.store.chunks import load_chunks
from catalog.store.engine_types import Stamp, read_chunk_ids, read_stamps
from catalog.store.filter_sql import DatasetNames
from catalog.store.lexical.languages import language_of_letters
from catalog.store.waiting import find_unembedded

ATTEMPTS = 3  # how often the legs run free before a search holds one state of the store
HELD_ATTEMPTS = 3  # then: another thread of this process may still move an index on
_LETTERS_READ = 1000  # characters of a passage that say in which letters it is
RunLegs = Callable[[Sequence[LegRetriever], QueryBundle], list[LegRun]]


@dataclass(frozen=True, slots=True)
class HybridRun:
    """One retrieval: how each leg answered, and the best passages of ``candidates`` fused ones.

    ``is_whole``: both legs saw the state of the store that was fused. ``ms`` is the fusion's.
    ``damaged`` says which passages are left out because they are not what was stored.
    """

    legs: tuple[LegRun, ...]
    passages: tuple[Passage, ...]
    candidates: int
    is_whole: bool
    ms: float
    damaged: tuple[DamagedDocumentError, ...] = ()
    balance: Balance = PRIOR


class FusionRetriever(QueryFusionRetriever):
    """A ``QueryFusionRetriever`` of which only the type is used.

    The stock class ignores weights, merges equal texts, counts ranks from 0, wants an LLM and
    runs synchronous retrievers one after the other. Retrievals are reported to the
    ``callback_manager``, else to that of LlamaIndex's ``Settings``.
    """

    def __init__(
        self,
        retrievers: Sequence[BaseRetriever],
        top_k: int,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        # The stock __init__ only sets these, after looking for LangChain and OpenAI (7 ms).
        self.num_queries, self.query_gen_prompt = 1, QUERY_GEN_PROMPT
        self.similarity_top_k, self.mode = top_k, FUSION_MODES.RECIPROCAL_RANK
        self.use_async = False
        self._retrievers, self._llm = list(retrievers), MockLLM()
        self._retriever_weights = [1.0 / max(1, len(retrievers))] * len(retrievers)
        BaseRetriever.__init__(self, callback_manager or LlamaSettings.callback_manager)

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)


class HybridRetrieverV2(FusionRetriever):
    """Every sub-query of one query at once, fused as the settings say.

    A failing leg is a failed stage, not a failed query, unless every leg fails. ``stages`` tells
    how the last retrieval went; build one retriever per query.
    """

    def __init__(
        self,
        parts: SearchParts,
        legs: Sequence[LegRetriever],
        *,
        dataset: DatasetNames,
        top_k: int,
        stages: StageLog | None = None,
    ) -> None:
        super().__init__(legs, top_k)
        self._parts, self._dataset, self._legs = parts, dataset, tuple(legs)
        self._last: HybridRun | None = None
        self.stages = stages or StageLog()

    @property
    def fusion(self) -> str:
        """How the lists became one, as explanations name it."""
        lists = self._legs if self._last is None else self._last.legs
        return "none" if len(lists) == 1 else self._parts.rag.fusion_mode

    @property
    def is_exhausted(self) -> bool:
        """Return whether the last retrieval gave all that there is, however deep the legs go."""
        return (
            self._last is not None
            and self._last.candidates <= self.similarity_top_k
            and all(run.error or len(run.hits) < run.top_k for run in self._last.legs)
        )

    def find(self, query: QueryBundle) -> list[Passage]:
        """Return the passages that ``retrieve`` makes nodes of; no callback is told."""
        check_embedding(query, self._parts)
        for _ in range(ATTEMPTS):
            with self._parts.database.read() as connection:
                before = read_stamps(connection, self._dataset)
            run = self._fuse(self._run_all(query, self._run_beside), before)
            if run.is_whole:
                return self._report(run)
        return self._find_held(query)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [passage.to_node() for passage in self.find(query_bundle)]

    def _find_held(self, query: QueryBundle) -> list[Passage]:
        """Run leg after leg on one state of the store: slower, but no writer can come between."""
        for _ in range(HELD_ATTEMPTS):
            with self._parts.database.snapshot():
                run = self._fuse(self._run_all(query, _run_in_turn), None)
            if run.is_whole:
                break
        return self._report(run)

    def _run_all(self, query: QueryBundle, run_legs: RunLegs) -> list[LegRun]:
        runs = run_legs(self._legs, query)
        further = self._further_legs(query, runs)
        return [*runs, *run_legs(further, query)] if further else runs

    def _further_legs(self, query: QueryBundle, runs: Sequence[LegRun]) -> list[LegRetriever]:
        """Return the legs to run as well, seeing how the first answered; none here."""
        del query, runs
        return []

    def _run_beside(self, legs: Sequence[LegRetriever], query: QueryBundle) -> list[LegRun]:
        *others, last = legs
        jobs = [
            self._parts.threads.submit(contextvars.copy_context().run, leg.run, query)
            for leg in others
        ]
        in_this_thread = last.run(query)
        return [*(job.result() for job in jobs), in_this_thread]

    def _fuse(self, runs: Sequence[LegRun], before: tuple[Stamp | None, ...] | None) -> HybridRun:
        """Join the hits to the truth, fuse, and read the best passages: one state of the store.

        ``before`` is its state before the legs ran; ``None`` if they ran on this one.
        """
        started = time.perf_counter()
        seqs = {hit.seq for run in runs for hit in run.hits}
        damaged = [error for run in runs for error in run.damaged]
        answered = [run for run in runs if run.error is None]
        kinds = frozenset(run.query.kind for run in answered if run.query.origin == "original")
        words = kinds & {"lex"}
        waiting: AbstractSet[int] = frozenset()
        balance = PRIOR
        with self._parts.database.read() as connection:
            ids = read_chunk_ids(connection, self._dataset, seqs)
            is_same = (
                before is None or len(runs) == 1 or before == read_stamps(connection, self._dataset)
            )
            lists = [_ranked_list(run, ids, self._parts.rag) for run in answered]
            if len(runs) == 1:
                fused = single(lists[0]) if lists else []
            else:
                of_vectors = {
                    hit.seq for run in answered if run.leg == "vector" for hit in run.hits
                }
                others = ids.keys() - of_vectors
                waiting = find_unembedded(connection, self._dataset, others)
                if before is None:  # the vector index may lack what was deleted meanwhile
                    waiting |= self._deleted_since(others)
                balance = self._parts.balance(self._dataset)
                if (useless := balance.left_out) is not None:
                    kinds_left = words if useless == "vector" else kinds - words
                    kinds = kinds_left or kinds  # relevance is that of a search by the other leg
                    lists = _without(useless, lists)
                unembedded = {ids[seq] for seq in waiting}
                fused = fuse_lists(lists, self._parts.rag, unembedded, balance)
            best = fused[: self.similarity_top_k]
            seq_of = {chunk_id: seq for seq, chunk_id in ids.items()}
            best_seqs = [seq_of[hit.chunk_id] for hit in best]
            chunks = load_chunks(connection, self._dataset, best_seqs, damaged=damaged)
        passages = tuple(
            Passage(chunks[seq], hit.score, hit, words if seq in waiting else kinds)
            for hit in best
            if (seq := seq_of[hit.chunk_id]) in chunks
        )
        if len(lists) > 1 and self._parts.rag.fusion_mode == "adaptive":
            text = next(run.query.text for run in runs if run.query.origin == "original")
            rag = self._parts.rag
            scale = rag.lexical_weight * rag.original_weight
            passages = prefer_words(passages, text, scale, self._parts.known_languages)
        ms = (time.perf_counter() - started) * 1000
        is_whole = is_same and len(ids) == len(seqs)
        return HybridRun(tuple(runs), passages, len(fused), is_whole, ms, tuple(damaged), balance)

    def _deleted_since(self, seqs: AbstractSet[int]) -> frozenset[int]:
        """Return those of the chunks of a snapshot that the store has no more."""
        with self._parts.database.read(latest=True) as connection:
            return frozenset(seqs - read_chunk_ids(connection, self._dataset, seqs).keys())

    def _report(self, run: HybridRun) -> list[Passage]:
        """Report every stage and return the passages; raise the first error if every leg failed."""
        self._last = run
        for leg in run.legs:
            if leg.query.origin == "original":
                self._report_leg(leg)
        expanded = [leg for leg in run.legs if leg.query.origin == "expansion"]
        if expanded:
            self._report_expanded(expanded)
        errors = [leg.error for leg in run.legs if leg.error is not None]
        if len(errors) == len(run.legs):
            raise errors[0]
        note = f"{self.fusion}: {run.candidates} candidates"
        if self.fusion == "adaptive" and run.balance.shift:
            note = f"{note}, vector share {run.balance.shift:+.2f}: {run.balance.reason}"
        if len(run.legs) > 2:
            note = f"{note} of {len(run.legs)} lists"
        if not run.is_whole:
            changing = "documents kept changing; hits that vanished are left out"
            self.stages.fell_back("fuse", changing, reason=changing)
            note = f"{note}; {changing}"
        self.stages.ran("fuse", run.ms, note)
        for error in {error.document: error for error in run.damaged}.values():
            self.stages.failed("read", 0.0, error)
        return list(run.passages)

    def _report_leg(self, run: LegRun) -> None:
        if run.error is not None:
            self.stages.failed(run.leg, run.ms, run.error)
            return
        if run.fallback:
            other = "the exact engine" if run.leg == "vector" else "the store's full text"
            reason = f"{other} answered in place of the index"
            self.stages.fell_back(run.leg, run.fallback, reason=reason)
        count = f"{run.engine}: {len(run.hits)} hits"
        words = run.words
        cover = f"the first has {words.cover:.0%} of the words" if words.cover < 1 else ""
        rare = f"passages with its rarest word: {len(words.rare)}" if words.rare else ""
        self.stages.ran(run.leg, run.ms, "; ".join(filter(None, (count, cover, rare, run.note))))

    def _report_expanded(self, runs: Sequence[LegRun]) -> None:
        for run in runs:
            if run.error is not None:
                self.stages.failed(f"{run.leg} expanded", run.ms, run.error)
        done = [run for run in runs if run.error is None]
        counts = [f"{sum(run.leg == leg for run in done)} {leg}" for leg in ("lexical", "vector")]
        hits = sum(len(run.hits) for run in done)
        slowest = max((run.ms for run in done), default=0.0)
        self.stages.ran("expanded legs", slowest, f"{', '.join(counts)}: {hits} hits")


def fuse_lists(
    lists: Sequence[RankedList],
    rag: RAGv2Settings,
    unembedded: AbstractSet[str] = frozenset(),
    balance: Balance = PRIOR,
) -> list[FusedHit]:
    """Return the lists as one, fused as the settings say."""
    if rag.fusion_mode == "adaptive":
        return adaptive(lists, balance, unembedded=unembedded)
    if rag.fusion_mode == "relative_score":
        return relative_score(lists, unembedded=unembedded)
    bonuses = {"bonus_first": rag.bonus_first, "bonus_second": rag.bonus_second}
    return rrf(lists, k=rag.rrf_k, **bonuses, unembedded=unembedded)


def prefer_words(
    passages: Sequence[Passage], query: str, scale: float, known: Collection[str] = ()
) -> tuple[Passage, ...]:
    """Return fused passages in the order that the words they contain lead to, best first.

    A query of one or two keywords prefers passages that contain them, and more so as they are
    written; ``scale`` is the weight of its keyword list. Where the model knows only the languages
    ``known``, a passage in letters that neither they nor the query use loses half of its score:
    its vector is mostly noise.
    """
    keywords, asked_in = keywords_of(query), language_of_letters(query)
    ordered = []
    for passage in passages:
        hit, text = passage.fused, passage.chunk.text
        by_words = hit.originals("lexical")
        letters = language_of_letters(text[:_LETTERS_READ])
        bonus = 0.0
        if keywords and by_words and cover_of(passage.chunk, query) == 1.0:
            is_written = has_as_written(passage.chunk, keywords)
            bonus = scale * (HAS_WORDS + AS_WRITTEN * is_written)
        elif not by_words and known and letters not in (None, asked_in, *known):
            bonus = -hit.score / 2
        if bonus:
            bonus += hit.bonus
            score = sum([part.contribution for part in hit.contributions]) + bonus
            hit = hit._replace(score=score, bonus=bonus)
            passage = passage._replace(fused=hit, score=hit.score)
        ordered.append((-hit.score, hit.best_rank, hit.chunk_id, passage))
    return tuple(passage for *_, passage in sorted(ordered, key=itemgetter(0, 1, 2)))


def _without(leg: Leg, lists: list[RankedList]) -> list[RankedList]:
    """Return the other leg's lists, or all where these are empty: better any answer than none."""
    others = [ranked for ranked in lists if ranked.leg != leg]
    return others if any(ranked.hits for ranked in others) else lists


def _run_in_turn(legs: Sequence[LegRetriever], query: QueryBundle) -> list[LegRun]:
    return [leg.run(query) for leg in legs]


def _ranked_list(run: LegRun, ids: dict[int, str], rag: RAGv2Settings) -> RankedList:
    live = [(ids[hit.seq], hit.score) for hit in run.hits if hit.seq in ids]
    factor = rag.lexical_weight if run.leg == "lexical" else rag.vector_weight
    weight = rag.original_weight if run.query.origin == "original" else rag.expansion_weight
    return RankedList(
        leg=run.leg,
        engine=run.engine,
        query=run.query.text,
        origin=run.query.origin,
        weight=factor * weight,
        hits=tuple(sorted(live, key=lambda hit: (-hit[1], hit[0]))),
        spread=run.spread,
        words=run.words,
    )
