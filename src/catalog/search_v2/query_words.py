"""Finding a query's words in a text by the tokens the lexical index counts, with offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from catalog.store.lexical.analysis import Analyzer
from catalog.store.lexical.words import _UNSPACED, _WORD

_ANALYZER = Analyzer()
_LONGEST_REMEMBERED = 64


@dataclass(frozen=True, slots=True)
class Match:
    """``text[start:end]`` is a word that has these tokens of the query."""

    start: int
    end: int
    tokens: frozenset[str]


@dataclass(frozen=True, slots=True)
class QueryWords:
    """The different words of a query, each as its tokens; stop words have none and are left out."""

    words: tuple[frozenset[str], ...]
    tokens: frozenset[str]

    def matches(self, text: str) -> list[Match]:
        """The words of a text that have a token of the query, in order, none overlapping.

        Of a script without spaces between words, where a word would be half a sentence, only the
        characters that match.
        """
        found: list[Match] = []
        for piece in set(text.split()) if self.tokens else ():
            if not self.tokens.isdisjoint(_tokens_of(piece)):
                of_piece = list(self._within(piece))
                for at in _occurrences(piece, text):
                    found += (Match(at + m.start, at + m.end, m.tokens) for m in of_piece)
        return sorted(found, key=lambda match: match.start)

    def rank(self, matches: Iterable[Match]) -> tuple[int, int, int]:
        """How well they cover the query: different words, different tokens, occurrences."""
        listed = list(matches)
        tokens = frozenset[str]().union(*(match.tokens for match in listed))
        words = sum(not word.isdisjoint(tokens) for word in self.words)
        return words, len(tokens), len(listed)

    def _within(self, piece: str) -> Iterator[Match]:
        for word in _WORD.finditer(piece):
            tokens = self.tokens & _tokens_of(word[1])
            if tokens and _UNSPACED.search(word[1]):
                yield from _pairs(word[1], word.start(1), self.tokens)
            elif tokens:
                yield Match(word.start(1), word.end(1), tokens)


@lru_cache(maxsize=32)
def query_words(query: str) -> QueryWords:
    """What to look for in the passages of one search."""
    words = (_tokens_of(word[1]) for word in _WORD.finditer(query))
    different = tuple(dict.fromkeys(word for word in words if word))
    return QueryWords(different, frozenset[str]().union(*different))


def _occurrences(piece: str, text: str) -> Iterator[int]:
    """Where a piece stands in a text between white space: quicker than reading all its words."""
    at = text.find(piece)
    while at >= 0:
        end = at + len(piece)
        if (at == 0 or text[at - 1].isspace()) and (end == len(text) or text[end].isspace()):
            yield at
        at = text.find(piece, at + 1)


def _tokens_of(text: str) -> frozenset[str]:
    return _remembered(text) if len(text) <= _LONGEST_REMEMBERED else _analysed(text)


def _analysed(text: str) -> frozenset[str]:
    return frozenset(_ANALYZER.tokens(text))


_remembered = lru_cache(maxsize=20_000)(_analysed)


def _pairs(word: str, offset: int, wanted: frozenset[str]) -> Iterator[Match]:
    """The runs of a word's single characters, pairs and other parts that are wanted."""
    start = end = 0
    tokens: frozenset[str] = frozenset()
    for low, high in _parts(word):
        met = wanted & _tokens_of(word[low:high])
        if not met:
            continue
        if low > end and tokens:
            yield Match(offset + start, offset + end, tokens)
            tokens = frozenset()
        start = start if tokens else low
        end, tokens = high, tokens | met
    if tokens:
        yield Match(offset + start, offset + end, tokens)


def _parts(word: str) -> Iterator[tuple[int, int]]:
    """Overlapping pairs of an unspaced script's characters, and the words between them."""
    at = 0
    for run in _UNSPACED.finditer(word):
        yield from (other.span(1) for other in _WORD.finditer(word, at, run.start()))
        start, at = run.span()
        yield from ((low, min(low + 2, at)) for low in range(start, max(start + 1, at - 1)))
    yield from (other.span(1) for other in _WORD.finditer(word, at))
