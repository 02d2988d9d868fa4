"""The search: both legs and the passages in one read transaction, models outside of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from catalog.core.errors import DamagedDocumentError
from catalog.core.params import SearchParams
from catalog.core.results import Evidence, Recency, SearchResults
from catalog.core.scope import Scope
from catalog.core.settings import RAGv2Settings
from catalog.retrieval.expansion import ExpansionPlan
from catalog.retrieval.fusion import (
    AS_WRITTEN,
    DEPTH,
    HAS_WORDS,
    NO_WORDS,
    PRIOR,
    Balance,
    FoundWords,
    FusedHit,
    Key,
    Leg,
    RankedList,
    adaptive,
    relative_score,
    rrf,
    single,
)
from catalog.retrieval.legs import (
    LegQuery,
    LegRun,
    Question,
    plan_legs,
    plan_own_legs,
    prepare_leg,
    question_about,
    rank_leg,
)
from catalog.retrieval.nothing_found import explain_nothing, find_nearest, tell_searched
from catalog.retrieval.parts import SearchParts
from catalog.retrieval.passages import Passage
from catalog.retrieval.query_words import (
    cover_of,
    find_words,
    how_written,
    keywords_of,
    looks_like_name,
)
from catalog.retrieval.refine import refine
from catalog.retrieval.request import SearchRequest, correct_spelling, for_agent, read_request
from catalog.retrieval.route import route
from catalog.retrieval.select import keep_distinct, keep_few_of_each, select_by_keyword
from catalog.retrieval.shape import to_result
from catalog.retrieval.stages import StageLog
from catalog.store.chunks import load_chunks, require_dataset
from catalog.store.embedding_cache import embedded_share, find_unembedded
from catalog.store.engine_types import (
    Restriction,
    read_chunk_ids,
    read_sizes,
    read_stamps,
    sizes_within,
)
from catalog.store.lexical.languages import language_of_letters
from catalog.store.statistics import count_vectors

if TYPE_CHECKING:
    from sqlalchemy import Connection

MAX_FACTOR = 300  # how many times deeper the legs may go to fill an answer
LONG_DOCUMENT = 20  # passages for each that a document may give, if these are more than the setting
_DAMAGED = 3  # documents named in notes
_MOST_KEYWORDS = 3  # of a query that puts passages with all words first
_LETTERS_READ = 1000  # characters of a passage that are read to find its script
MakeLegs = Callable[..., list[LegQuery]]


class Found(NamedTuple):
    """The passages of an answer, and how they were found.

    ``share`` is that of the passages with a vector, ``None`` for all.
    """

    passages: list[Passage]
    fusion: str
    confidence: float
    request: SearchRequest
    stages: StageLog
    share: float | None = None


@dataclass(frozen=True, slots=True)
class HybridRun:
    """The answer of each leg, all ``candidates`` fused, and the best ones as passages."""

    legs: tuple[LegRun, ...]
    passages: list[Passage]
    candidates: int
    ms: float
    damaged: Sequence[DamagedDocumentError] = ()
    words: FoundWords = NO_WORDS
    balance: Balance = PRIOR
    share: float | None = None

    @property
    def is_exhausted(self) -> bool:
        """Whether deeper legs would find nothing more."""
        read = len(self.passages) + len(self.damaged)
        return self.candidates <= read and all(
            run.error or len(run.hits) < run.top_k for run in self.legs
        )


def search(parts: SearchParts, params: SearchParams) -> SearchResults:
    """Return the results of one search: find, refine and shape passages."""
    started = time.perf_counter()
    return to_results(
        parts, params, find_passages(parts, for_agent(params, parts.settings)), started
    )


def to_results(
    parts: SearchParts, params: SearchParams, found: Found, started: float
) -> SearchResults:
    """Return the public form of what a search found that began at ``started``."""
    request, stages, first = found.request, found.stages, dict[Evidence | None, int | None]()
    first[None] = None
    with stages.run("shape"):
        results = [
            to_result(
                passage,
                rank,
                query=request.query,
                fusion=found.fusion,
                snippet_chars=parts.rag.snippet_chars,
                explain=params.explain,
                evidence_at=first.setdefault(passage.evidence, rank),
            )
            for rank, passage in enumerate(found.passages, start=1)
        ]
    nothing = () if results else explain_nothing(parts.library, params, request, stages)
    return SearchResults(
        tuple(results),
        query=params.query,
        datasets=tuple(request.restriction.datasets),
        mode=request.mode,
        stages=tuple(stages.reports),
        elapsed_ms=round((time.perf_counter() - started) * 1000, 3),
        confidence=found.confidence,
        low_confidence=found.confidence < parts.rag.low_confidence_below,
        agent=params.agent,
        searched=None if results else tell_searched(parts.library, params, request),
        nearest=() if results else tuple(find_nearest(parts, request)),
        notes=(
            *request.query.readings,
            *_tell_waiting(found),
            *request.notes,
            *_name_damaged(stages),
            *nothing,
        ),
    )


def find_passages(
    parts: SearchParts,
    params: SearchParams,
    question: Question | None = None,
    *,
    is_refined: bool = True,
    is_filled: bool = False,
) -> Found:
    """Find the passages of a search; without ``is_refined``, the candidates for them.

    With ``is_filled`` documents give more than their share if there are not enough passages.

    A ``question`` may have an embedding, or texts to embed, instead of the query's. An agent in the
    params is ignored.
    """
    stages = StageLog(strict=params.strict, on_stage=parts.on_stage)
    request = replace(read_request(params, parts, stages), is_filled=is_filled)
    if request.rerank:
        _ = parts.reranker  # a missing setting is an error, not a failed stage
    found = gather(parts, request, stages, question)
    passages, request, confidence = found.passages, found.request, 0.0
    if is_refined:
        passages, confidence = refine(parts, request, passages, stages)
    if request.sort == "date":
        passages = sorted(passages, key=_age)
    return found._replace(passages=passages, confidence=confidence)


def gather(
    parts: SearchParts,
    request: SearchRequest,
    stages: StageLog,
    question: Question | None = None,
) -> Found:
    """Return fused and selected passages, best first; the request has corrected words.

    With the router on, passages come from the documents that it chooses. If these give fewer than
    ``request.top_k`` passages, all documents are searched.
    """
    started = time.perf_counter()
    question = question_about(question or Question(""), request.query, request.mode)
    routed = route(parts, request, stages)
    if routed is None:
        return _gather(parts, request, question, request.restriction, stages)
    doc_ids, note = routed
    ms = (time.perf_counter() - started) * 1000
    chosen, everything = stages.fork(), request.restriction
    within = replace(everything, scope=everything.scope & Scope.of(doc_ids))
    found = _gather(parts, request, question, within, chosen)
    if len(found.passages) >= request.top_k:
        stages.ran("route", ms, note)
        stages.join(chosen)
        return found._replace(stages=stages)
    ms = (time.perf_counter() - started) * 1000
    few = f"they gave {len(found.passages)} passages, so all documents were searched"
    stages.ran("route", ms, f"{note}; {few}")
    return _gather(parts, request, question, everything, stages)


def _gather(
    parts: SearchParts,
    request: SearchRequest,
    question: Question,
    within: Restriction,
    stages: StageLog,
) -> Found:
    """Rank, fuse and select; if that leaves too few passages and all are read, rank deeper."""
    rag, parsed, top_k = parts.rag, request.query, request.top_k
    for leg in ("lexical", "vector"):
        if request.mode not in (leg, "hybrid"):
            stages.skipped(leg, f"mode is {request.mode}")
    least = DEPTH if rag.fusion_mode == "adaptive" and request.mode == "hybrid" else 1
    plan = _plan_expansion(parts, request, stages)
    bound = replace(within, without=parsed.exclusions, containing=parsed.required)
    wanted = max(top_k, rag.rerank_candidates if request.rerank else 0)
    read, factor, most = 2 * wanted, rag.overfetch, top_k
    is_reordered = (
        keywords_of(parsed.lexical_text, _MOST_KEYWORDS) or parsed.phrases or parsed.loose
    )
    if is_reordered or request.recency_half_life_days > 0:
        read = max(rag.fusion_top_k, read)
    respelt: list[SearchRequest] = []
    found: list[Passage] = []
    selected: list[Passage] = []
    cap = 0 if rag.max_chunks_per_doc > 1 and request.is_one_document else rag.max_chunks_per_doc

    def is_enough(passages: Sequence[Passage]) -> bool:
        found[:], age = passages, request.recency_half_life_days
        if age > 0:
            found[:] = favour_recent(passages, age, time.time())
        one_each = (
            select_by_keyword(found, question.text) if rag.chunk_selection == "keyword" else found
        )
        different = keep_distinct(one_each) if request.distinct else one_each
        selected[:] = keep_few_of_each(different, cap, _shares(parts, different, cap))
        return len(selected) >= top_k

    def spelt(make_legs: MakeLegs) -> list[LegQuery]:
        if not respelt:
            respelt.append(correct_spelling(request, parts))
        return plan_own_legs(make_legs, respelt[0].query, request.mode)

    while True:
        round_stages = stages.fork()
        k_lex = max(least, max(rag.fts_top_k, top_k) * factor)
        k_dense = max(least, max(rag.vector_top_k, top_k) * factor)
        make_legs = partial(
            plan_legs, parts, bound, mode=request.mode, k_lex=k_lex, k_dense=k_dense
        )
        legs = plan_own_legs(make_legs, parsed, request.mode)
        run = find(
            parts,
            legs,
            question,
            read,
            round_stages,
            plan=plan,
            make_legs=make_legs,
            respell=partial(spelt, make_legs),
            is_enough=is_enough,
        )
        if len(selected) >= most or run.is_exhausted or factor >= MAX_FACTOR:
            break
        if factor == rag.overfetch and cap:  # a few long documents may have no more to give
            with parts.database.read() as connection:
                sizes = sizes_within(connection, within)
            most = min(most, sum(min(size, share_of(size, cap)) for size in sizes))
            if len(selected) >= most:
                break
        factor, read = factor * 4, read * 4
    stages.join(round_stages)
    missing = top_k - len(selected) if request.is_filled and cap > 1 else 0
    if missing > 0:
        kept = {passage.chunk.seq for passage in selected}
        whole = keep_distinct(found) if request.distinct else found
        kept |= set(islice((one.chunk.seq for one in whole if one.chunk.seq not in kept), missing))
        selected = [passage for passage in whole if passage.chunk.seq in kept]
    with stages.run("select") as notes:
        shown = "any" if missing > 0 or not cap else cap
        notes.append(f"{len(selected)} of {len(found)} kept, {shown} per document")
        if copies := sum(len(passage.copies) for passage in selected):
            notes.append(f"{copies} say the same as another")
        if factor > rag.overfetch:
            notes.append(f"legs searched {factor} times deeper to fill the answer")
    allowed = replace(request.restriction, without=request.query.exclusions)
    passages = [passage._replace(restriction=allowed) for passage in selected]
    return Found(passages, fusion_of(run, rag), 0.0, respelt[0], stages, run.share)


def find(
    parts: SearchParts,
    legs: Sequence[LegQuery],
    question: Question,
    top_k: int,
    stages: StageLog,
    *,
    plan: ExpansionPlan | None = None,
    make_legs: MakeLegs | None = None,
    respell: Callable[[], Sequence[LegQuery]] | None = None,
    is_enough: Callable[[Sequence[Passage]], bool] | None = None,
) -> HybridRun:
    """Return the best ``top_k`` passages of all legs, fused, and more until it ``is_enough``.

    A ``plan`` adds its sub-queries by the legs that ``make_legs`` makes; their lists have the
    weight ``expansion_weight``, the question's own ``original_weight``. ``respell`` returns the
    same legs for corrected words; it is called in the transaction. Raises the first error if every
    leg failed.
    """
    parts.library.require_open()
    prepared = [prepare_leg(leg, question) for leg in legs]

    def rank(connection: Connection) -> list[LegRun]:
        own = respell() if respell else legs
        every = zip([*own, *added], prepared, strict=True)
        return [rank_leg(connection, leg, question, one) for leg, one in every]

    added: list[LegQuery] = []
    if plan is not None and make_legs is not None:
        runs: list[LegRun] = []
        if plan.sub_queries is None:  # models are asked with no transaction open
            with parts.database.snapshot(), parts.database.read() as connection:
                runs = rank(connection)
                size = count_vectors(connection, legs[0].restriction.dataset)
            plan.decide(question.text, runs, size)
        added = make_legs(plan.sub_queries or ())
        prepared += [prepare_leg(leg, question) for leg in added]
    with parts.database.snapshot(), parts.database.read() as connection:
        dataset = legs[0].restriction.dataset
        if isinstance(dataset, str) and None in read_stamps(connection, dataset):
            require_dataset(connection, dataset)
        runs = rank(connection)
        run = _fuse(parts, connection, [*legs, *added], runs, question, top_k, is_enough)
    if plan is not None:
        stages.join(plan.stages)
    _report(run, parts.rag, stages)
    return run


def _fuse(
    parts: SearchParts,
    connection: Connection,
    legs: Sequence[LegQuery],
    runs: Sequence[LegRun],
    question: Question,
    top_k: int,
    is_enough: Callable[[Sequence[Passage]], bool] | None,
) -> HybridRun:
    """Fuse the answers, and read the best passages, in the state that the connection sees."""
    started, rag, within = time.perf_counter(), parts.rag, legs[0].restriction
    dataset, phrases = within.dataset, within.containing
    damaged = [error for run in runs for error in run.damaged]
    answered = [run for run in runs if run.error is None]
    kinds = frozenset(run.query.kind for run in answered if run.query.origin == "original")
    by_words = kinds & {"lex"}
    seqs = {hit.seq for run in runs for hit in run.hits}
    if parts.asks_server:  # which was asked before
        seqs &= read_chunk_ids(connection, dataset, seqs).keys()
    words = _find_words(connection, legs, runs, seqs)
    lists = [_ranked_list(run, seqs, words, rag) for run in answered]
    waiting: AbstractSet[int] = frozenset()
    balance = PRIOR
    if len(runs) == 1:
        fused = single(lists[0]) if lists else []
    else:
        of_vectors = {hit.seq for run in answered if run.leg == "vector" for hit in run.hits}
        waiting = find_unembedded(connection, dataset, seqs - of_vectors)
        balance = parts.balance(dataset)
        if (useless := balance.left_out) is not None:
            kinds_left = by_words if useless == "vector" else kinds - by_words
            kinds = kinds_left or kinds  # relevance is that of a search by the other leg
            lists = _without(useless, lists)
        fused = fuse_lists(lists, rag, waiting, balance)
    text = next((run.query.text for run in runs if run.query.origin == "original"), "")
    # BM25 ranks plain words well by itself, but ignores signs.
    has_signs = any(not word.isalpha() for word in phrases or keywords_of(text))
    is_preferred = rag.fusion_mode == "adaptive" and (
        len(lists) > 1 or (len(lists) == 1 and lists[0].leg == "lexical" and has_signs)
    )
    found: list[Passage] = []
    done = 0
    while done < len(fused):
        best = fused[done : max(top_k, 2 * done)]
        done += len(best)
        read = load_chunks(connection, dataset, [int(hit.key) for hit in best], damaged=damaged)
        found += [
            Passage(read[seq], hit.score, hit, by_words if seq in waiting else kinds)
            for hit in best
            if (seq := int(hit.key)) in read
        ]
        passages = found
        if is_preferred:
            known = parts.known_languages
            passages = prefer_words(
                found, text, rag.original_weight, known, phrases, question.loose
            )
        if is_enough is None or is_enough(passages):
            break
    else:
        passages = passages if found else []
    share = embedded_share(connection, within) if legs[-1].kind != "lex" else None
    ms = (time.perf_counter() - started) * 1000
    return HybridRun(tuple(runs), passages, len(fused), ms, damaged, words, balance, share)


def _find_words(
    connection: Connection, legs: Sequence[LegQuery], runs: Sequence[LegRun], seqs: set[int]
) -> FoundWords:
    """Return which words of the user's own query the passages have."""
    for leg, run in zip(legs, runs, strict=True):
        if leg.engine is not None and run.query.origin == "original" and run.hits:
            return find_words(
                connection, leg.engine, leg.restriction, run.query.text, run.hits, seqs
            )
    return NO_WORDS


