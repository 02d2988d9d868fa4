"""Shaping passages into results: the snippet, the locator, the explanation."""

from __future__ import annotations

from dataclasses import replace

from catalog.core.documents import Chunk, Locator
from catalog.core.results import (
    TIMED_MODALITIES,
    Contribution,
    Evidence,
    Explanation,
    Reranked,
    ResultLocator,
    SearchResult,
)
from catalog.search_v2.citations import format_citation, move_link, page_link, recording_link
from catalog.search_v2.fusion import FusedHit
from catalog.search_v2.snippets import find_snippet


def to_result(
    chunk: Chunk,
    fused: FusedHit,
    rank: int,
    *,
    query: str,
    fusion: str,
    snippet_chars: int,
    explain: bool,
    score: float | None = None,
    rerank: Reranked | None = None,
    relevance: float | None = None,
    evidence: Evidence | None = None,
    evidence_at: int | None = None,
) -> SearchResult:
    """The public form of one passage; its ``score`` is the fused one unless another is given."""
    final = fused.score if score is None else score
    snippet = find_snippet(chunk, query, snippet_chars)
    has_lines = snippet.line_start is not None
    best = replace(snippet.locator, page=snippet.page, time_start=snippet.moment)
    fields = {
        "rank": rank,
        "score": final,
        "path": chunk.path,
        "source_doc_id": chunk.source_doc_id,
        "docid": chunk.docid,
        "chunk_id": chunk.chunk_id,
        "title": chunk.title,
        "heading_path": chunk.heading_path,
        "modality": chunk.modality,
        "locator": _told(chunk.locator),
        "start_offset": chunk.start_offset,
        "end_offset": chunk.end_offset,
        "text": chunk.text,
        "snippet": snippet.text,
        "snippet_lines": (snippet.line_start, snippet.line_end) if has_lines else None,
        "matches": snippet.matches,
        "citation": format_citation(chunk, best),
        "snippet_locator": _told(snippet.locator),
        "moment": snippet.moment,
        "link": _link(chunk, best, evidence),
        "evidence": evidence,
        "evidence_at": evidence_at,
        "relevance": relevance,
    }
    if explain:
        fields["explain"] = explanation(fused, fusion, score=final, rerank=rerank)
    return SearchResult.model_validate(fields)


def _told(where: Locator) -> ResultLocator:
    return ResultLocator(
        page=where.page,
        page_end=where.page if where.page_end is None else where.page_end,
        line_start=where.line_start,
        line_end=where.line_end,
        time_start=where.time_start,
        time_end=where.time_end,
    )


def _link(chunk: Chunk, where: Locator, evidence: Evidence | None) -> str | None:
    """Where to play or open the best sentence; see :class:`SearchResult`."""
    seconds = where.time_start
    if evidence is not None and seconds is not None:
        return move_link(evidence.link, seconds)
    if chunk.modality in TIMED_MODALITIES and seconds is not None:
        file = chunk.metadata.get("media_file")
        path = file if isinstance(file, str) and file else chunk.path
        return recording_link(chunk.metadata.get("source_url"), path, seconds)
    return None if where.page is None else page_link(chunk.path, where.page)


def explanation(
    fused: FusedHit, fusion: str, *, score: float | None = None, rerank: Reranked | None = None
) -> Explanation:
    """The record in public words; its parts sum to the fused score and to the score, exactly."""
    return Explanation(
        fusion=fusion,
        contributions=tuple(
            Contribution(
                leg=share.source.leg,
                engine=share.source.engine,
                query=share.source.query,
                origin=share.source.origin,
                rank=share.rank,
                raw_score=share.raw_score,
                weight=share.source.weight,
                contribution=share.contribution,
            )
            for share in fused.contributions
        ),
        bonus=fused.bonus,
        fused=fused.score,
        rerank=rerank,
        score=fused.score if score is None else score,
    )
