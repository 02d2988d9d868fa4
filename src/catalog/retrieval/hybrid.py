"""A hybrid search: legs at the same time, fused over one state of the store."""

from __future__ import annotations

import contextvars
import time
from collections.abc import Callable, Collection, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from operator import itemgetter

from catalog.core.errors import DamagedDocumentError, StoreError
from catalog.core.settings import RAGv2Settings
from catalog.library.library import CLOSED
from catalog.retrieval.adaptive import AS_WRITTEN, HAS_WORDS, PRIOR, Balance, adaptive
from catalog.retrieval.fusion import FusedHit, Leg, RankedList, relative_score, rrf, single
from catalog.retrieval.legs import LegQuery, LegRun, Question, run_leg
from catalog.retrieval.passages import Passage
from catalog.retrieval.query_words import cover_of, how_written, keywords_of, looks_like_name
from catalog.retrieval.search_parts import SearchParts
from catalog.retrieval.stages import StageLog
from catalog.store.chunks import load_chunks
from catalog.store.embedding_cache import find_unembedded
from catalog.store.engine_types import Restriction, Stamp, read_chunk_ids, read_stamps
from catalog.store.filter_sql import DatasetNames
from catalog.store.lexical.languages import language_of_letters

ATTEMPTS = 3  # runs without a snapshot; after that a search holds one state of the store
HELD_ATTEMPTS = 3  # runs with a snapshot: another thread may still change an index
_MOST_KEYWORDS = 3  # of a query that puts passages with all words first
_LETTERS_READ = 1000  # characters of a passage that are read to find its script
FurtherLegs = Callable[[Question, Sequence[LegRun]], list[LegQuery]]
_RunLegs = Callable[[Sequence[LegQuery], Question], list[LegRun]]


@dataclass(frozen=True, slots=True)
class HybridRun:
    """The answer of each leg, and the best ``top_k`` of all their ``candidates``.

    ``is_whole``: both legs saw the state of the store that was fused. ``ms`` is the fusion's time.
    ``damaged`` are passages that are left out because their bytes changed since they were stored.
    """

    legs: tuple[LegRun, ...]
    passages: tuple[Passage, ...]
    top_k: int
    candidates: int
    is_whole: bool
    ms: float
    damaged: tuple[DamagedDocumentError, ...] = ()
    balance: Balance = PRIOR

    @property
    def is_exhausted(self) -> bool:
        """Whether deeper legs would find nothing more."""
        return self.candidates <= self.top_k and all(
            run.error or len(run.hits) < run.top_k for run in self.legs
        )


def find(
    parts: SearchParts,
    legs: Sequence[LegQuery],
    question: Question,
    top_k: int,
    further: FurtherLegs | None = None,
) -> HybridRun:
    """Return the best ``top_k`` passages of all legs, fused; :func:`report` reports them.

    ``further`` returns additional legs to run, given the first answers.
    """
    within = legs[0].restriction
    parts.library.require_open()

    def run_all(run_legs: _RunLegs) -> list[LegRun]:
        runs = run_legs(legs, question)
        more = further(question, runs) if further else []
        return [*runs, *run_legs(more, question)] if more else runs

    def run_beside(legs: Sequence[LegQuery], question: Question) -> list[LegRun]:
        *others, last = legs
        try:
            jobs = [
                parts.threads.submit(contextvars.copy_context().run, run_leg, leg, question)
                for leg in others
            ]
        except RuntimeError as error:  # it was closed meanwhile
            raise StoreError(CLOSED) from error
        in_this_thread = run_leg(last, question)
        return [*(job.result() for job in jobs), in_this_thread]

    for _ in range(ATTEMPTS):
        with parts.database.read() as connection:
            before = read_stamps(connection, within.dataset)
        run = _fuse(parts, within, run_all(run_beside), top_k, before, question.loose)
        if run.is_whole:
            return run
    for _ in range(HELD_ATTEMPTS):  # leg after leg on one state: no writer can interfere
        with parts.database.snapshot():
            run = _fuse(parts, within, run_all(_run_in_turn), top_k, None, question.loose)
        if run.is_whole:
            break
    return run


def _run_in_turn(legs: Sequence[LegQuery], question: Question) -> list[LegRun]:
    return [run_leg(leg, question) for leg in legs]


