"""The search: both legs and the passages in one read transaction, models outside of it."""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import chain, zip_longest
from typing import Any, NamedTuple, Self

from catalog.core.arguments import takes_self
from catalog.core.errors import CatalogError, QueryError
from catalog.core.params import Mode, SearchParams
from catalog.core.query import SubQuery
from catalog.core.results import SearchResults
from catalog.core.retrieval_events import searching
from catalog.core.scope import Scope
from catalog.core.settings import RAGv2Settings
from catalog.library.library import Library
from catalog.retrieval.fusion import (
    DEPTH,
    NO_WORDS,
    PRIOR,
    Balance,
    FoundWords,
    FusedHit,
    RankedList,
    adaptive,
    relative_score,
    rrf,
    single,
)
from catalog.retrieval.legs import LegQuery, LegRun, Question, expand, plan_legs, ranking
from catalog.retrieval.parts import OnStage, SearchParts, StageLog
from catalog.retrieval.query_words import find_words, keywords_of, reword
from catalog.retrieval.recordings import add_evidence, is_timed
from catalog.retrieval.relevance import judge_relevance
from catalog.retrieval.request import SearchRequest, for_agent, read_request
from catalog.retrieval.select import (
    MOST_KEYWORDS,
    favour_recent,
    keep_distinct,
    keep_few_of_each,
    keep_relevant,
    keep_within_budget,
    prefer_words,
    select_by_keyword,
    share_of,
    shares_of,
)
from catalog.retrieval.shape import explain_nothing, find_nearest, tell_searched, to_result
from catalog.retrieval.snippets import Passage, find_snippet
from catalog.store.cards import card_terms, search_cards
from catalog.store.chunks import load_chunks
from catalog.store.document_names import DocumentNames, count_whole
from catalog.store.embedding_cache import embedded_share, find_unembedded, is_noted_waiting
from catalog.store.listing import allowed_documents, count_documents, read_documents_of_chunks
from catalog.store.restriction import Restriction, read_chunk_ids, sizes_within

MAX_FACTOR = 300  # how many times deeper the legs may go to fill an answer
ROUTED = 100  # best passages of the lexical index whose documents the router may choose
_DAMAGED = 3  # documents named in notes
_COMPARISON = "catalog.search_v2.compare_with_v1"


class Searcher:
    """Search one store. Thread-safe; keep it open, because models and indexes load once.

    ``parts`` replace those of the library's settings. ``on_stage`` is called with the report of
    each step of a search as soon as the step ends.
    """

    def __init__(
        self, library: Library, parts: SearchParts | None = None, *, on_stage: OnStage | None = None
    ) -> None:
        self.library = library
        self.parts = parts or SearchParts(library)
        self.parts.on_stage = on_stage or self.parts.on_stage

    def with_settings(self, changes: Mapping[str, Any]) -> Self:
        """Return a service for other v2 settings on the same store, models and indexes.

        Close only one of them. Raises :class:`ConfigError` for a setting that needs a rebuild.
        """
        return type(self)(self.library, self.parts.with_settings(changes))

    @takes_self(SearchParams)
    def search(self, params: SearchParams) -> SearchResults:
        """Return the ``top_k`` best passages for a query, best first.

        Several datasets are searched as one; without ``dataset``, all are. A stage that fails is
        reported in ``stages`` and the rest answers, unless ``strict``. Raises :class:`InputError`
        kinds for a bad call, :class:`ConfigError` kinds for a stage that is on and has no model.
        """
        return self.run(params)

    def run(self, params: SearchParams) -> SearchResults:
        """Return the results of a search; see :meth:`search`."""
        with searching(str(self.library.settings.home)):
            started, parts = time.perf_counter(), self.parts
            if params.compare_with_v1:  # by its name, because it imports this module
                results: SearchResults = import_module(_COMPARISON).search_beside(parts, params)
                return results
            found = find_passages(parts, for_agent(params, parts.settings))
            return to_results(parts, params, found, started)

    def run_logged(self, params: SearchParams) -> SearchResults:
        """Return the results of a search, and log it if it came from an edge."""
        with self.library.log.watching(params) as note:
            results = self.run(params)
            note(results, agent=results.agent)
        return results

    def warm_up(self, dataset: str, mode: Mode | None = None) -> None:
        """Load the models and indexes that a search of the dataset needs."""
        with searching(str(self.library.settings.home)):
            find_passages(self.parts, SearchParams("warm up", dataset=dataset, top_k=1, mode=mode))

    def close(self) -> None:
        """Close the library."""
        self.parts.close()

    def __deepcopy__(self, memo: object) -> Self:
        return self  # its store and its models are open


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


