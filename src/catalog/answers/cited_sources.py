"""The sources of an answer: what its numbers stand for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from catalog.answers.statements import sentence_bounds
from catalog.core.answers import AnswerCitation, AnswerSentence
from catalog.core.results import ResultLocator
from catalog.retrieval.query_words import language_of_words, query_words

if TYPE_CHECKING:
    from catalog.core.results import SearchResult

_LONGEST = 400  # characters of a passage that are quoted


def cite_sources(
    results: Iterable[SearchResult], sentences: Sequence[AnswerSentence]
) -> tuple[AnswerCitation, ...]:
    """Return what the sentences cite, by number; of each what supports them best."""
    by_number = {result.rank: result for result in results}
    cited = sorted({number for one in sentences for number in one.citations} & by_number.keys())
    citations = []
    for number in cited:
        citing = [one for one in sentences if number in one.citations]
        supported = [one for one in citing if one.supported]
        result = by_number[number]
        spans = [one.span or find_quote(result, one.text) for one in supported or citing]
        citations.append(_citation(result, spans, verified=len(supported) > 0))
    return tuple(citations)


def cite_as(
    sentence: AnswerSentence, given: Mapping[int, SearchResult], form: str
) -> AnswerSentence:
    """Return the sentence with its citations in a form of ``IDX_ANSWERS__CITATIONS``."""
    if form == "number":
        return sentence
    cited = [given[number] for number in sentence.citations]
    marks = [one.citation if form == "source" else f"[chunk: {one.chunk_id}]" for one in cited]
    return sentence.model_copy(update={"cited_as": tuple(dict.fromkeys(marks))})


def find_quote(result: SearchResult, words: str) -> tuple[int, int]:
    """Return where in a passage the sentence with most of the words stands: ``[start, end)``."""
    text = result.text
    wanted = query_words(words, language_of_words(text))
    spans = list(sentence_bounds(text)) or [(0, 0)]
    return max(spans, key=lambda span: wanted.rank(wanted.matches(text[slice(*span)])))


def _citation(
    result: SearchResult, spans: Sequence[tuple[int, int]], *, verified: bool
) -> AnswerCitation:
    start, end = spans[0]
    return AnswerCitation(
        n=result.rank,
        chunk_id=result.chunk_id,
        dataset=result.dataset,
        path=result.path,
        title=result.title,
        locator=_locate(result, min(spans)[0], max(end for _, end in spans)),
        citation=result.citation,
        link=result.link,
        text=result.text[start : min(end, start + _LONGEST)],
        verified=verified,
    )


def _locate(result: SearchResult, start: int, end: int) -> ResultLocator:
    """Return where that part of the passage's text stands, as exactly as is known.

    To the line where the lines of the text are the file's; else where the snippet stands if it
    holds the part, and where the whole passage does if not.
    """
    text, whole = result.text, result.locator
    first, last = whole.line_start, whole.line_end
    if whole.unit != "line" or first is None or last is None:
        is_of_file = False
    else:
        is_of_file = last - first == text.rstrip("\n").count("\n")
    if first is not None and is_of_file:
        last = first + text[:end].rstrip("\n").count("\n")
        first += text[:start].count("\n")
        lines = {"start": first, "end": last, "line_start": first, "line_end": last}
        return whole.model_copy(update=lines)
    is_shown = text[start:end] in result.snippet
    return (result.snippet_locator if is_shown else None) or whole
