"""Gathering the candidates of an answer: routing, legs, expansion, fusion and selection."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import QueryBundle

from catalog.core.settings import RAGv2Settings
from catalog.library.library import Library
from catalog.search_v2.adaptive import DEPTH
from catalog.search_v2.expansion.plan import ExpansionPlan
from catalog.search_v2.passages import ScoredPassage
from catalog.search_v2.request import SearchRequest
from catalog.search_v2.retriever import HybridRetrieverFactoryV2
from catalog.search_v2.router import narrowed, route
from catalog.search_v2.select import DistinctText, KeywordChunkSelector, MaxChunksPerDocument
from catalog.search_v2.stages import StageLog
from catalog.store.engine_types import Restriction

MAX_FACTOR = 300  # how many times deeper the legs may go to fill an answer


@dataclass(frozen=True, slots=True)
class Candidates:
    """Fused and selected passages, best first, and the name of the fusion."""

    passages: list[ScoredPassage]
    fusion: str


def build_selectors(rag: RAGv2Settings, limit: int) -> list[BaseNodePostprocessor]:
    """What thins out the fused list, before anything reads it; ``limit`` is for each document."""
    chosen: list[BaseNodePostprocessor] = []
    if rag.chunk_selection == "keyword":
        chosen.append(KeywordChunkSelector())
    if rag.distinct_text:
        chosen.append(DistinctText())
    return [*chosen, MaxChunksPerDocument(limit=limit)]


def gather_candidates(
    library: Library, request: SearchRequest, stages: StageLog, *, wanted: int
) -> Candidates:
    """Candidates from the documents that the router chooses, if it is on, else from all.

    Where its documents give fewer than ``request.top_k`` passages, all are searched after all.
    """
    started = time.perf_counter()
    routed = route(library, request, stages)
    if routed is None or routed.doc_ids is None:
        return _searched(library, request, request.restriction, stages, wanted)
    chosen = stages.fork()
    ms = (time.perf_counter() - started) * 1000
    within = narrowed(request.restriction, routed.doc_ids)
    found = _searched(library, request, within, chosen, wanted)
    if len(found.passages) >= request.top_k:
        stages.ran("route", ms, routed.note)
        stages.join(chosen)
        return found
    ms = (time.perf_counter() - started) * 1000
    few = f"they gave {len(found.passages)} passages, so all documents were searched"
    stages.ran("route", ms, f"{routed.note}; {few}")
    return _searched(library, request, request.restriction, stages, wanted)


def _searched(
    library: Library,
    request: SearchRequest,
    within: Restriction,
    stages: StageLog,
    wanted: int,
) -> Candidates:
    """Legs, fusion and selection for ``wanted`` candidates, ``request.top_k`` at least.

    The legs go deeper while the cap for each document leaves too few passages. There is no cap
    where the search is confined to one document or recording, except in best-chunk mode.
    """
    rag = library.settings.rag_v2
    bundle = QueryBundle(request.query.about(request.mode))
    for leg in ("lexical", "vector"):
        if request.mode not in (leg, "hybrid"):
            stages.skipped(leg, f"mode is {request.mode}")
    expansion = _expansion(library, request, stages)
    least = DEPTH if rag.fusion_mode == "adaptive" and request.mode == "hybrid" else 1
    factor = rag.overfetch
    limit = _per_document(rag, request.restriction)
    while True:
        round_stages = stages.fork()
        retriever = HybridRetrieverFactoryV2(library, stages=round_stages).build(
            request.query,
            request.restriction.dataset,
            max(least, max(rag.fts_top_k, request.top_k) * factor),
            max(least, max(rag.vector_top_k, request.top_k) * factor),
            max(rag.fusion_top_k, 2 * wanted) * max(1, factor // rag.overfetch),
            within=within,
            mode=request.mode,
            expansion=expansion,
        )
        nodes = kept = retriever.retrieve(bundle)
        for selector in build_selectors(rag, limit):
            kept = selector.postprocess_nodes(kept, bundle)
        if len(kept) >= request.top_k or retriever.exhausted or factor >= MAX_FACTOR:
            break
        factor *= 4
    stages.join(round_stages)
    with stages.run("select") as notes:
        notes.append(f"{len(kept)} of {len(nodes)} kept, {limit or 'any'} per document")
        if factor > rag.overfetch:
            notes.append(f"legs searched {factor} times deeper to fill the answer")
    allowed = replace(request.restriction, without=request.query.exclusions)
    passages = [node.with_restriction(allowed) for node in kept if isinstance(node, ScoredPassage)]
    return Candidates(passages, retriever.fusion)


def _per_document(rag: RAGv2Settings, restriction: Restriction) -> int:
    """The cap on one document's passages: there is nothing to share out when only one may answer.

    Best-chunk mode (a cap of 1) stays.
    """
    spread = rag.max_chunks_per_doc
    return 0 if spread > 1 and restriction.is_one_document else spread


def _expansion(library: Library, request: SearchRequest, stages: StageLog) -> ExpansionPlan | None:
    """Plan what else to ask, if the call says so and the user did not."""
    if not request.expand:
        return None
    if request.query.is_typed:
        stages.skipped("expand", "the query is typed")
        return None
    return ExpansionPlan(library, strict=stages.strict)
