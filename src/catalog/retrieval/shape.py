"""Shape passages into results: the snippet, the locator, the explanation."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from catalog.core.dates import format_timestamp
from catalog.core.documents import Chunk, Locator, find_columns
from catalog.core.places import WITHIN
from catalog.core.query import ParsedQuery
from catalog.core.results import (
    TIMED_MODALITIES,
    Contribution,
    Evidence,
    Explanation,
    OtherPlace,
    ResultLocator,
    SearchResult,
)
from catalog.retrieval.citations import (
    format_citation,
    is_cited_by_time,
    move_link,
    page_link,
    recording_link,
)
from catalog.retrieval.passages import Passage
from catalog.retrieval.snippets import find_place, find_snippet
from catalog.store.document_names import original_of


class CitedPart(NamedTuple):
    """Where a part of a passage stands, its citation, and the link that opens it there."""

    locator: ResultLocator
    citation: str
    link: str | None


def to_result(
    passage: Passage,
    rank: int,
    *,
    query: ParsedQuery,
    fusion: str,
    snippet_chars: int,
    explain: bool,
    evidence_at: int | None = None,
) -> SearchResult:
    """Return the public form of one passage; the ``query``'s words are marked in its snippet."""
    chunk, evidence = passage.chunk, passage.evidence
    snippet = passage.snippet or find_snippet(chunk, query.words, snippet_chars, query.phrases)
    place = snippet.locator
    has_lines = place.unit == "line" and place.line_start is not None
    best = replace(place, page=snippet.page, time_start=snippet.moment)
    fields: dict[str, object] = {
        "rank": rank,
        "score": passage.score,
        "path": chunk.path,
        "source_doc_id": chunk.source_doc_id,
        "dataset": chunk.dataset,
        "docid": chunk.docid,
        "chunk_id": chunk.chunk_id,
        "title": chunk.title,
        "heading_path": chunk.heading_path,
        "sections": (*chunk.heading_path, *chunk.sections, *find_columns(chunk.context)),
        "modality": chunk.modality,
        "locator": _to_locator(chunk, chunk.locator),
        "start_offset": chunk.start_offset,
        "end_offset": chunk.end_offset,
        "text": chunk.text,
        "snippet": snippet.text,
        "snippet_lines": (place.line_start, place.line_end) if has_lines else None,
        "matches": snippet.matches,
        "citation": format_citation(chunk, best),
        "snippet_locator": _to_locator(chunk, place),
        "moment": snippet.moment,
        "link": find_link(chunk, best, evidence),
        "evidence": evidence,
        "evidence_at": evidence_at,
        "file_type": chunk.file_type,
        "source_type": chunk.source_type,
        "tags": _texts(chunk.metadata.get("tags")),
        "created": next(iter(_texts(chunk.metadata.get("created"))), None),
        "modified": chunk.modified,
        "date": None if chunk.dated is None else format_timestamp(chunk.dated),
        "relevance": passage.relevance,
        "certainty": passage.certainty,
    }
    if (original := original_of(chunk)) is not None:
        fields["original"] = original
    if passage.copies:
        fields["also_in"] = tuple(map(_to_place, passage.copies))
    if explain:
        fields["explain"] = explain_score(passage, fusion)
    result = SearchResult.model_validate(fields)
    result._chunk = chunk
    return result


def locate_part(result: SearchResult, start: int, end: int) -> CitedPart:
    """Return the place of ``result.text[start:end]``, its citation, and its link.

    For a result from another process the place is that of the snippet, if
    the snippet has that part, else the whole passage's.
    """
    chunk = result._chunk
    if chunk is None:
        is_shown = result.text[start:end] in result.snippet
        locator = (result.snippet_locator if is_shown else None) or result.locator
        return CitedPart(locator, result.citation, result.link)
    place = find_place(chunk, start, end)
    cited = format_citation(replace(chunk, locator=place), place)
    return CitedPart(_to_locator(chunk, place), cited, find_link(chunk, place, result.evidence))


def explain_score(passage: Passage, fusion: str) -> Explanation:
    """Return the parts of the score; the contributions and the bonus sum up to ``fused``."""
    fused = passage.fused
    return Explanation(
        fusion=fusion,
        contributions=tuple(
            Contribution(
                leg=part.source.leg,
                engine=part.source.engine,
                query=part.source.query,
                origin=part.source.origin,
                rank=part.rank,
                raw_score=part.raw_score,
                weight=part.source.weight,
                contribution=part.contribution,
            )
            for part in fused.contributions
        ),
        bonus=fused.bonus,
        fused=fused.score,
        recency=passage.recency,
        rerank=passage.reranked,
        score=passage.score,
    )


def _to_place(chunk: Chunk) -> OtherPlace:
    return OtherPlace(
        dataset=chunk.dataset,
        path=chunk.path,
        source_doc_id=chunk.source_doc_id,
        docid=chunk.docid,
        chunk_id=chunk.chunk_id,
        modality=chunk.modality,
        locator=_to_locator(chunk, chunk.locator),
        citation=format_citation(chunk),
    )


def _texts(value: object) -> tuple[str, ...]:
    """Return the values of a field as texts."""
    values = value if isinstance(value, list | tuple) else () if value is None else (value,)
    return tuple(map(str, values))


def _to_locator(chunk: Chunk, where: Locator) -> ResultLocator:
    is_timed = where.time_start is not None and is_cited_by_time(chunk)
    return ResultLocator(
        unit="time" if is_timed else where.unit,
        start=where.time_start if is_timed else where.start,
        end=where.time_end if is_timed else where.end,
        file=chunk.file if where.unit == "record" or WITHIN in chunk.path else None,
        page=where.page,
        page_end=where.page if where.page_end is None else where.page_end,
        line_start=where.line_start,
        line_end=where.line_end,
        time_start=where.time_start,
        time_end=where.time_end,
        cells=where.cells,
    )


def find_link(chunk: Chunk, where: Locator, evidence: Evidence | None = None) -> str | None:
    """Return the link that plays or opens the best sentence; see :class:`SearchResult`."""
    seconds = where.time_start
    if evidence is not None and seconds is not None:
        return move_link(evidence.link, seconds)
    if chunk.modality in TIMED_MODALITIES and seconds is not None:
        path = original_of(chunk) or chunk.path
        return recording_link(chunk.metadata.get("source_url"), path, seconds)
    return None if where.page is None else page_link(chunk.path, where.page)