def _fuse(
    parts: SearchParts,
    within: Restriction,
    runs: Sequence[LegRun],
    top_k: int,
    before: tuple[Stamp | None, ...] | None,
    loose: tuple[str, ...],
) -> HybridRun:
    """Join the hits to the store, fuse, and read the best passages, all in one state of the store.

    ``before`` is its state before the legs ran; ``None`` if they ran on this one.
    """
    started, dataset, phrases = time.perf_counter(), within.dataset, within.containing
    seqs = {hit.seq for run in runs for hit in run.hits}
    damaged = [error for run in runs for error in run.damaged]
    answered = [run for run in runs if run.error is None]
    kinds = frozenset(run.query.kind for run in answered if run.query.origin == "original")
    words = kinds & {"lex"}
    waiting: AbstractSet[int] = frozenset()
    balance = PRIOR
    with parts.database.read() as connection:
        ids = read_chunk_ids(connection, dataset, seqs)
        is_same = before is None or len(runs) == 1 or before == read_stamps(connection, dataset)
        lists = [_ranked_list(run, ids, parts.rag) for run in answered]
        if len(runs) == 1:
            fused = single(lists[0]) if lists else []
        else:
            of_vectors = {hit.seq for run in answered if run.leg == "vector" for hit in run.hits}
            others = ids.keys() - of_vectors
            waiting = find_unembedded(connection, dataset, others)
            if before is None:  # the vector index may lack chunks that were deleted meanwhile
                waiting |= _deleted_since(parts, dataset, others)
            balance = parts.balance(dataset)
            if (useless := balance.left_out) is not None:
                kinds_left = words if useless == "vector" else kinds - words
                kinds = kinds_left or kinds  # relevance is that of a search by the other leg
                lists = _without(useless, lists)
            unembedded = {ids[seq] for seq in waiting}
            fused = fuse_lists(lists, parts.rag, unembedded, balance)
        best = fused[:top_k]
        seq_of = {chunk_id: seq for seq, chunk_id in ids.items()}
        best_seqs = [seq_of[hit.chunk_id] for hit in best]
        chunks = load_chunks(connection, dataset, best_seqs, damaged=damaged)
    passages = tuple(
        Passage(chunks[seq], hit.score, hit, words if seq in waiting else kinds)
        for hit in best
        if (seq := seq_of[hit.chunk_id]) in chunks
    )
    if lists and parts.rag.fusion_mode == "adaptive":
        text, rag = next(r.query.text for r in runs if r.query.origin == "original"), parts.rag
        # BM25 ranks plain words well by itself, but ignores signs.
        has_signs = any(not word.isalpha() for word in phrases or keywords_of(text))
        if len(lists) > 1 or (lists[0].leg == "lexical" and has_signs):
            scale = rag.lexical_weight * rag.original_weight
            passages = prefer_words(passages, text, scale, parts.known_languages, phrases, loose)
    ms = (time.perf_counter() - started) * 1000
    is_whole = is_same and len(ids) == len(seqs)
    return HybridRun(
        tuple(runs), passages, top_k, len(fused), is_whole, ms, tuple(damaged), balance
    )


def _deleted_since(
    parts: SearchParts, dataset: DatasetNames, seqs: AbstractSet[int]
) -> frozenset[int]:
    """Return the chunks of a snapshot that the store no longer has."""
    with parts.database.read(latest=True) as connection:
        return frozenset(seqs - read_chunk_ids(connection, dataset, seqs).keys())


def fusion_of(run: HybridRun, rag: RAGv2Settings) -> str:
    """Return the name of the fusion for explanations."""
    return "none" if len(run.legs) == 1 else rag.fusion_mode


def report(run: HybridRun, rag: RAGv2Settings, stages: StageLog) -> None:
    """Report every stage; raise the first error if every leg failed."""
    for leg in run.legs:
        if leg.query.origin == "original":
            _report_leg(leg, stages)
    expanded = [leg for leg in run.legs if leg.query.origin == "expansion"]
    if expanded:
        _report_expanded(expanded, stages)
    errors = [leg.error for leg in run.legs if leg.error is not None]
    if len(errors) == len(run.legs):
        raise errors[0]
    fusion = fusion_of(run, rag)
    note = f"{fusion}: {run.candidates} candidates"
    if fusion == "adaptive" and run.balance.shift:
        note = f"{note}, vector share {run.balance.shift:+.2f}: {run.balance.reason}"
    if len(run.legs) > 2:
        note = f"{note} of {len(run.legs)} lists"
    if not run.is_whole:
        changing = "documents kept changing; hits that disappeared are left out"
        stages.fell_back("fuse", changing, reason=changing)
        note = f"{note}; {changing}"
    stages.ran("fuse", run.ms, note)
    for error in {error.document: error for error in run.damaged}.values():
        stages.failed("read", 0.0, error)