def find_passages(
    parts: SearchParts,
    params: SearchParams,
    question: Question | None = None,
    *,
    is_refined: bool = True,
    is_filled: bool = False,
) -> Found:
    """Find the passages of a search; without ``is_refined``, the candidates for them.

    With ``is_filled`` documents give more than their share if there are too few. A ``question`` may
    have an embedding, or texts to embed, instead of the query's. An agent in the params is ignored.
    """
    stages = StageLog(strict=params.strict, on_stage=parts.on_stage)
    request = replace(read_request(params, parts, stages), is_filled=is_filled)
    if request.rerank:
        _ = parts.reranker  # a missing setting is an error, not a failed stage
    found = gather(parts, request, stages, question)
    passages, request, confidence = found.passages, found.request, 0.0
    if is_refined:
        passages, confidence = refine(parts, request, passages, stages)
    if request.sort == "date":  # newest first, those without a date last
        passages = sorted(passages, key=lambda one: -(one.chunk.dated or -math.inf))
    return found._replace(passages=passages, confidence=confidence)


def gather(
    parts: SearchParts, request: SearchRequest, stages: StageLog, question: Question | None = None
) -> Found:
    """Return fused and selected passages, best first; the request has corrected words.

    With the router on, passages come from the documents that it chooses. If these give fewer than
    ``request.top_k`` passages, all documents are searched.
    """
    query, within, rag = request.query, request.restriction, parts.rag
    question = question_about(question or Question(""), request)
    chosen, note, started = list[str](), "the query is typed", time.perf_counter()
    if rag.router_enabled and not query.is_typed:
        bound = replace(within, without=query.exclusions, containing=query.required)
        try:
            chosen, note = shortlist(parts, question.text, bound, rag.router_documents)
        except Exception as error:  # noqa: BLE001 - recorded as the stage's failure
            note = ""
            stages.failed("route", (time.perf_counter() - started) * 1000, error)
    if chosen:
        ms, of_chosen = (time.perf_counter() - started) * 1000, stages.fork()
        narrow = replace(within, scope=within.scope & Scope.of(chosen))
        found = _gather(parts, request, question, narrow, of_chosen)
        if len(found.passages) >= request.top_k:
            stages.ran("route", ms, note)
            stages.reports += of_chosen.reports
            return found._replace(stages=stages)
        few = f"they gave {len(found.passages)} passages, so all documents were searched"
        stages.ran("route", ms, f"{note}; {few}")
    elif rag.router_enabled and note:
        stages.skipped("route", note)
    return _gather(parts, request, question, within, stages)


def question_about(question: Question, request: SearchRequest) -> Question:
    """Return the question with the request's text and, unless that is typed, its own vector."""
    query = request.query
    text = query.about(request.mode)
    if query.is_typed:
        return Question(text, loose=query.loose)
    texts = tuple(text if one == question.text else one for one in question.texts)
    return Question(text, question.embedding, texts, query.loose)


def shortlist(
    parts: SearchParts, query: str, restriction: Restriction, limit: int
) -> tuple[list[str], str]:
    """Return at most ``limit`` source document ids, best first, with all their files, and a note.

    Documents are taken in turn from two lists: those of the best passages by keywords, and those of
    the best cards by BM25 (title, name, headings, summary, metadata). The first list finds what
    only a passage mentions, the second what a document is about. An empty result means that all
    documents are to be searched, and the note says why. Raises the errors of the store and the
    lexical engine.
    """
    if not (terms := card_terms(query)):
        return [], "the query has no words"
    dataset, allowed = restriction.dataset, allowed_documents(restriction)
    with parts.database.snapshot(), parts.database.read() as connection:
        if count_documents(connection, allowed, limit + 1) <= limit:
            return [], f"at most {limit} documents may answer anyway"
        by_card = search_cards(connection, terms, allowed, limit)
        hits = parts.lexical(dataset).search(query, ROUTED, restriction)
        by_passage = read_documents_of_chunks(connection, dataset, [hit.seq for hit in hits])
        pairs = zip_longest(by_passage, by_card)
        in_turn = list(dict.fromkeys(filter(None, chain.from_iterable(pairs))))[:limit]
        number = count_whole(connection, restriction.datasets, in_turn)
        of_each = (DocumentNames(connection, name) for name in restriction.datasets)
        chosen = [one for documents in of_each for one in documents.whole_ids(in_turn)]
    if not chosen:
        return [], "no document has a word of the query"
    return chosen, "1 document chosen" if number == 1 else f"{number} documents chosen"


