"""Shaping passages into results: the snippet, the locator, the explanation."""

from __future__ import annotations

from catalog.core.models import Chunk
from catalog.core.results import (
    Contribution,
    Explanation,
    Reranked,
    ResultLocator,
    SearchResult,
)
from catalog.search_v2.citations import citation
from catalog.search_v2.fusion import Fused
from catalog.search_v2.snippets import snippet_of


def to_result(
    chunk: Chunk,
    fused: Fused,
    rank: int,
    *,
    query: str,
    fusion: str,
    snippet_chars: int,
    explain: bool,
    score: float | None = None,
    rerank: Reranked | None = None,
    relevance: float | None = None,
) -> SearchResult:
    """The public form of one passage; its ``score`` is the fused one unless another is given."""
    final = fused.score if score is None else score
    locator = chunk.locator
    snippet = snippet_of(chunk, query, snippet_chars)
    has_lines = snippet.line_start is not None
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
        "locator": ResultLocator(
            page=locator.page,
            line_start=locator.line_start,
            line_end=locator.line_end,
            time_start=locator.time_start,
            time_end=locator.time_end,
        ),
        "start_offset": chunk.start_offset,
        "end_offset": chunk.end_offset,
        "text": chunk.text,
        "snippet": snippet.text,
        "snippet_lines": (snippet.line_start, snippet.line_end) if has_lines else None,
        "matches": snippet.matches,
        "citation": citation(chunk),
        "relevance": relevance,
    }
    if explain:
        fields["explain"] = explanation(fused, fusion, score=final, rerank=rerank)
    return SearchResult.model_validate(fields)


def explanation(
    fused: Fused, fusion: str, *, score: float | None = None, rerank: Reranked | None = None
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
            for share in fused.shares
        ),
        bonus=fused.bonus,
        fused=fused.score,
        rerank=rerank,
        score=fused.score if score is None else score,
    )
