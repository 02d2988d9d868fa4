"""Gather the candidates of an answer: routing, legs, expansion, fusion and selection."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice, zip_longest

from catalog.core.errors import StoreError
from catalog.core.results import Recency
from catalog.core.scope import Scope
from catalog.core.settings import RAGv2Settings
from catalog.library.document_cards import CARDS_MADE_LATER, CARDS_PER_QUERY, make_cards
from catalog.retrieval.adaptive import DEPTH
from catalog.retrieval.expanded import ExpansionPlan, find_reported
from catalog.retrieval.hybrid import fusion_of
from catalog.retrieval.legs import Question, plan_legs, plan_own_legs, question_about
from catalog.retrieval.passages import Passage
from catalog.retrieval.request import SearchRequest
from catalog.retrieval.search_parts import SearchParts
from catalog.retrieval.select import keep_distinct, keep_few_of_each, select_by_keyword
from catalog.retrieval.stages import StageLog
from catalog.store import Database
from catalog.store.cards import card_terms, search_cards
from catalog.store.document_names import DocumentNames, count_whole
from catalog.store.engine_types import Restriction, count_passages
from catalog.store.filter_sql import DatasetNames
from catalog.store.listing import (
    allowed_documents,
    count_documents,
    read_documents_of_chunks,
    read_source_ids,
)

PASSAGES = 100  # best passages of the lexical index whose documents are candidates


def shortlist(
    parts: SearchParts, query: str, restriction: Restriction, limit: int
) -> tuple[list[str], str]:
    """Return at most ``limit`` source document ids, best first, with all their files, and a note.

    Documents are taken in turn from two lists: those of the best passages by keywords, and those of
    the best cards by BM25 (title, name, headings, summary, metadata). The first list finds what
    only a passage mentions, the second what a document is about. An empty result means that all
    documents are to be searched; the note gives the reason: the query has no words or no match, or
    the restriction allows at most ``limit`` documents. Raises the errors of the store and the
    lexical engine.
    """
    terms = card_terms(query)
    if not terms:
        return [], "the query has no words"
    dataset, database = restriction.dataset, parts.database
    notes = _refresh_cards(database, dataset)
    allowed = allowed_documents(restriction)
    with database.read() as connection:
        if count_documents(connection, allowed, limit + 1) <= limit:
            return [], f"at most {limit} documents may answer anyway"
        by_card = search_cards(connection, terms, allowed, limit)
        names = read_source_ids(connection, by_card)
    hits = parts.lexical(dataset).search(query, PASSAGES, restriction)
    with database.read() as connection:
        by_passage = read_documents_of_chunks(connection, dataset, [hit.seq for hit in hits])
        chosen = _take_in_turn(by_passage, [names[one] for one in by_card if one in names], limit)
        number = count_whole(connection, restriction.datasets, chosen)
        of_each = (DocumentNames(connection, name) for name in restriction.datasets)
        chosen = [one for documents in of_each for one in documents.whole_ids(chosen)]
    if not chosen:
        return [], "no document has a word of the query"
    count = "1 document chosen" if number == 1 else f"{number} documents chosen"
    return chosen, "; ".join([count, *notes])


def route(
    parts: SearchParts, request: SearchRequest, stages: StageLog
) -> tuple[list[str], str] | None:
    """Return the short-list of a request with its note; ``None`` if routing is off or fails.

    A skip or failure is reported in ``stages``; the caller reports a short-list.
    """
    if not parts.rag.router_enabled:
        return None
    if request.query.is_typed:
        stages.skipped("route", "the query is typed")
        return None
    within = replace(
        request.restriction,
        without=request.query.exclusions,
        containing=request.query.required,
    )
    started = time.perf_counter()
    try:
        query = request.query.about(request.mode)
        doc_ids, note = shortlist(parts, query, within, parts.rag.router_documents)
    except Exception as error:  # noqa: BLE001 - recorded as the stage's failure
        stages.failed("route", (time.perf_counter() - started) * 1000, error)
        return None
    if not doc_ids:
        stages.skipped("route", note)
        return None
    return doc_ids, note


def _refresh_cards(database: Database, dataset: DatasetNames) -> list[str]:
    """Make some cards unless another process is writing; return a note if any are still missing."""
    why = CARDS_MADE_LATER
    try:
        if make_cards(database, dataset, wait=False, limit=CARDS_PER_QUERY) < CARDS_PER_QUERY:
            return []
    except StoreError as error:
        why = str(error)
    return [f"documents without a card are chosen only by their passages: {why}"]


def _take_in_turn(first: Iterable[str], second: Iterable[str], limit: int) -> list[str]:
    """Return items of the two lists in turn, without repetitions."""
    pairs = zip_longest(first, second)
    return list(dict.fromkeys(one for pair in pairs for one in pair if one is not None))[:limit]


MAX_FACTOR = 300  # how many times deeper the legs may go to fill an answer


def gather_candidates(
    parts: SearchParts,
    request: SearchRequest,
    stages: StageLog,
    *,
    wanted: int,
    question: Question | None = None,
) -> tuple[list[Passage], str]:
    """Return fused and selected passages, best first, and the name of the fusion.

    ``question`` may have an embedding or texts to embed instead of the query. With the router on,
    passages come from the documents that it chooses. If these give fewer than ``request.top_k``
    passages, all documents are searched.
    """
    started = time.perf_counter()
    question = question_about(question or Question(""), request.query, request.mode)
    routed = route(parts, request, stages)
    if routed is None:
        return _search(parts, request, question, request.restriction, stages, wanted)
    doc_ids, note = routed
    ms = (time.perf_counter() - started) * 1000
    chosen, everything = stages.fork(), request.restriction
    within = replace(everything, scope=everything.scope & Scope.of(doc_ids))
    passages, fusion = _search(parts, request, question, within, chosen, wanted)
    if len(passages) >= request.top_k:
        stages.ran("route", ms, note)
        stages.join(chosen)
        return passages, fusion
    ms = (time.perf_counter() - started) * 1000
    few = f"they gave {len(passages)} passages, so all documents were searched"
    stages.ran("route", ms, f"{note}; {few}")
    return _search(parts, request, question, everything, stages, wanted)


def select_passages(
    passages: list[Passage], query: str, rag: RAGv2Settings, limit: int, *, distinct: bool
) -> list[Passage]:
    """Select passages of the fused list; at most ``limit`` of each document, 0 for any number."""
    if rag.chunk_selection == "keyword":
        passages = select_by_keyword(passages, query)
    if distinct:
        passages = keep_distinct(passages)
    return keep_few_of_each(passages, limit)


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


def _search(
    parts: SearchParts,
    request: SearchRequest,
    question: Question,
    within: Restriction,
    stages: StageLog,
    wanted: int,
) -> tuple[list[Passage], str]:
    """Run legs, fusion and selection for at least ``wanted`` and ``request.top_k`` candidates.

    If the cap for each document leaves too few passages, the legs are run again with more hits. A
    search within one document or recording has no cap, except in best-chunk mode.
    """
    rag = parts.rag
    for leg in ("lexical", "vector"):
        if request.mode not in (leg, "hybrid"):
            stages.skipped(leg, f"mode is {request.mode}")
    least = DEPTH if rag.fusion_mode == "adaptive" and request.mode == "hybrid" else 1
    parsed, plan = request.query, _plan_expansion(parts, request, stages)
    bound = replace(within, without=parsed.exclusions, containing=parsed.required)
    factor, limit, most = rag.overfetch, _cap_per_document(rag, request), request.top_k
    while True:
        round_stages = stages.fork()
        k_lex = max(least, max(rag.fts_top_k, request.top_k) * factor)
        k_dense = max(least, max(rag.vector_top_k, request.top_k) * factor)
        top_k = max(rag.fusion_top_k, 2 * wanted) * max(1, factor // rag.overfetch)
        make_legs = partial(
            plan_legs, parts, bound, mode=request.mode, k_lex=k_lex, k_dense=k_dense
        )
        legs = plan_own_legs(make_legs, parsed, request.mode)
        run = find_reported(parts, legs, question, top_k, round_stages, plan, make_legs)
        found = list(run.passages)
        if request.recency_half_life_days > 0:
            found = favour_recent(found, request.recency_half_life_days, time.time())
        selected = select_passages(found, question.text, rag, limit, distinct=request.distinct)
        if len(selected) >= most or run.is_exhausted or factor >= MAX_FACTOR:
            break
        if factor == rag.overfetch and limit:  # a few long documents may have no more to give
            with parts.database.read() as connection:
                most = min(most, count_passages(connection, within, limit))
            if len(selected) >= most:
                break
        factor *= 4
    stages.join(round_stages)
    missing = request.top_k - len(selected) if request.is_filled and limit > 1 else 0
    if missing > 0:
        whole = select_passages(found, question.text, rag, 0, distinct=request.distinct)
        kept = {passage.chunk.seq for passage in selected}
        kept |= set(islice((one.chunk.seq for one in whole if one.chunk.seq not in kept), missing))
        selected = [passage for passage in whole if passage.chunk.seq in kept]
    with stages.run("select") as notes:
        shown = "any" if missing > 0 or not limit else limit
        notes.append(f"{len(selected)} of {len(found)} kept, {shown} per document")
        if copies := sum(len(passage.copies) for passage in selected):
            notes.append(f"{copies} say the same as another")
        if factor > rag.overfetch:
            notes.append(f"legs searched {factor} times deeper to fill the answer")
    allowed = replace(request.restriction, without=request.query.exclusions)
    return [passage._replace(restriction=allowed) for passage in selected], fusion_of(run, rag)


def _cap_per_document(rag: RAGv2Settings, request: SearchRequest) -> int:
    """Return how many passages one document may give, 0 for any number.

    If only one document may answer, there is no cap, except for best-chunk mode (a cap of 1).
    """
    cap = rag.max_chunks_per_doc
    return 0 if cap > 1 and request.is_one_document else cap


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