def _ranked_list(
    run: LegRun, seqs: Collection[int], words: FoundWords, rag: RAGv2Settings
) -> RankedList:
    is_original = run.query.origin == "original"
    return RankedList(
        leg=run.leg,
        engine=run.engine,
        query=run.query.text,
        origin=run.query.origin,
        weight=rag.original_weight if is_original else rag.expansion_weight,
        hits=[hit for hit in run.hits if hit.seq in seqs],
        spread=run.spread,
        words=words if is_original and run.leg == "lexical" else NO_WORDS,
    )


def _without(leg: Leg, lists: list[RankedList]) -> list[RankedList]:
    """Return the other leg's lists; if it has no lists, return all, so that something is found."""
    others = [ranked for ranked in lists if ranked.leg != leg]
    return others if any(ranked.hits for ranked in others) else lists


def fuse_lists(
    lists: Sequence[RankedList],
    rag: RAGv2Settings,
    unembedded: AbstractSet[Key] = frozenset(),
    balance: Balance = PRIOR,
) -> list[FusedHit]:
    """Fuse the lists as the settings say."""
    if rag.fusion_mode == "adaptive":
        return adaptive(lists, balance, unembedded=unembedded)
    if rag.fusion_mode == "relative_score":
        return relative_score(lists, unembedded=unembedded)
    return rrf(lists, k=rag.rrf_k, unembedded=unembedded)