def _gather(
    parts: SearchParts,
    request: SearchRequest,
    question: Question,
    within: Restriction,
    stages: StageLog,
) -> Found:
    """Rank, fuse and select; if that leaves too few passages and all are read, rank deeper."""
    rag, query, mode, top_k = parts.rag, request.query, request.mode, request.top_k
    for leg in ("lexical", "vector"):
        if mode not in (leg, "hybrid"):
            stages.skipped(leg, f"mode is {mode}")
    bound = replace(within, without=query.exclusions, containing=query.required)
    read = 2 * max(top_k, rag.rerank_candidates if request.rerank else 0)
    is_reordered = keywords_of(query.lexical_text, MOST_KEYWORDS) or query.phrases or query.loose
    half_life = request.recency_half_life_days
    if is_reordered or half_life > 0:
        read = max(rag.fusion_top_k, read)
    least = DEPTH if rag.fusion_mode == "adaptive" and mode == "hybrid" else 1
    cap = 0 if rag.max_chunks_per_doc > 1 and request.is_one_document else rag.max_chunks_per_doc

    in_order = partial(
        favour_recent, half_life_days=half_life, now=time.time(), fades=request.fades
    )

    def choose(found: list[Passage]) -> list[Passage]:
        kept: Sequence[Passage] = in_order(found) if half_life > 0 else found
        stages.lists["recency"] = kept
        if rag.chunk_selection == "keyword":
            kept = stages.lists["keyword"] = select_by_keyword(kept, question.text)
        kept = stages.lists["distinct"] = keep_distinct(kept) if request.distinct else kept
        return keep_few_of_each(kept, cap, shares_of(parts, kept, cap))

    text = "" if mode == "vector" or query.is_typed else query.lexical_text
    if others := reword(text, parts.settings.home, parts.synonyms):
        stages.ran("synonyms", 0.0, ", ".join(others))
    if request.expand and query.is_typed:
        stages.skipped("expand", "the query is typed")
    added: list[SubQuery] | None = [] if query.is_typed or not request.expand else None
    factor, most = rag.overfetch, top_k
    while True:
        make_legs = partial(
            plan_legs,
            bound,
            mode=mode,
            k_lex=max(least, max(rag.fts_top_k, top_k) * factor),
            k_dense=max(least, max(rag.vector_top_k, top_k) * factor),
        )
        legs, round_stages = make_legs(query.parts, respell=request.restriction), stages.fork()
        if not legs:
            raise QueryError(f"the typed query has no part for mode {mode}")
        if added is None:
            added = expand(parts, legs, question, stages)
        legs += make_legs([*(SubQuery("lex", it, origin="expansion") for it in others), *added])
        ranked = find(parts, legs, question, read, round_stages, choose, top_k)
        selected = ranked.selected
        if len(selected) >= most or ranked.is_exhausted or factor >= MAX_FACTOR:
            break
        if factor == rag.overfetch and cap:  # a few long documents may have no more to give
            with parts.database.read() as connection:
                sizes = sizes_within(connection, within)
            most = min(most, sum(min(size, share_of(size, cap)) for size in sizes))
            if len(selected) >= most:
                break
        factor, read = factor * 4, read * 4
    stages.reports += round_stages.reports
    missing = top_k - len(selected) if request.is_filled and cap > 1 else 0
    if missing > 0:
        whole = in_order(ranked.passages) if half_life > 0 else ranked.passages
        whole = keep_distinct(whole) if request.distinct else whole
        kept = {one.chunk.seq for one in selected}
        kept |= set([one.chunk.seq for one in whole if one.chunk.seq not in kept][:missing])
        selected = [one for one in whole if one.chunk.seq in kept]
    stages.lists["limit"] = selected
    with stages.run("select") as notes:
        shown = "any" if missing > 0 or not cap else cap
        notes.append(f"{len(selected)} of {len(ranked.passages)} kept, {shown} per document")
        if copies := sum(len(one.copies) for one in selected):
            notes.append(f"{copies} say the same as another")
        if factor > rag.overfetch:
            notes.append(f"legs searched {factor} times deeper to fill the answer")
    allowed = replace(request.restriction, without=query.exclusions)
    if readings := [one for run in ranked.runs for one in run.readings]:
        meant = tuple(run.query for run in ranked.runs if run.is_own)
        query = replace(query, parts=meant)
        request = replace(request, query=query, notes=(*request.notes, *readings))
    passages = [one._replace(restriction=allowed) for one in selected]
    fusion = "none" if len(ranked.runs) == 1 else rag.fusion_mode
    return Found(passages, fusion, 0.0, request, stages, ranked.share)


