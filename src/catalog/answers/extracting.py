"""The best sentences of the passages found, word for word: an answer without a model."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from catalog.answers.neutralising import Addressed, neutralise
from catalog.core.answers import AnswerSentence
from catalog.ingest.chunking.boundaries import iter_lines, sentence_spans
from catalog.retrieval.query_words import Word, has_word, language_of_words, query_words

_LONGEST = 400  # characters of a sentence; a longer one is taken line by line
_PASSAGES = 10  # that sentences are taken from
_LEAST = 0.5  # of the best sentence's score, for a further one
_OF_HEADINGS = 0.5  # what a word that stands only in the headings counts
_MARKS = re.compile(  # of a heading, quotation or item; the rule of a table
    r"^(?:[#>*+\-•]++|\d++[.)])\s++|(?<!\s)\s++#++$|^[\s:|-]++$"
)
_WORD = re.compile(r"\w+")


class SentenceSource(Addressed, Protocol):
    """A passage from which sentences are taken, such as a result; ``rank`` is its number.

    ``relevance`` (0 to 1), or else ``score``, is its strength compared with the rest.
    """

    @property
    def rank(self) -> int: ...
    @property
    def title(self) -> str: ...
    @property
    def sections(self) -> Sequence[str]: ...
    @property
    def score(self) -> float: ...
    @property
    def relevance(self) -> float | None: ...


class _Candidate(NamedTuple):
    score: float
    covered: float
    n: int
    start: int
    text: str


def extract_sentences(
    query: str, sources: Sequence[SentenceSource], most: int
) -> tuple[tuple[AnswerSentence, ...], float]:
    """Return the ``most`` sentences that answer best, best first, with their passages.

    A sentence's score is the share of the question's words in it, weighted by rarity among the
    passages, times the relevance of its passage. A sentence with less than half of the best score
    is left out, and one that an earlier sentence contains. The additional number is the largest
    such share, 0 to 1, of any sentence with its headings.
    """
    chosen: list[AnswerSentence] = []
    shown: list[str] = []
    candidates = sorted(
        _candidates(query, sources[:_PASSAGES]), key=lambda one: (-one.score, one.n, one.start)
    )
    least = _LEAST * candidates[0].score if candidates else 0.0
    for candidate in candidates:
        folded = _folded(candidate.text)
        if len(chosen) >= most or candidate.score < least:
            break
        if any(folded in other or other in folded for other in shown):
            continue
        shown.append(folded)
        chosen.append(
            AnswerSentence(
                text=candidate.text,
                citations=(candidate.n,),
                supported=True,
                breaks="\n" if chosen else "",
            )
        )
    return tuple(chosen), max((one.covered for one in candidates), default=0.0)


def _candidates(query: str, passages: Sequence[SentenceSource]) -> Iterator[_Candidate]:
    weights = _word_weights(query, passages)
    strongest = max((_strength(passage) for passage in passages), default=0.0)
    for passage in passages:
        words = query_words(query, language_of_words(passage.text))
        strength = _strength(passage) / strongest if strongest > 0 else 1.0
        headings = 0
        for heading in (passage.title, *passage.sections):
            headings |= _bits(words.matches(heading))
        titles = {_folded(one) for one in (passage.title, *passage.sections)}
        for start, end in sentence_bounds(passage.text):
            text = " ".join(_MARKS.sub("", passage.text[start:end]).split()).strip("| ")
            text = neutralise(text, [passage])
            if not text or _folded(text) in titles or text.endswith(("?", ":")):
                continue
            bits = _bits(words.matches(text))
            share = _share(words.words, bits, weights)
            covered = _share(words.words, bits | headings, weights)
            share += _OF_HEADINGS * (covered - share)
            score = (0.1 + share) * (0.5 + 0.5 * strength)
            yield _Candidate(score, covered, passage.rank, start, text)


def _strength(passage: SentenceSource) -> float:
    return passage.score if passage.relevance is None else passage.relevance


def _word_weights(query: str, passages: Sequence[SentenceSource]) -> list[float]:
    """Return ln(1 + N / n) for each word of the query: n of the N passages contain it."""
    holding: dict[int, int] = {}
    for passage in passages:
        words = query_words(query, language_of_words(passage.text))
        bits = _bits(words.matches(passage.text))
        for at, word in enumerate(words.words):
            holding[at] = holding.get(at, 0) + has_word(word, bits)
    return [math.log(1 + len(passages) / max(1, count)) for _, count in sorted(holding.items())]


def _bits(matches: Sequence[tuple[int, int, int]]) -> int:
    bits = 0
    for _, _, tokens in matches:
        bits |= tokens
    return bits


def _share(words: Sequence[Word], bits: int, weights: Sequence[float]) -> float:
    """Return the weighted share of the words that is among the bits; 1 without words."""
    pairs = list(zip(words, weights, strict=False))
    whole = sum(weight for _, weight in pairs)
    if whole <= 0:
        return 1.0
    return sum(weight for word, weight in pairs if has_word(word, bits)) / whole


def _folded(text: str) -> str:
    return " ".join(_WORD.findall(text.casefold()))


def sentence_bounds(text: str) -> Iterator[tuple[int, int]]:
    """Yield sentences, cut at blank lines; one that is too long is cut line by line."""
    for begin, stop in _paragraphs(text):
        for start, end in sentence_spans(text, begin, stop):
            if end - start <= _LONGEST:
                yield start, end
            else:
                yield from _lines(text, start, end)


def _paragraphs(text: str) -> Iterator[tuple[int, int]]:
    """Yield the stretches of lines between blank lines, headings, list items and table rows."""
    begin: int | None = None
    end = 0
    for start, stop, _ in iter_lines(text):
        line = text[start:stop].strip()
        if begin is not None and (not line or line.startswith("|") or _MARKS.search(line)):
            yield begin, end
            begin = None
        if line and begin is None:
            begin = start
        end = stop
        if begin is not None and line.startswith(("#", "|")):
            yield begin, end
            begin = None
    if begin is not None:
        yield begin, end


def _lines(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    return (
        (max(start, first), min(end, last))
        for first, last, _ in iter_lines(text)
        if first < end and last > start
    )