def prefer_words(
    passages: Sequence[Passage],
    query: str,
    scale: float,
    known: Collection[str] = (),
    phrases: tuple[str, ...] = (),
    loose: tuple[str, ...] = (),
) -> list[Passage]:
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
        if keywords and by_words and cover_of(passage.chunk, query, by_words[0].source.words) == 1:
            written = how_written(passage.chunk, keywords)
            if written or not has_name:  # the parts of a name are not the name
                bonus = scale * (HAS_WORDS + AS_WRITTEN * written)
        elif not by_words and known and letters not in (None, asked_in, *known):
            bonus = -hit.score / 2
        if loose:
            held = sum(how_written(passage.chunk, [phrase]) == 1 for phrase in loose)
            bonus += scale * AS_WRITTEN * held / len(loose)
        if bonus:
            bonus += hit.bonus
            score = sum([part.contribution for part in hit.contributions]) + bonus
            hit = hit._replace(score=score, bonus=bonus)
            passage = passage._replace(fused=hit, score=hit.score)
        ordered.append((hit.order, passage))
    return [passage for _, passage in sorted(ordered, key=lambda one: one[0])]


def favour_recent(passages: Sequence[Passage], half_life_days: float, now: float) -> list[Passage]:
    """Return the passages with ``score * 2 ** (-age / half_life)``, best first.

    The age is that of the document at the timestamp ``now``, by the same date that ``after`` and
    ``before`` compare. It is 0 for a document without a date or with a future one. Negative scores
    stay.

    >>> favour_recent([], 30.0, 0.0)
    []
    """
    aged = []
    for passage in passages:
        dated = now if passage.chunk.dated is None else passage.chunk.dated
        age_days = max(0.0, now - dated) / 86_400
        factor = 2.0 ** (-age_days / half_life_days) if passage.score > 0 else 1.0
        recency = Recency(age_days=age_days, half_life_days=half_life_days, factor=factor)
        aged.append(passage._replace(score=passage.score * factor, recency=recency))
    return sorted(aged, key=lambda passage: -passage.score)


