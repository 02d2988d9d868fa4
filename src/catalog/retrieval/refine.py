"""Turn candidates into the answer: rerank, relevance, cuts, best sentences and evidence."""

from __future__ import annotations

from collections.abc import Sequence

from catalog.core.errors import CatalogError
from catalog.core.query import ParsedQuery
from catalog.core.settings import RAGv2Settings
from catalog.retrieval.parts import SearchParts
from catalog.retrieval.passages import Passage
from catalog.retrieval.recordings import add_evidence, is_timed
from catalog.retrieval.relevance import judge_relevance
from catalog.retrieval.request import SearchRequest
from catalog.retrieval.rerank.scoring import RerankOptions, rerank_passages
from catalog.retrieval.select import keep_relevant, keep_within_budget
from catalog.retrieval.snippets import find_snippet
from catalog.retrieval.stages import StageLog


def rerank_options(rag: RAGv2Settings) -> RerankOptions:
    """Return the options of reranking in the settings."""
    return RerankOptions(
        candidates=rag.rerank_candidates,
        blend=rag.rerank_blend,
        weight=rag.rerank_weight,
        budget_ms=rag.rerank_budget_ms,
        top_n=rag.rerank_top_n,
    )


def refine(
    parts: SearchParts, request: SearchRequest, candidates: Sequence[Passage], stages: StageLog
) -> tuple[list[Passage], float]:
    """Return the passages of the answer and the confidence in them, 0 if there are no passages.

    A stage that fails does not change the passages.
    """
    rag, top_k = parts.rag, request.top_k
    passages = list(candidates)
    if request.rerank and passages:
        passages = _rerank(parts, passages, request.query.about(request.mode), stages)
    if request.threshold == 0:
        passages = passages[:top_k]  # no later stage asks for more
    passages, confidence = _estimate(parts, request, passages, stages)
    passages = _cut(parts, request, passages, stages)
    passages = [_with_snippet(passage, request.query, rag.snippet_chars) for passage in passages]
    if rag.temporal_enabled:
        passages = _add_evidence(parts, passages, stages)
    return passages, confidence


def _rerank(
    parts: SearchParts, passages: list[Passage], query: str, stages: StageLog
) -> list[Passage]:
    options = rerank_options(parts.rag)
    with stages.run("rerank", survives=CatalogError) as notes:
        done = rerank_passages(passages, query, parts.reranker, parts.rerank_cache, options)
        passages = done.passages
        notes.append(done.note)
        if done.error is not None:  # it stopped; scores until then count
            raise done.error
    return passages


def _estimate(
    parts: SearchParts, request: SearchRequest, passages: list[Passage], stages: StageLog
) -> tuple[list[Passage], float]:
    """Return the passages with their relevance and certainty, and the confidence in them."""
    if not passages:
        stages.skipped("relevance", "no passage")
        return passages, 0.0
    with stages.run("relevance") as notes:
        judged, confidence = judge_relevance(
            passages, request.query.lexical_text, parts.calibration, request.query.phrases
        )
        notes.append(f"best {judged[0].relevance:.2f}, confidence {confidence:.2f}")
    return judged, confidence


def _cut(
    parts: SearchParts,
    request: SearchRequest,
    passages: list[Passage],
    stages: StageLog,
) -> list[Passage]:
    """Keep the ``top_k`` passages that are relevant enough and fit the token budget."""
    before = len(passages)
    if request.threshold > 0:
        with stages.run("threshold") as notes:
            passages = keep_relevant(passages, request.threshold)
            notes.append(f"{len(passages)} of {before} kept")
    passages = passages[: request.top_k]
    if parts.rag.token_budget:
        with stages.run("token budget") as notes:
            before, counter = len(passages), parts.model.encoder.counter
            passages = keep_within_budget(passages, parts.rag.token_budget, counter)
            notes.append(f"{len(passages)} of {before} kept")
    return passages


def _with_snippet(passage: Passage, query: ParsedQuery, snippet_chars: int) -> Passage:
    """Return a recording's passage with the snippet around its best sentence by words."""
    if not is_timed(passage.chunk):
        return passage
    return passage._replace(
        snippet=find_snippet(passage.chunk, query.words, snippet_chars, query.phrases)
    )


def _add_evidence(parts: SearchParts, passages: list[Passage], stages: StageLog) -> list[Passage]:
    if not any(is_timed(passage.chunk) for passage in passages):
        stages.skipped("temporal", "no timed passage")
        return passages
    with stages.run("temporal", survives=Exception) as notes:
        passages, note = add_evidence(
            passages,
            parts.database,
            transcript_seconds=parts.rag.temporal_transcript_seconds,
            frame_seconds=parts.rag.temporal_frame_seconds,
        )
        notes.append(note)
    return passages