class Ranked(NamedTuple):
    """The answer of each leg, the passages read, those selected, and whether there are no more.

    ``share`` is that of the passages with a vector, ``None`` for all.
    """

    runs: list[LegRun]
    passages: list[Passage]
    selected: list[Passage]
    is_exhausted: bool
    share: float | None


def find(
    parts: SearchParts,
    legs: Sequence[LegQuery],
    question: Question,
    top_k: int,
    stages: StageLog,
    choose: Callable[[list[Passage]], list[Passage]] = list,
    enough: int = 0,
) -> Ranked:
    """Return the best ``top_k`` passages of all legs, fused, and more until ``enough`` are chosen.

    Lists of expansions have the weight ``expansion_weight``, the question's own
    ``original_weight``. Raises the first error if every leg failed.
    """
    parts.library.require_open()
    rag, within = parts.rag, legs[0].restriction
    with ranking(parts, legs, question) as (connection, runs):
        started, dataset = time.perf_counter(), within.dataset
        damaged = [error for run in runs for error in run.damaged]
        seqs = {hit.seq for run in runs for hit in run.hits}
        if parts.asks_server:  # which was asked before
            seqs &= read_chunk_ids(connection, dataset, seqs).keys()
        own = [(leg, run) for leg, run in zip(legs, runs, strict=True) if run.is_own]
        words, kinds = NO_WORDS, {run.query.kind for _, run in own if not run.error}
        for leg, run in [pair for pair in own if pair[1].leg == "lexical" and pair[1].hits]:
            engine, text = parts.lexical(dataset), run.query.text
            words = find_words(connection, engine, leg.restriction, text, run.hits, seqs)
        lists = _ranked_lists(rag, runs, seqs, words)
        by_words, waiting, balance = frozenset(kinds & {"lex"}), frozenset[int](), PRIOR
        is_waiting = is_noted_waiting(connection, dataset)
        if len(runs) > 1:
            if is_waiting:
                with_vector = {hit.seq for run in runs if run.leg == "vector" for hit in run.hits}
                waiting = find_unembedded(connection, dataset, seqs - with_vector)
            balance = parts.balance(dataset)
            if (useless := balance.left_out) is not None:
                # relevance is that of a search by the other leg, if it answered
                kinds = {one for one in kinds if (one == "lex") == (useless == "vector")} or kinds
                others = [ranked for ranked in lists if ranked.leg != useless]
                lists = others if any(ranked.hits for ranked in others) else lists
        fused = fuse_lists(lists, rag, waiting, balance, is_single=len(runs) == 1)
        stages.lists |= {one.leg if one.is_own else f"{one.leg} expanded": one.hits for one in runs}
        stages.lists["fusion"] = fused
        text = own[0][1].query.text if own else ""
        # BM25 ranks plain words well by itself, but ignores signs.
        has_signs = any(not word.isalpha() for word in within.containing or keywords_of(text))
        is_preferred = rag.fusion_mode == "adaptive" and (
            len(lists) > 1 or (lists[:1] and lists[0].leg == "lexical" and has_signs)
        )
        scale, of_all = rag.lexical_weight * rag.original_weight, frozenset(kinds)
        found, passages, selected, done = list[Passage](), list[Passage](), list[Passage](), 0
        while done < len(fused):
            end = max(top_k, 2 * done)
            while end < len(fused) and fused[end].score == fused[end - 1].score:
                end += 1
            best, done = fused[done:end], min(end, len(fused))
            read = load_chunks(connection, dataset, [int(hit.key) for hit in best], damaged=damaged)
            found += [
                Passage(read[seq], hit.score, hit, by_words if seq in waiting else of_all)
                for hit in best
                if (seq := int(hit.key)) in read
            ]
            # not by row, which tells the order of updates
            found.sort(key=lambda one: (-one.score, one.chunk.chunk_id))
            passages = found
            if is_preferred:
                known, loose = parts.known_languages, question.loose
                passages = prefer_words(found, text, scale, known, within.containing, loose)
            stages.lists["words first"] = passages
            selected = choose(passages)
            if len(selected) >= enough:
                break
        is_waiting &= legs[-1].query.kind != "lex"
        share = embedded_share(connection, within) if is_waiting else None
        ms = (time.perf_counter() - started) * 1000
    _report_legs(runs, words, stages)
    note = f"{'none' if len(runs) == 1 else rag.fusion_mode}: {len(fused)} candidates"
    if balance.shift:
        note = f"{note}, vector share {balance.shift:+.2f}: {balance.reason}"
    stages.ran("fuse", ms, f"{note} of {len(runs)} lists" if len(runs) > 2 else note)
    for error in {error.document: error for error in damaged}.values():
        stages.failed("read", 0.0, error)
    is_read = len(fused) <= len(passages) + len(damaged)
    is_exhausted = is_read and all(run.error or len(run.hits) < run.top_k for run in runs)
    return Ranked(runs, passages, selected, is_exhausted, share)


