"""Shaping passages into results: the snippet, the locator, the explanation."""

from __future__ import annotations

import re

from catalog.core.models import Chunk
from catalog.core.results import Contribution, Explanation, ResultLocator, SearchResult
from catalog.search_v2.fusion import Fused

_WORD = re.compile(r"\w+")
_LINE = re.compile(r"[^\r\n]+")


def snippet(text: str, query: str, max_chars: int) -> str:
    """The run of whole lines, at most ``max_chars`` long, that holds most of the query's words.

    Ties go to the earliest; a single longer line is cut around its first match.
    """
    if len(text) <= max_chars:
        return text.strip()
    words = {word.casefold() for word in _WORD.findall(query) if len(word) > 2}
    lines = [(m.start(), m.end(), _found(m.group(), words)) for m in _LINE.finditer(text)]
    best, best_found = (0, 0), -1
    for first, (start, _end, _) in enumerate(lines):
        found: set[str] = set()
        for _start, end, in_line in lines[first:]:
            if end - start > max_chars:
                break
            found |= in_line
            if len(found) > best_found:
                best, best_found = (start, end), len(found)
    if best_found <= 0:
        return _cut(text, words, max_chars)
    start, end = best
    reach = max((e for s, e, _ in lines if s >= start and e - start <= max_chars), default=end)
    return text[start:reach].strip()


def to_result(
    chunk: Chunk,
    fused: Fused,
    rank: int,
    *,
    query: str,
    fusion: str,
    snippet_chars: int,
    explain: bool,
) -> SearchResult:
    """The public form of one passage."""
    locator = chunk.locator
    fields = {
        "rank": rank,
        "score": fused.score,
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
        "snippet": snippet(chunk.text, query, snippet_chars),
    }
    if explain:
        fields["explain"] = explanation(fused, fusion)
    return SearchResult.model_validate(fields)


def explanation(fused: Fused, fusion: str) -> Explanation:
    """The fusion record in public words; its parts sum to the score, to the digit."""
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
        score=fused.score,
    )


def _found(line: str, words: set[str]) -> set[str]:
    return words & {word.casefold() for word in _WORD.findall(line)}


def _cut(text: str, words: set[str], max_chars: int) -> str:
    matches = (m.start() for m in _WORD.finditer(text) if m.group().casefold() in words)
    first = next(matches, 0)
    start = max(0, first - max_chars // 3)
    return text[start : start + max_chars].strip()
