"""Gathering the candidates of an answer: routing, legs, expansion, fusion and selection."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from llama_index.core.schema import QueryBundle

from catalog.core.results import Recency
from catalog.core.scope import Scope
from catalog.core.settings import RAGv2Settings
from catalog.search_v2.adaptive import DEPTH
from catalog.search_v2.expansion.plan import ExpansionPlan
from catalog.search_v2.leg_maker import bundle_about
from catalog.search_v2.passages import Passage
from catalog.search_v2.request import SearchRequest
from catalog.search_v2.retriever_factory import HybridRetrieverFactoryV2
from catalog.search_v2.router import route
from catalog.search_v2.search_parts import SearchParts
from catalog.search_v2.select import keep_distinct, keep_few_of_each, select_by_keyword
from catalog.search_v2.stages import StageLog
from catalog.store.engine_types import Restriction

MAX_FACTOR = 300  # how many times deeper the legs may go to fill an answer


def gather_candidates(
    parts: SearchParts,
    request: SearchRequest,
    stages: StageLog,
    *,
    wanted: int,
    bundle: QueryBundle | None = None,
) -> tuple[list[Passage], str]:
    """Return fused and selected passages, best first, and the name of the fusion.

    ``bundle`` is the query as LlamaIndex gave it, for what that brings to be embedded.

    They come from the documents that the router chooses, if it is on, else from all. Where its
    documents give fewer than ``request.top_k`` passages, all are searched after all.
    """
    started = time.perf_counter()
    bundle = bundle_about(bundle or QueryBundle(""), request.query, request.mode)
    routed = route(parts, request, stages)
    if routed is None:
        return _search(parts, request, bundle, request.restriction, stages, wanted)
    doc_ids, note = routed
    ms = (time.perf_counter() - started) * 1000
    chosen, everything = stages.fork(), request.restriction
    within = replace(everything, scope=everything.scope & Scope.of(doc_ids))
    passages, fusion = _search(parts, request, bundle, within, chosen, wanted)
    if len(passages) >= request.top_k:
        stages.ran("route", ms, note)
        stages.join(chosen)
        return passages, fusion
    ms = (time.perf_counter() - started) * 1000
    few = f"they gave {len(passages)} passages, so all documents were searched"
    stages.ran("route", ms, f"{note}; {few}")
    return _search(parts, request, bundle, everything, stages, wanted)


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
    bundle: QueryBundle,
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
    expansion = _plan_expansion(parts, request, stages)
    least = DEPTH if rag.fusion_mode == "adaptive" and request.mode == "hybrid" else 1
    factor = rag.overfetch
    limit = _cap_per_document(rag, request)
    while True:
        round_stages = stages.fork()
        retriever = HybridRetrieverFactoryV2(parts, stages=round_stages).build(
            request.query,
            None,
            max(least, max(rag.fts_top_k, request.top_k) * factor),
            max(least, max(rag.vector_top_k, request.top_k) * factor),
            max(rag.fusion_top_k, 2 * wanted) * max(1, factor // rag.overfetch),
            within=within,
            mode=request.mode,
            expansion=expansion,
        )
        found = retriever.find(bundle)
        if request.recency_half_life_days > 0:
            found = favour_recent(found, request.recency_half_life_days, time.time())
        selected = select_passages(found, bundle.query_str, rag, limit, distinct=request.distinct)
        is_filled = len(selected) >= request.top_k
        if is_filled or retriever.is_exhausted or factor >= MAX_FACTOR:
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
    return [passage._replace(restriction=allowed) for passage in selected], retriever.fusion


def _cap_per_document(rag: RAGv2Settings, request: SearchRequest) -> int:
    """Return how many passages one document may give, 0 for any number.

    There is nothing to share out when only one may answer. Best-chunk mode (a cap of 1) stays.
    """
    cap = rag.max_chunks_per_doc
    return 0 if cap > 1 and request.is_one_document else cap


def _plan_expansion(
    parts: SearchParts, request: SearchRequest, stages: StageLog
) -> ExpansionPlan | None:
    """Plan what else to ask, if the call says so and the user did not."""
    if not request.expand:
        return None
    if request.query.is_typed:
        stages.skipped("expand", "the query is typed")
        return None
    return ExpansionPlan(parts, strict=stages.strict)
