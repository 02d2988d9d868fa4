"""Shape passages into results, or explain that none was found: conditions, near documents."""

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from operator import attrgetter
from typing import Any

from catalog.core.dates import format_timestamp
from catalog.core.documents import Chunk, Locator, find_columns
from catalog.core.errors import CatalogError
from catalog.core.params import SearchParams
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
from catalog.core.text import counted
from catalog.library.library import Library
from catalog.retrieval.citations import (
    format_citation,
    is_cited_by_time,
    move_link,
    page_link,
    recording_link,
)
from catalog.retrieval.legs import UNSEARCHABLE, UNWRITTEN
from catalog.retrieval.parts import StageLog
from catalog.retrieval.request import SearchRequest
from catalog.retrieval.snippets import Passage, find_place, find_snippet
from catalog.store.document_names import original_of
from catalog.store.listing import allowed_documents, count_documents

_OF_CHUNK = frozenset(Chunk.__slots__)
_OF_RESULT = sorted(_OF_CHUNK & SearchResult.model_fields.keys() - {"locator", "sections"})
_of_result, _of_locator = attrgetter(*_OF_RESULT), attrgetter(*Locator.__slots__)
_OF_SOURCE = ("leg", "engine", "query", "origin", "weight")
_OF_CONTRIBUTION = ("rank", "raw_score", "contribution")
_WAYS = {"lexical": "by words", "vector": "by meaning", "hybrid": "by words and meaning"}
_NARROWING = (
    *("file_type", "name", "after", "before"),
    *("docs", "doc_ids", "filters", "similarity_threshold"),
)
_NEAREST = 3  # documents to name if nothing was found
_OF_PLACE = sorted(_OF_CHUNK & OtherPlace.model_fields.keys() - {"locator"})


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
    best = place
    if (place.page, place.time_start) != (snippet.page, snippet.moment):
        best = replace(place, page=snippet.page, time_start=snippet.moment)
    fields = dict(zip(_OF_RESULT, _of_result(chunk), strict=True)) | {
        "rank": rank,
        "score": passage.score,
        "sections": (*chunk.heading_path, *chunk.sections, *find_columns(chunk.context)),
        "locator": _to_locator(chunk, chunk.locator),
        "snippet": snippet.text,
        "snippet_lines": (place.line_start, place.line_end) if has_lines else None,
        "matches": snippet.matches,
        "citation": format_citation(chunk, best),
        "snippet_locator": _to_locator(chunk, place),
        "moment": snippet.moment,
        "link": find_link(chunk, best, evidence),
        "evidence": evidence,
        "evidence_at": evidence_at,
        "tags": _texts(chunk.metadata.get("tags")),
        "created": next(iter(_texts(chunk.metadata.get("created"))), None),
        "date": None if chunk.dated is None else format_timestamp(chunk.dated),
        "relevance": passage.relevance,
        "certainty": passage.certainty,
    }
    if (original := original_of(chunk)) is not None:
        fields["original"] = original
    if passage.copies:
        fields["also_in"] = tuple(map(_to_place, passage.copies))
    if explain:
        fields["explain"] = _explain(passage, fusion)
    result = SearchResult.model_validate(fields)
    result._chunk = chunk
    return result


def locate_part(
    result: SearchResult, start: int, end: int
) -> tuple[ResultLocator, str, str | None]:
    """Return the place of ``result.text[start:end]``, its citation, and its link.

    A result from another process has only the places of its snippet and of the whole passage.
    """
    chunk = result._chunk
    if chunk is None:
        is_shown = result.text[start:end] in result.snippet
        locator = (result.snippet_locator if is_shown else None) or result.locator
        return locator, result.citation, result.link
    place = find_place(chunk, start, end)
    cited = format_citation(replace(chunk, locator=place), place)
    return _to_locator(chunk, place), cited, find_link(chunk, place, result.evidence)


def _explain(passage: Passage, fusion: str) -> Explanation:
    fused = passage.fused
    contributions = [
        Contribution(
            **{name: getattr(part.source, name) for name in _OF_SOURCE},
            **{name: getattr(part, name) for name in _OF_CONTRIBUTION},
        )
        for part in fused.contributions
    ]
    return Explanation(
        fusion=fusion,
        contributions=tuple(contributions),
        bonus=fused.bonus,
        fused=fused.score,
        recency=passage.recency,
        rerank=passage.reranked,
        score=passage.score,
    )


