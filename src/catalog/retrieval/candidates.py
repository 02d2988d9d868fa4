"""Gathering the candidates of an answer: routing, legs, expansion, fusion and selection."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from catalog.core.results import Recency
from catalog.core.scope import Scope
from catalog.core.settings import RAGv2Settings
from catalog.retrieval.adaptive import DEPTH
from catalog.retrieval.expansion.expanded import ExpansionPlan, find_reported
from catalog.retrieval.hybrid import fusion_of
from catalog.retrieval.legs import Question, plan_legs, plan_own_legs, question_about
from catalog.retrieval.passages import Passage
from catalog.retrieval.request import SearchRequest
from catalog.retrieval.router import route
from catalog.retrieval.search_parts import SearchParts
from catalog.retrieval.select import keep_distinct, keep_few_of_each, select_by_keyword
from catalog.retrieval.stages import StageLog
from catalog.store.engine_types import Restriction, count_passages

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

    ``question`` may bring what to embed in place of the query.

    They come from the documents that the router chooses, if it is on, else from all. Where its
    documents give fewer than ``request.top_k`` passages, all are searched after all.
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
    """Thin out the fused list before anything reads it; ``limit`` per document, 0 for any."""
    if rag.chunk_selection == "keyword":
        passages = select_by_keyword(passages, query)
    if distinct:
        passages = keep_distinct(passages)
    return keep_few_of_each(passages, limit)


def favour_recent(passages: Sequence[Passage], half_life_days: float, now: float) -> list[Passage]:
    """Return the passages with ``score * 2 ** (-age / half_life)``, best first.

    The age is that of the document at the timestamp ``now``, by the date that ``after`` and
    ``before`` go by; without a date, or with one to come, it is 0. A negative score stays.

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
    """Run legs, fusion and selection for ``wanted`` candidates, ``request.top_k`` at least.

    The legs go deeper while the cap for each document leaves too few passages. There is no cap
    where the search is confined to one document or recording, except in best-chunk mode.
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
    with stages.run("select") as notes:
        notes.append(f"{len(selected)} of {len(found)} kept, {limit or 'any'} per document")
        if copies := sum(len(passage.copies) for passage in selected):
            notes.append(f"{copies} say the same as another")
        if factor > rag.overfetch:
            notes.append(f"legs searched {factor} times deeper to fill the answer")
    allowed = replace(request.restriction, without=request.query.exclusions)
    return [passage._replace(restriction=allowed) for passage in selected], fusion_of(run, rag)


def _cap_per_document(rag: RAGv2Settings, request: SearchRequest) -> int:
    """Return how many passages one document may give, 0 for any number.

    There is nothing to share out when only one may answer. Best-chunk mode (a cap of 1) stays.
    """
    cap = rag.max_chunks_per_doc
    return 0 if cap > 1 and request.is_one_document else cap


def _plan_expansion(
    parts: SearchParts, request: SearchRequest, stages: StageLog
) -> ExpansionPlan | None:
    """Return the plan of an expansion, if the call wants one and the query is not typed."""
    if not request.expand:
        return None
    if request.query.is_typed:
        stages.skipped("expand", "the query is typed")
        return None
    return ExpansionPlan(parts, strict=stages.strict)