def _report_leg(run: LegRun, stages: StageLog) -> None:
    if run.error is not None:
        stages.failed(run.leg, run.ms, run.error)
        return
    if run.fallback:
        other = "the engine flat" if run.leg == "vector" else "the store's full text"
        reason = f"{other} answered instead of the index"
        stages.fell_back(run.leg, run.fallback, reason=reason)
    count = f"{run.engine}: {len(run.hits)} hits"
    words = run.words
    cover = f"the first has {words.cover:.0%} of the words" if words.cover < 1 else ""
    rare = f"passages with its rarest word: {len(words.rare)}" if words.rare else ""
    stages.ran(run.leg, run.ms, "; ".join(filter(None, (count, cover, rare, run.note))))


def _report_expanded(runs: Sequence[LegRun], stages: StageLog) -> None:
    for run in runs:
        if run.error is not None:
            stages.failed(f"{run.leg} expanded", run.ms, run.error)
    done = [run for run in runs if run.error is None]
    counts = [f"{sum(run.leg == leg for run in done)} {leg}" for leg in ("lexical", "vector")]
    hits = sum(len(run.hits) for run in done)
    slowest = max((run.ms for run in done), default=0.0)
    stages.ran("expanded legs", slowest, f"{', '.join(counts)}: {hits} hits")


def fuse_lists(
    lists: Sequence[RankedList],
    rag: RAGv2Settings,
    unembedded: AbstractSet[str] = frozenset(),
    balance: Balance = PRIOR,
) -> list[FusedHit]:
    """Fuse the lists as the settings say."""
    if rag.fusion_mode == "adaptive":
        return adaptive(lists, balance, unembedded=unembedded)
    if rag.fusion_mode == "relative_score":
        return relative_score(lists, unembedded=unembedded)
    bonuses = {"bonus_first": rag.bonus_first, "bonus_second": rag.bonus_second}
    return rrf(lists, k=rag.rrf_k, **bonuses, unembedded=unembedded)


def prefer_words(
    passages: Sequence[Passage],
    query: str,
    scale: float,
    known: Collection[str] = (),
    phrases: tuple[str, ...] = (),
    loose: tuple[str, ...] = (),
) -> tuple[Passage, ...]:
    """Sort fused passages again by the words that they contain, best first.

    A query of one to three keywords, or with quoted ``phrases``, gives a bonus to passages that
    contain them, and a higher one if they are written as in the query. Passages with ``loose``
    phrases, which do not bind, gain by the share of them that they contain. ``scale`` is the weight
    of the keyword list. If the model knows only the languages ``known``, a passage in letters of
    neither these nor the query loses half of its score, because its vector is mostly noise.
    """
    keywords, asked_in = phrases or keywords_of(query, _MOST_KEYWORDS), language_of_letters(query)
    has_name, ordered = any(map(looks_like_name, keywords)), []
    for passage in passages:
        hit, text = passage.fused, passage.chunk.text
        by_words = hit.originals("lexical")
        letters = language_of_letters(text[:_LETTERS_READ])
        bonus = 0.0
        if keywords and by_words and cover_of(passage.chunk, query) == 1.0:
            written = how_written(passage.chunk, keywords)
            if written or not has_name:  # the parts of a name are not the name
                bonus = scale * (HAS_WORDS + AS_WRITTEN * written)
        elif not by_words and known and letters not in (None, asked_in, *known):
            bonus = -hit.score / 2
        if loose:
            written = sum(how_written(passage.chunk, [phrase]) == 1 for phrase in loose)
            bonus += scale * AS_WRITTEN * written / len(loose)
        if bonus:
            bonus += hit.bonus
            score = sum([part.contribution for part in hit.contributions]) + bonus
            hit = hit._replace(score=score, bonus=bonus)
            passage = passage._replace(fused=hit, score=hit.score)
        ordered.append((-hit.score, hit.best_rank, hit.chunk_id, passage))
    return tuple(passage for *_, passage in sorted(ordered, key=itemgetter(0, 1, 2)))


def _without(leg: Leg, lists: list[RankedList]) -> list[RankedList]:
    """Return the other leg's lists; if it has no lists, return all, so that something is found."""
    others = [ranked for ranked in lists if ranked.leg != leg]
    return others if any(ranked.hits for ranked in others) else lists


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