def _to_place(chunk: Chunk) -> OtherPlace:
    fields = {name: getattr(chunk, name) for name in _OF_PLACE}
    fields |= {"locator": _to_locator(chunk, chunk.locator), "citation": format_citation(chunk)}
    return OtherPlace.model_validate(fields)


def _texts(value: object) -> tuple[str, ...]:
    values = value if isinstance(value, list | tuple) else () if value is None else (value,)
    return tuple(map(str, values))


def _to_locator(chunk: Chunk, where: Locator) -> ResultLocator:
    fields = dict(zip(Locator.__slots__, _of_locator(where), strict=True))
    if where.page_end is None:
        fields["page_end"] = where.page
    if where.time_start is not None and is_cited_by_time(chunk):
        fields |= {"unit": "time", "start": where.time_start, "end": where.time_end}
    is_within = where.unit == "record" or WITHIN in chunk.path
    return ResultLocator.model_validate(fields | {"file": chunk.file if is_within else None})


def find_link(chunk: Chunk, where: Locator, evidence: Evidence | None = None) -> str | None:
    """Return the link that plays or opens the best sentence; see :class:`SearchResult`."""
    seconds = where.time_start
    if evidence is not None and seconds is not None:
        return move_link(evidence.link, seconds)
    if chunk.modality in TIMED_MODALITIES and seconds is not None:
        path = original_of(chunk) or chunk.path
        return recording_link(chunk.metadata.get("source_url"), path, seconds)
    return None if where.page is None else page_link(chunk.path, where.page)


def explain_nothing(
    params: SearchParams, request: SearchRequest, stages: StageLog
) -> Iterator[str]:
    """Explain why there is no result."""
    if any(UNSEARCHABLE in report.note for report in stages.reports):
        yield f"{UNSEARCHABLE}: put words in quotes to find exactly these, or use other words"
    if any(UNWRITTEN in report.note for report in stages.reports):
        yield UNWRITTEN
    if required := request.query.required:
        quoted = " and ".join(f'"{phrase}"' for phrase in required)
        yield f"a passage must contain {quoted} exactly: without the quotes its words may be apart"
    if params.agent is not None and not request.restriction.is_whole_dataset:
        yield f"agent {params.agent} restricts the search: see 'catalog agents'"


def tell_searched(library: Library, params: SearchParams, request: SearchRequest) -> str:
    """Describe how, where and under which conditions the search ran."""
    with library.database.read() as connection:
        count = count_documents(connection, allowed_documents(request.restriction), sys.maxsize)
    given = {name: getattr(params, name) for name in _NARROWING}
    conditions = [
        f"{name}={it}" if isinstance(it, str | float) else name
        for name, it in given.items()
        if it is not None
    ]
    conditions += ["quotes"] if request.query.required else []
    where = " and ".join(map(repr, request.restriction.datasets))
    within = f" with {', '.join(conditions)}" if conditions else ""
    told = f"Searched {_WAYS[request.mode]} in {counted(count, 'document')} of {where}{within}."
    if request.mode == "lexical" and not conditions:
        told += " Mode hybrid also searches by meaning."
    return told


def find_nearest(
    request: SearchRequest, find: Callable[[SearchRequest], Iterable[Passage]]
) -> list[str]:
    """Return the best documents, ignoring threshold, phrases, dates, file type and name."""
    query, visible = request.query, request.visible
    if request.threshold == 0 and request.restriction == visible and not query.required:
        return []
    unquoted = query.without_phrases(query.required, "")
    all_off: dict[str, Any] = {"threshold": 0.0, "rerank": False, "expand": False}
    loose = replace(request, query=unquoted, restriction=visible, top_k=_NEAREST, **all_off)
    try:
        chunks = [passage.chunk for passage in find(loose)]
    except CatalogError:  # the search has answered; this only adds to it
        return []
    name = "path" if len(visible.datasets) == 1 else "source_doc_id"
    names = [getattr(chunk, name) for chunk in chunks]
    return list(dict.fromkeys(names))[:_NEAREST]
