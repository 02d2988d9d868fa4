"""A text read for comparison: its sentences, words and details, in the order they stand."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache

from catalog.answers.details import Detail, find_details
from catalog.ingest.chunking.boundaries import sentence_spans
from catalog.retrieval.query_words import language_of_words
from catalog.store.lexical.analysis import WORD, Analyzer, fold

_REFERENCE = re.compile(
    r"(?<!\s)\s*+\[(?:\d{1,3}(?:\s*+[,–-]\s*+\d{1,3})*+|(?:source|chunk):[^\]\n]{1,300})\]"
)
_NOT_TEXT = (
    "not no never without cannot none nobody nothing neither nor hardly barely unable lack lacks "
    "lacked lacking fail fails failed non absence"
)
_NOT = frozenset(_NOT_TEXT.split())
_QUOTES = "\"'`“‘"  # "None" is a value, and NO a gas
BOUNDARY = "."
"""Stands in ``forms`` between sentences."""


@dataclass(frozen=True, slots=True)
class TextWord:
    """``form`` is how neighbours are compared, ``tokens`` the content, none of a stop word."""

    start: int
    text: str
    form: str
    tokens: frozenset[str]
    is_negation: bool
    ends_clause: bool


@dataclass(frozen=True)
class AnalysedText:
    """A text with its words, one list for each sentence; ``details`` are those of all of it."""

    text: str
    sentences: tuple[tuple[TextWord, ...], ...]
    details: tuple[Detail, ...]

    @cached_property
    def tokens(self) -> frozenset[str]:
        """Return the content of all sentences."""
        return frozenset().union(*map(tokens_of, self.sentences))

    @cached_property
    def words(self) -> frozenset[str]:
        """Return the folded words of the text and their parts, stop words included."""
        return frozenset(
            part
            for match in WORD.finditer(self.text)
            for part in (fold(match[1]), *re.split(r"[\W_]+", fold(match[1])))
        )

    @cached_property
    def forms(self) -> tuple[list[str], list[int]]:
        """Return all words' forms in a row, with a boundary around sentences, and their starts."""
        forms, starts = [BOUNDARY], [-1]
        for sentence in self.sentences:
            for word in sentence:
                forms.append(word.form)
                starts.append(word.start)
            forms.append(BOUNDARY)
            starts.append(starts[-1])
        return forms, starts

    def around(self, detail: Detail, reach: int) -> tuple[list[str], list[str]]:
        """Return the forms before a detail, nearest first, and those behind it."""
        forms, starts = self.forms
        first, last = bisect_left(starts, detail.start), bisect_left(starts, detail.end)
        before = forms[max(0, first - reach) : first][::-1]
        if first < last and forms[last - 1] == BOUNDARY:
            last -= 1
        return before, forms[last : last + reach]


def tokens_of(words: Sequence[TextWord]) -> frozenset[str]:
    """Return the content of words."""
    return frozenset(token for word in words for token in word.tokens)


def strip_references(text: str) -> str:
    """Remove the citations of a sentence: ``[1]``, ``[source: …]``, ``[chunk: …]``."""
    return _REFERENCE.sub("", text)


@lru_cache(maxsize=128)
def analyse_text(text: str, language: str | None = None) -> AnalysedText:
    """Read a text; its words are stemmed as those of its language unless another is given."""
    details = find_details(text)
    analyzer = _analyzer(language or language_of_words(text))
    masks = {
        at: detail.kind
        for detail in details
        if detail.kind in ("number", "date")
        for at in range(detail.start, detail.end)
    }
    sentences = []
    for start, end in sentence_spans(text):
        matches = list(WORD.finditer(text, start, end))
        ends = [*(match.start() for match in matches[1:]), *([end] if matches else [])]
        sentences.append(
            tuple(
                _read_word(text, match, following, masks.get(match.start()), analyzer)
                for match, following in zip(matches, ends, strict=True)
            )
        )
    return AnalysedText(text, tuple(sentences), tuple(details))


def _read_word(
    text: str, match: re.Match[str], following: int, mask: str | None, analyzer: Analyzer
) -> TextWord:
    whole = match.group().lower().replace("\u2019", "'")
    tokens = frozenset() if mask else frozenset(analyzer.tokens(match[1]))
    is_negation = whole.endswith("n't") or (
        fold(match[1]) in _NOT
        and match[1] != "NO"
        and text[max(0, match.start() - 1) : match.start()] not in tuple(_QUOTES)
    )
    return TextWord(
        start=match.start(),
        text=match.group(),
        form=f"#{mask}" if mask else min(tokens, default=fold(match[1])),
        tokens=frozenset() if is_negation else tokens,
        is_negation=is_negation,
        ends_clause=any(mark in text[match.end() : following] for mark in ",;:()–—"),
    )


@cache
def _analyzer(language: str) -> Analyzer:
    return Analyzer(language)
