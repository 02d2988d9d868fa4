"""Passages as an agent gets them: compact, cleaned, whole where that fits, and always citable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import BaseModel, ConfigDict

from catalog.core.results import (
    TIMED_MODALITIES,
    EvidenceLine,
    Explanation,
    ResultLocator,
    SearchResult,
)
from catalog.interfaces.agents.quoting import clean, one_line
from catalog.search_v2.evidence import format_line, format_timecode

TEXT_BUDGET = 12_000
"""Characters of passage text in one answer; snippets are given beyond it."""
MAX_LINE = 5_000
"""Characters of one line of evidence at most."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Place(_Frozen):
    """Where the text stands: pages, lines from 1 and seconds, both ends included; else characters.

    ``page`` is the first page and ``page_end`` the last, the same where there is one.
    """

    page: int | None = None
    page_end: int | None = None
    lines: tuple[int, int] | None = None
    times: tuple[float, float] | None = None
    characters: tuple[int, int] | None = None


class AgentPassage(_Frozen):
    """One passage found. ``reference`` is what ``get`` takes for the whole of it.

    ``text`` is the passage if ``is_whole``, else the part of it that answers best; ``locator`` is
    where that text stands. ``evidence`` is what a recording holds around it; a passage that shares
    another's has its number in ``evidence_of``. ``score`` orders one answer only; ``relevance`` is
    the estimated probability that the passage answers.
    """

    number: int
    reference: str
    path: str
    title: str
    docid: str
    headings: tuple[str, ...]
    modality: str
    locator: Place
    text: str
    is_whole: bool
    citation: str
    score: float
    relevance: float | None
    link: str | None
    media: str | None
    evidence: tuple[EvidenceLine, ...]
    evidence_of: int | None
    explain: Explanation | None = None


def passages_of(
    results: Sequence[SearchResult], budget: int = TEXT_BUDGET
) -> tuple[tuple[AgentPassage, ...], str]:
    """The passages, best first, and a note which of them are not whole, blank if all are.

    Snippets are always given. As long as all text together stays within ``budget`` characters,
    the best passages are given whole, those of recordings with their evidence.
    """
    left = budget - sum(len(result.snippet) for result in results)
    found: list[AgentPassage] = []
    for result in results:
        extra = _length(result) - len(result.snippet)
        is_whole = extra <= left
        if is_whole:
            left -= extra
        found.append(_passage(result, len(found) + 1, is_whole, found))
    return tuple(found), _note(found)


def _length(result: SearchResult) -> int:
    """Characters it has when whole; what is shared stands at the first that has it."""
    if result.evidence is not None:
        return sum(len(line.text) for line in result.evidence.lines)
    return 0 if result.evidence_at not in (None, result.rank) else len(result.text)


def _note(found: Sequence[AgentPassage]) -> str:
    parts = [f"[{one.number}]" for one in found if not one.is_whole]
    if not parts:
        return ""
    return f"given in part, `get` the reference for the whole: {', '.join(parts)}"


def _passage(
    result: SearchResult, number: int, is_whole: bool, before: Sequence[AgentPassage]
) -> AgentPassage:
    evidence, shared = result.evidence, None
    if result.evidence_at not in (None, result.rank):
        shared = next((one for one in before if one.number == result.evidence_at), None)
    is_told_there = shared is not None and bool(shared.evidence)
    lines = evidence.lines if evidence is not None and is_whole else ()
    media = evidence.media if evidence is not None else shared.media if shared else None
    return AgentPassage(
        number=number,
        reference=_reference(result),
        path=one_line(result.path),
        title=one_line(result.title),
        docid=result.docid,
        headings=tuple(one_line(heading) for heading in result.heading_path),
        modality=result.modality,
        locator=_place(result, is_whole),
        text=clean(result.text if is_whole else result.snippet),
        is_whole=is_whole,
        citation=one_line(result.citation),
        score=result.score,
        relevance=result.relevance,
        link=None if result.link is None else one_line(result.link, 2000),
        media=None if media is None else one_line(media),
        evidence=tuple(
            line.model_copy(
                update={
                    "speaker": None if line.speaker is None else one_line(line.speaker),
                    "text": one_line(line.text, MAX_LINE),
                }
            )
            for line in lines
        ),
        evidence_of=shared.number if shared is not None and is_told_there else None,
        explain=result.explain,
    )