def share_of(size: int, cap: int) -> int:
    """Return how many passages a document of ``size`` passages may give; a cap of 1 stays 1."""
    return cap if cap <= 1 else max(cap, size // LONG_DOCUMENT)


def _shares(parts: SearchParts, passages: Sequence[Passage], cap: int) -> dict[str, int]:
    """Return how many passages the documents with more than ``cap`` may give, by their keys."""
    names: dict[str, set[str]] = {}
    of_each: dict[str, int] = {}
    for passage in passages:
        names.setdefault(passage.document, set()).add(passage.chunk.source_doc_id)
        of_each[passage.document] = of_each.get(passage.document, 0) + 1
    full = [key for key, count in of_each.items() if count > cap] if cap > 1 else []
    if not full:
        return {}
    wanted = {name for key in full for name in names[key]}
    with parts.database.read() as connection:
        size = read_sizes(connection, wanted)
    return {key: share_of(sum(size.get(name, 0) for name in names[key]), cap) for key in full}


def _plan_expansion(
    parts: SearchParts, request: SearchRequest, stages: StageLog
) -> ExpansionPlan | None:
    """Return the plan of an expansion if the call wants one and the query has no typed lines."""
    if not request.expand:
        return None
    if request.query.is_typed:
        stages.skipped("expand", "the query is typed")
        return None
    return ExpansionPlan(parts, strict=stages.strict)


def fusion_of(run: HybridRun, rag: RAGv2Settings) -> str:
    """Return the name of the fusion for explanations."""
    return "none" if len(run.legs) == 1 else rag.fusion_mode


def _report(run: HybridRun, rag: RAGv2Settings, stages: StageLog) -> None:
    """Report every stage; raise the first error if every leg failed."""
    for leg in run.legs:
        if leg.query.origin == "original":
            _report_leg(leg, run.words, stages)
    expanded = [leg for leg in run.legs if leg.query.origin == "expansion"]
    for leg in expanded:
        if leg.error is not None:
            stages.failed(f"{leg.leg} expanded", leg.ms, leg.error)
    if done := [leg for leg in expanded if leg.error is None]:
        counts = [
            f"{sum(leg.leg == name for leg in done)} {name}" for name in ("lexical", "vector")
        ]
        hits, ms = sum(len(leg.hits) for leg in done), sum(leg.ms for leg in done)
        stages.ran("expanded legs", ms, f"{', '.join(counts)}: {hits} hits")
    errors = [leg.error for leg in run.legs if leg.error is not None]
    if len(errors) == len(run.legs):
        raise errors[0]
    fusion = fusion_of(run, rag)
    note = f"{fusion}: {run.candidates} candidates"
    if fusion == "adaptive" and run.balance.shift:
        note = f"{note}, vector share {run.balance.shift:+.2f}: {run.balance.reason}"
    if len(run.legs) > 2:
        note = f"{note} of {len(run.legs)} lists"
    stages.ran("fuse", run.ms, note)
    for error in {error.document: error for error in run.damaged}.values():
        stages.failed("read", 0.0, error)


def _report_leg(run: LegRun, words: FoundWords, stages: StageLog) -> None:
    if run.error is not None:
        stages.failed(run.leg, run.ms, run.error)
        return
    if run.fallback:
        stages.fell_back(run.leg, run.fallback, reason="the index is behind the store")
    notes = [f"{run.engine}: {len(run.hits)} hits"]
    if run.leg == "lexical" and run.hits:
        notes += [f"the first has {words.cover:.0%} of the words"] if words.cover < 1 else []
        notes += [f"passages with its rarest word: {len(words.rare)}"] if words.rare else []
    stages.ran(run.leg, run.ms, "; ".join(filter(None, (*notes, run.note))))


def _tell_waiting(found: Found) -> Iterator[str]:
    """Return a note on the share of passages that can be found by meaning, unless it is all."""
    if found.share is not None:
        is_alone = found.request.mode == "vector"
        others = "no other passages were searched" if is_alone else "by words: all"
        yield f"by meaning: {math.floor(100 * found.share)} % of the passages so far; {others}"


def _age(passage: Passage) -> float:
    """Return what puts the newest documents first, and those without a date last."""
    return math.inf if passage.chunk.dated is None else -passage.chunk.dated


def _name_damaged(stages: StageLog) -> Iterator[str]:
    """Name the documents whose damaged passages or vectors were left out."""
    notes = [one.note for one in stages.reports if (one.name, one.status) == ("read", "failed")]
    yield from (note.partition(": ")[2] for note in notes[:_DAMAGED])
    if len(notes) > _DAMAGED:
        yield f"{len(notes) - _DAMAGED} more documents are damaged: run 'catalog doctor'"