def _ranked_lists(
    rag: RAGv2Settings, runs: Sequence[LegRun], seqs: set[int], words: FoundWords
) -> list[RankedList]:
    """Return the answers as lists with their weights."""
    lists = []
    for run in [one for one in runs if not one.error]:
        query, is_own = run.query, run.is_own
        weight = rag.lexical_weight if run.leg == "lexical" else rag.vector_weight
        weight *= rag.original_weight if is_own else rag.expansion_weight
        hits = [hit for hit in run.hits if hit.seq in seqs]
        of_list = words if is_own and run.leg == "lexical" else NO_WORDS
        about = run.leg, run.engine, query.text, query.origin, weight
        lists.append(RankedList(*about, hits, run.spread, of_list))
    return lists


def _report_legs(runs: Sequence[LegRun], words: FoundWords, stages: StageLog) -> None:
    """Report each leg; raise the first error if every one failed."""
    for run in runs:
        if run.error is not None:
            stages.failed(run.leg if run.is_own else f"{run.leg} expanded", run.ms, run.error)
        elif run.is_own:
            if run.fallback:
                stages.fell_back(run.leg, run.fallback, reason=run.fallback.partition(",")[0])
            notes = [f"{run.engine}: {len(run.hits)} hits"]
            if run.leg == "lexical" and run.hits and words.cover < 1:
                notes.append(f"the first has {words.cover:.0%} of the words")
            if run.leg == "lexical" and run.hits and words.rare:
                notes.append(f"passages with its rarest word: {len(words.rare)}")
            stages.ran(run.leg, run.ms, "; ".join(filter(None, (*notes, run.note))))
    if done := [run for run in runs if not run.error and not run.is_own]:
        count = Counter(run.leg for run in done)
        told = f"{count['lexical']} lexical, {count['vector']} vector"
        hits, ms = sum(len(run.hits) for run in done), sum(run.ms for run in done)
        stages.ran("expanded legs", ms, f"{told}: {hits} hits")
    errors = [run.error for run in runs if run.error is not None]
    if len(errors) == len(runs):
        raise errors[0]


def fuse_lists(
    lists: Sequence[RankedList],
    rag: RAGv2Settings,
    unembedded: frozenset[int] = frozenset(),
    balance: Balance = PRIOR,
    *,
    is_single: bool = False,
) -> list[FusedHit]:
    """Fuse the lists as the settings say."""
    if is_single:
        return single(lists[0]) if lists else []
    if rag.fusion_mode == "adaptive":
        return adaptive(lists, balance, unembedded=unembedded)
    if rag.fusion_mode == "relative_score":
        return relative_score(lists, unembedded=unembedded)
    bonuses = {"bonus_first": rag.bonus_first, "bonus_second": rag.bonus_second}
    return rrf(lists, k=rag.rrf_k, unembedded=unembedded, **bonuses)