def _place(result: SearchResult, is_whole: bool) -> Place:
    where = result.locator
    if not is_whole and result.snippet_locator is not None:
        where = result.snippet_locator
    lines, times = _lines(where), _times(where)
    is_placed = where.page is not None or lines is not None or times is not None
    ends = None if is_placed else (result.start_offset, result.end_offset)
    return Place(
        page=where.page, page_end=where.page_end, lines=lines, times=times, characters=ends
    )


def _lines(where: ResultLocator) -> tuple[int, int] | None:
    first, last = where.line_start, where.line_end
    return None if first is None else (first, first if last is None else last)


def _times(where: ResultLocator) -> tuple[float, float] | None:
    first, last = where.time_start, where.time_end
    return None if first is None else (first, first if last is None else last)


def _reference(result: SearchResult) -> str:
    """``dataset:path:120-131``; by docid where the path could not be written on a line."""
    named = result.source_doc_id
    if one_line(named) != named:
        named = f"#{result.docid}"
    lines = _lines(result.locator)
    return named if lines is None else f"{named}:{lines[0]}-{lines[1]}"


def is_timed(passage: AgentPassage) -> bool:
    """Whether it belongs to a moment of a recording."""
    return passage.modality in TIMED_MODALITIES and passage.locator.times is not None


_INDENT = "    "


def passages_text(passages: Sequence[AgentPassage]) -> str:
    """The passages one below the other, a blank line between them."""
    return "\n\n".join("\n".join(_passage_lines(passage)) for passage in passages)


def place_text(place: Place, *, is_timed: bool = False) -> str:
    """``lines 120–170, pages 3–4``, ``00:01:05–00:01:18``, or ``characters 120–480``."""
    parts = []
    if place.times is not None and (is_timed or (place.lines is None and place.page is None)):
        return _range(*map(format_timecode, place.times))
    if place.lines is not None:
        first, last = place.lines
        parts.append(f"{'line' if first == last else 'lines'} {_range(str(first), str(last))}")
    if place.page is not None:
        last = place.page if place.page_end is None else place.page_end
        pages = _range(str(place.page), str(last))
        parts.append(f"{'page' if last == place.page else 'pages'} {pages}")
    if not parts and place.characters is not None:
        parts.append(f"characters {_range(*map(str, place.characters))}")
    return ", ".join(parts)


def _passage_lines(passage: AgentPassage) -> Iterator[str]:
    timed = is_timed(passage)
    name = _name(passage) if timed else passage.path
    about = passage.modality.replace("_", " ") if timed else " > ".join(passage.headings)
    head = f"[{passage.number}] {name}" + (f" — {about}" if about else "")
    where = place_text(passage.locator, is_timed=timed)
    if passage.evidence:
        yield head
        yield from (f"{_INDENT}{format_line(line)}" for line in passage.evidence)
    elif passage.evidence_of is not None:
        yield head
        yield f"{_INDENT}{where}: see [{passage.evidence_of}]"
    else:
        yield f"{head} ({where})"
        yield _INDENT + f'"{passage.text.strip()}"'.replace("\n", f"\n{_INDENT}")
    relevance = "" if passage.relevance is None else f", relevance {passage.relevance:.2f}"
    yield f"{_INDENT}reference: {passage.reference} (#{passage.docid}){relevance}"
    if passage.explain is not None:
        yield f"{_INDENT}{_explained(passage.explain)}"


def _name(passage: AgentPassage) -> str:
    """The recording's file, or the transcript's where no file of the recording is known."""
    return passage.media if passage.media and "." in passage.media else passage.path


def _explained(explain: Explanation) -> str:
    shares = [f"{one.leg} rank {one.rank} +{one.contribution:.4f}" for one in explain.contributions]
    if explain.bonus:
        shares.append(f"bonus +{explain.bonus:.4f}")
    if explain.rerank is not None:
        shares.append(f"reranked from {explain.rerank.rank}")
    return f"score {explain.score:.4f}: {', '.join(shares)}"


def _range(first: str, last: str) -> str:
    return first if first == last else f"{first}–{last}"
