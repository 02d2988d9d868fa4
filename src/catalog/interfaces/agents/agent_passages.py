"""Passages as an agent gets them: compact, cleaned, whole where that fits, and always citable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import WithJsonSchema

from catalog.core.places import format_clock, format_count
from catalog.core.results import TIMED_MODALITIES, Certainty, EvidenceLine, Explanation
from catalog.core.text import clean, format_timecode
from catalog.interfaces.agents.tool import ToolPart, document_reference, one_line, shown_tags
from catalog.retrieval.citations import format_headings

TEXT_BUDGET = 12_000
"""Characters of passage text in one answer; snippets are given beyond it.

Of 150 questions of ``golden_queries/python-docs.jsonl`` the ten passages hold the labelled text for
.840; shown it is for .807, for .800 with 10,000 characters, .747 with 8,000, .713 with 6,000.
"""
MAX_LINE = 5_000
"""Characters of one line of evidence at most."""
_MAX_COPIES, _COPIES_SHOWN = 20, 3
_INDENT = "    "


class Place(ToolPart):
    """The position of the text: ``start`` to ``end`` of ``unit``, both included; else characters.

    ``page`` is the first page or slide and ``page_end`` the last, equal for a single page.
    ``lines`` are those of the file, or of the one cell; ``times`` are seconds. A record is a line
    of ``file``. ``cells`` are those of a workbook: ``Costs!A12:F30``.
    """

    unit: str = "line"
    start: int | float | None = None
    end: int | float | None = None
    file: str | None = None
    page: int | None = None
    page_end: int | None = None
    lines: tuple[int, int] | None = None
    times: tuple[float, float] | None = None
    characters: tuple[int, int] | None = None
    cells: str | None = None


class AgentPassage(ToolPart):
    """One passage found. ``get`` with ``reference`` returns the whole of it.

    ``headings`` are those over it, ``sections`` these and all headings in it. ``text`` is the
    passage if ``is_whole``, else the part of it that answers best; ``locator`` is the position of
    that text. ``original`` is the file that the one at ``path`` was made of. ``best_sentence`` is
    the one of it that answers a question about a recording, and ``evidence`` is the part of the
    recording around it; a passage that shares another's has its number in ``evidence_of``.
    ``also_in`` are the references of other passages of the same text, 20 at most. ``score`` orders
    one answer only. ``relevance`` is the estimated probability that the passage answers,
    ``certainty`` the same in a word. ``file_type`` and all after it are of the document; ``date``
    is the one that ``after`` and ``before`` go by.
    """

    number: int
    reference: str
    path: str
    original: str | None
    title: str
    docid: str
    headings: tuple[str, ...]
    sections: tuple[str, ...]
    modality: str
    locator: Place
    text: str
    is_whole: bool
    citation: str
    score: float
    relevance: float
    certainty: Certainty
    link: str | None
    media: str | None
    best_sentence: EvidenceLine | None
    evidence: tuple[EvidenceLine, ...]
    evidence_of: int | None
    also_in: tuple[str, ...] = ()
    file_type: str = ""
    source_type: str = ""
    tags: tuple[str, ...] = ()
    created: str | None = None
    modified: str | None = None
    date: str | None = None
    explain: Annotated[Explanation | None, WithJsonSchema({"type": ["object", "null"]})] = None


def agent_passages(
    results: Sequence[Mapping[str, Any]], budget: int = TEXT_BUDGET
) -> tuple[tuple[AgentPassage, ...], str]:
    """Return the passages, best first, and a note which of them are not whole, blank if all are.

    ``results`` are search results as JSON objects. Snippets are always given. As long as all text
    together stays within ``budget`` characters, the best passages are given whole, those of
    recordings with their evidence.
    """
    remaining = budget - sum(len(result["snippet"]) for result in results)
    passages: list[AgentPassage] = []
    for number, result in enumerate(results, start=1):
        extra = _whole_length(result) - len(result["snippet"])
        is_whole = extra <= remaining
        if is_whole:
            remaining -= extra
        passages.append(_agent_passage(result, number, is_whole, passages))
    parts = ", ".join(f"[{passage.number}]" for passage in passages if not passage.is_whole)
    note = f"cut; `get` the reference for the whole: {parts}" if parts else ""
    return tuple(passages), note


def _whole_length(result: Mapping[str, Any]) -> int:
    """Return its characters when whole; shared evidence counts for the first that has it."""
    if result.get("evidence") is not None:
        return sum(len(line["text"]) for line in result["evidence"]["lines"])
    return 0 if _is_evidence_elsewhere(result) else len(result["text"])


def _is_evidence_elsewhere(result: Mapping[str, Any]) -> bool:
    return result.get("evidence_at") not in (None, result["rank"])


def _agent_passage(
    result: Mapping[str, Any], number: int, is_whole: bool, before: Sequence[AgentPassage]
) -> AgentPassage:
    evidence, shared = result.get("evidence"), None
    if _is_evidence_elsewhere(result):
        shared = next(
            (passage for passage in before if passage.number == result["evidence_at"]), None
        )
    media = evidence["media"] if evidence else shared.media if shared else None
    link, original = result.get("link"), result.get("original")
    return AgentPassage(
        number=number,
        reference=_passage_reference(result),
        path=one_line(result["path"]),
        original=None if original is None else one_line(original),
        title=one_line(result["title"]),
        docid=result["docid"],
        headings=tuple(one_line(heading) for heading in result["heading_path"]),
        sections=tuple(one_line(heading) for heading in result.get("sections", ())),
        modality=result["modality"],
        locator=_place(result, is_whole),
        text=clean(result["text"] if is_whole else result["snippet"]),
        is_whole=is_whole,
        citation=one_line(result["citation"]),
        score=result["score"],
        relevance=result["relevance"],
        certainty=result["certainty"],
        link=None if link is None else one_line(link, 2000),
        media=None if media is None else one_line(media),
        best_sentence=_best_sentence(evidence),
        evidence=tuple(map(_clean_line, evidence["lines"])) if evidence and is_whole else (),
        evidence_of=shared.number if shared and shared.evidence else None,
        also_in=tuple(map(_passage_reference, result.get("also_in", ())[:_MAX_COPIES])),
        file_type=one_line(result["file_type"], 40),
        source_type=one_line(result["source_type"], 100),
        tags=shown_tags(result["tags"]),
        **{
            name: None if result[name] is None else one_line(result[name], 40)
            for name in ("created", "modified", "date")
        },
        explain=result.get("explain"),
    )


def _best_sentence(evidence: Mapping[str, Any] | None) -> EvidenceLine | None:
    line = evidence and evidence.get("best_sentence")
    return _clean_line(line) if line else None


def _clean_line(line: Mapping[str, Any]) -> EvidenceLine:
    speaker, text = line["speaker"], one_line(line["text"], MAX_LINE)
    speaker = None if speaker is None else one_line(speaker)
    return EvidenceLine(**{**line, "speaker": speaker, "text": text})


def _place(result: Mapping[str, Any], is_whole: bool) -> Place:
    locator = None if is_whole else result.get("snippet_locator")
    if locator is None:
        locator = result["locator"]
    page, page_end = locator.get("page"), locator.get("page_end")
    lines, times = _ends(locator, "line"), _ends(locator, "time")
    counted = {name: locator.get(name) for name in ("start", "end", "file", "cells")}
    counted["unit"] = locator.get("unit", "line")
    if (page, lines, times, counted["start"]) == (None, None, None, None):
        characters = result["start_offset"], result["end_offset"]
        return Place(**counted, page_end=page_end, characters=characters)
    return Place(**counted, page=page, page_end=page_end, lines=lines, times=times)


def _ends(locator: Mapping[str, Any], unit: str) -> tuple[Any, Any] | None:
    """Return the first and last line or second of a locator, if it has any."""
    first, last = locator.get(f"{unit}_start"), locator.get(f"{unit}_end")
    return None if first is None else (first, first if last is None else last)


def _passage_reference(result: Mapping[str, Any]) -> str:
    """Return ``dataset:path:120-131``, with a docid where the path does not fit on a line.

    A cell has its lines (``:3:2-8``); a unit of seconds alone has times (``:1:05-1:18``).
    """
    document, locator = document_reference(result), result["locator"]
    if locator.get("cells"):
        return f"{document} › {locator['cells']}"
    unit, start, end = (locator.get(name) for name in ("unit", "start", "end"))
    lines, times = _ends(locator, "line"), _ends(locator, "time")
    if lines is not None:
        cell = f"{start}:" if unit == "cell" else ""
        return f"{document}:{cell}{lines[0]}-{lines[1]}"
    if unit == "time" and times is not None:
        return f"{document}:{'-'.join(map(format_clock, times))}"
    return document if start is None else f"{document}:{start}-{start if end is None else end}"


def format_passages(passages: Sequence[AgentPassage]) -> str:
    """Return the passages one below the other, a blank line between them."""
    return "\n\n".join("\n".join(_passage_lines(passage)) for passage in passages)


def _passage_lines(passage: AgentPassage) -> Iterator[str]:
    is_timed = passage.modality in TIMED_MODALITIES and passage.locator.times is not None
    if is_timed:  # named by the recording's file, or the transcript's where that is unknown
        name = passage.media if passage.media and "." in passage.media else passage.path
        about = passage.modality.replace("_", " ")
    else:
        name = passage.original or passage.path
        about = format_headings(passage.headings, passage.sections[len(passage.headings) :])
    head = f"[{passage.number}] {name}" + (f" — {about}" if about else "")
    head += " (quoted)" if passage.modality == "quote" else ""
    place = _format_place(passage.locator, is_timed)
    if passage.evidence:
        from catalog.retrieval.recordings import format_lines

        yield head
        yield from format_lines(passage.evidence, passage.best_sentence, _INDENT)
    elif passage.evidence_of is not None:
        yield head
        yield f"{_INDENT}{place}: see [{passage.evidence_of}]"
    else:
        yield f"{head} ({place})"
        yield _INDENT + f'"{passage.text.strip()}"'.replace("\n", f"\n{_INDENT}")
    yield f"{_INDENT}reference: {passage.reference} (#{passage.docid}), {passage.certainty}"
    if passage.also_in:
        yield f"{_INDENT}also in: {', '.join(passage.also_in[:_COPIES_SHOWN])}"
    if passage.tags:
        yield f"{_INDENT}tags: {', '.join(passage.tags)}"
    if passage.explain is not None:
        yield f"{_INDENT}{_format_explanation(passage.explain)}"


def _format_place(place: Place, is_timed: bool) -> str:
    """Return ``lines 120–170, pages 3–4``, ``00:01:05–00:01:18``, or ``characters 120–480``."""
    if place.times is not None and (is_timed or (place.lines is None and place.page is None)):
        return _format_range(*map(format_timecode, place.times))
    if place.cells is not None:
        return place.cells
    is_other = place.unit not in ("line", "page", "time")
    counted = (place.start, place.end) if is_other else (place.page, place.page_end)
    parts = [format_count(place.unit if is_other else "page", *counted, dash="–")]
    if place.lines is not None:
        lines = format_count("line", *place.lines, dash="–")
        parts = [*parts, lines] if place.unit == "cell" else [lines, *parts]
    if place.unit == "record" and place.file:
        parts[0] += f" of {place.file}"
    parts = list(filter(None, parts))
    if not parts and place.characters is not None:
        parts.append(f"characters {_format_range(*place.characters)}")
    return ", ".join(parts)


def _format_range(first: object, last: object) -> str:
    return str(first) if first == last else f"{first}–{last}"


def _format_explanation(explain: Explanation) -> str:
    parts = [
        f"{part.leg} rank {part.rank} +{part.contribution:.4f}" for part in explain.contributions
    ]
    if explain.bonus:
        parts.append(f"bonus +{explain.bonus:.4f}")
    if explain.recency is not None:
        parts.append(f"times {explain.recency.factor:.4f} for its age")
    if explain.rerank is not None:
        parts.append(f"reranked from {explain.rerank.rank}")
    return f"score {explain.score:.4f}: {', '.join(parts)}"