def refine(
    parts: SearchParts, request: SearchRequest, candidates: Sequence[Passage], stages: StageLog
) -> tuple[list[Passage], float]:
    """Return the passages of the answer and the confidence in them, 0 if there are no passages.

    A stage that fails does not change the passages.
    """
    rag, query, passages, confidence = parts.rag, request.query, list(candidates), 0.0
    if request.rerank and passages:
        blend = rag.rerank_blend, rag.rerank_weight, rag.rerank_budget_ms, rag.rerank_top_n
        from catalog.retrieval.rerank.scoring import RerankOptions, rerank_passages

        options = RerankOptions(rag.rerank_candidates, *blend)
        with stages.run("rerank", survives=CatalogError) as notes:
            text, cached = query.about(request.mode), parts.rerank_cache
            done = rerank_passages(passages, text, parts.reranker, cached, options)
            passages = stages.lists["rerank"] = done.passages
            notes.append(done.note)
            if done.error is not None:  # it stopped; scores until then count
                raise done.error
    if request.threshold == 0:
        passages = passages[: request.top_k]  # no later stage asks for more
    if not passages:
        stages.skipped("relevance", "no passage")
    else:
        with stages.run("relevance") as notes:
            passages, confidence = judge_relevance(
                passages, query.lexical_text, parts.calibration, query.phrases
            )
            notes.append(f"best {passages[0].relevance:.2f}, confidence {confidence:.2f}")
    if request.threshold > 0:
        with stages.run("threshold") as notes:
            before, passages = len(passages), keep_relevant(passages, request.threshold)
            stages.lists["threshold"] = passages
            notes.append(f"{len(passages)} of {before} kept")
    passages = stages.lists["top_k"] = passages[: request.top_k]
    if rag.token_budget:
        with stages.run("token budget") as notes:
            before, counter = len(passages), parts.library.model.encoder.counter
            passages = keep_within_budget(passages, rag.token_budget, counter)
            stages.lists["token budget"] = passages
            notes.append(f"{len(passages)} of {before} kept")
    asked = query.words, rag.snippet_chars, query.phrases
    passages = [
        one._replace(snippet=find_snippet(one.chunk, *asked)) if is_timed(one.chunk) else one
        for one in passages
    ]
    if rag.temporal_enabled and all(one.snippet is None for one in passages):
        stages.skipped("temporal", "no timed passage")
    elif rag.temporal_enabled:
        with stages.run("temporal", survives=Exception) as notes:
            passages, note = add_evidence(
                passages,
                parts.database,
                transcript_seconds=rag.temporal_transcript_seconds,
                frame_seconds=rag.temporal_frame_seconds,
            )
            notes.append(note)
    return passages, confidence


def to_results(
    parts: SearchParts, params: SearchParams, found: Found, started: float
) -> SearchResults:
    """Return the public form of what a search found that began at ``started``."""
    request, stages, shown = found.request, found.stages, dict[Any, Any]({None: None})
    with stages.run("shape"):
        results = [
            to_result(
                passage,
                rank,
                query=request.query,
                fusion=found.fusion,
                snippet_chars=parts.rag.snippet_chars,
                explain=params.explain,
                evidence_at=shown.setdefault(passage.evidence, rank),
            )
            for rank, passage in enumerate(found.passages, start=1)
        ]
    notes = [*request.query.readings]
    if found.share is not None:
        others = "no other passages were searched" if request.mode == "vector" else "by words: all"
        percent = math.floor(100 * found.share)
        notes.append(f"by meaning: {percent} % of the passages so far; {others}")
    notes += request.notes
    lost = [one.note for one in stages.reports if (one.name, one.status) == ("read", "failed")]
    notes += [note.partition(": ")[2] for note in lost[:_DAMAGED]]
    if len(lost) > _DAMAGED:
        notes.append(f"{len(lost) - _DAMAGED} more documents are damaged: run 'catalog doctor'")
    searched, nearest = None, list[str]()
    if not results:
        notes += explain_nothing(params, request, stages)
        searched = tell_searched(parts.library, params, request)
        nearest = find_nearest(request, lambda loose: gather(parts, loose, StageLog()).passages)
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
        searched=searched,
        nearest=tuple(nearest),
        notes=tuple(notes),
    )
