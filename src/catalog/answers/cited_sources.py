"""The sources of an answer: what its numbers stand for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from catalog.answers.extracting import sentence_bounds
from catalog.core.answers import AnswerCitation, AnswerSentence
from catalog.search_v2.query_words import language_of_words, query_words

if TYPE_CHECKING:
    from catalog.core.results import SearchResult

_LONGEST = 400  # characters of a passage that are quoted


def cite_sources(
    question: str, results: Iterable[SearchResult], sentences: Sequence[AnswerSentence]
) -> tuple[AnswerCitation, ...]:
    """Return what the sentences cite, by number; of each what supports them best."""
    by_number = {result.rank: result for result in results}
    cited = sorted({number for one in sentences for number in one.citations} & by_number.keys())
    citations = []
    for number in cited:
        citing = [one for one in sentences if number in one.citations]
        verified = any(one.supported for one in citing)
        first = next((one for one in citing if one.supported), citing[0])
        quote = find_quote(by_number[number], f"{first.text} {question}")
        citations.append(_citation(by_number[number], quote, verified=verified))
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


def find_quote(result: SearchResult, words: str) -> str:
    """Return the sentence of a passage with most of the words, word for word, cut if it is long."""
    text = result.text
    wanted = query_words(words, language_of_words(text))
    spans = list(sentence_bounds(text))
    if not spans:
        return ""
    start, end = max(spans, key=lambda span: wanted.rank(wanted.matches(text[slice(*span)])))
    return text[start : min(end, start + _LONGEST)]


def _citation(result: SearchResult, quote: str, *, verified: bool) -> AnswerCitation:
    return AnswerCitation(
        n=result.rank,
        chunk_id=result.chunk_id,
        dataset=result.dataset,
        path=result.path,
        title=result.title,
        locator=result.snippet_locator or result.locator,
        citation=result.citation,
        link=result.link,
        text=quote,
        verified=verified,
    )
