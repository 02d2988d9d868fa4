"""Finding a query's words in a text by the tokens the lexical index counts, with offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from catalog.store.lexical.analysis import UNSPACED, WORD, Analyzer

_ANALYZER = Analyzer()
_APART = (",", ";", ":", "(", ")", ". ")  # the commonest characters that are of no word
_LONGEST_REMEMBERED = 64
_MOST_POSTINGS = 200_000  # of remembered pieces: some tens of megabytes
_MOST_PIECES = 1_000  # remembered of one query's passages


class Match(NamedTuple):
    """``text[start:end]`` is a word that has tokens of the query: bit ``n`` for its nth."""

    start: int
    end: int
    tokens: int


@dataclass(frozen=True, slots=True)
class QueryWords:
    """The different words of a query, each as the bits of its tokens; stop words have none.

    ``tokens`` gives each token its bit. Where they stand in a piece of text is remembered, for
    passages that answer one query share many of their words.
    """

    words: tuple[int, ...]
    tokens: dict[str, int]
    _pieces: dict[str, tuple[Match, ...]] = field(default_factory=dict, repr=False, compare=False)

    def matches(self, text: str) -> list[Match]:
        """The words of a text that have a token of the query, in order, none overlapping.

        Of a script without spaces between words, where a word would be half a sentence, only the
        characters that match.
        """
        found: list[Match] = []
        parted = _parted(text)
        for piece in _SEEN.holding(self.tokens, set(parted.split())) if self.tokens else ():
            of_piece = self._pieces.get(piece)
            if of_piece is None:
                of_piece = self._remember(piece)
            for at in _occurrences(piece, parted):
                found += [Match(at + low, at + high, bits) for low, high, bits in of_piece]
        found.sort()
        return found

    def rank(self, matches: Iterable[Match]) -> tuple[int, int, int]:
        """How well they cover the query: different words, different tokens, occurrences."""
        bits = count = 0
        for match in matches:
            bits |= match.tokens
            count += 1
        return self.rank_of(bits, count)

    def rank_of(self, tokens: int, occurrences: int) -> tuple[int, int, int]:
        """The rank of so many occurrences that have these tokens between them."""
        return len([1 for word in self.words if word & tokens]), tokens.bit_count(), occurrences

    def _remember(self, piece: str) -> tuple[Match, ...]:
        if len(self._pieces) >= _MOST_PIECES:
            self._pieces.clear()
        found = self._pieces[piece] = tuple(self._within(piece))
        return found

    def _within(self, piece: str) -> Iterator[Match]:
        for word in WORD.finditer(piece):
            tokens = self._bits(word[1])
            if tokens and UNSPACED.search(word[1]):
                yield from self._pairs(word[1], word.start(1))
            elif tokens:
                yield Match(word.start(1), word.end(1), tokens)

    def _pairs(self, word: str, offset: int) -> Iterator[Match]:
        """The runs of a word's single characters, pairs and other parts that are wanted."""
        start = end = tokens = 0
        for low, high in _parts(word):
            met = self._bits(word[low:high])
            if not met:
                continue
            if low > end and tokens:
                yield Match(offset + start, offset + end, tokens)
                tokens = 0
            start = start if tokens else low
            end, tokens = high, tokens | met
        if tokens:
            yield Match(offset + start, offset + end, tokens)

    def _bits(self, text: str) -> int:
        return sum(self.tokens.get(token, 0) for token in _tokens_of(text))


class _Seen:
    """The pieces of text met so far, by their tokens.

    To find those that have a token of a query takes a few set operations, and no look at each.
    Safe to share between threads: a piece is known only once it is held by all its tokens.
    """

    def __init__(self) -> None:
        self._tables: tuple[set[str], dict[str, set[str]]] = (set(), {})
        self._postings = 0

    def holding(self, tokens: Iterable[str], pieces: set[str]) -> set[str]:
        """Those of the pieces that have any of the tokens."""
        if self._postings > _MOST_POSTINGS:
            self._tables, self._postings = (set(), {}), 0
        known, holders = self._tables
        found: set[str] = set()
        for piece in pieces - known:
            of_piece = _analysed(piece)
            if len(piece) > _LONGEST_REMEMBERED:
                found.update(() if of_piece.isdisjoint(tokens) else (piece,))
                continue
            for token in of_piece:
                holders.setdefault(token, set()).add(piece)
            known.add(piece)
            self._postings += len(of_piece) + 1
        return found.union(*(holders[token] & pieces for token in tokens if token in holders))


_SEEN = _Seen()


@lru_cache(maxsize=16)
def query_words(query: str) -> QueryWords:
    """What to look for in the passages of one search."""
    found = (_tokens_of(word[1]) for word in WORD.finditer(query))
    different = tuple(dict.fromkeys(word for word in found if word))
    tokens = dict.fromkeys(token for word in different for token in word)
    bits = {token: 1 << at for at, token in enumerate(tokens)}
    return QueryWords(tuple(sum(bits[token] for token in word) for word in different), bits)


def _parted(text: str) -> str:
    """The text with spaces for the commonest characters that are of no word, so as long."""
    for mark in _APART:
        text = text.replace(mark, " " * len(mark))
    return text


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


_remembered = lru_cache(maxsize=5_000)(_analysed)


def _parts(word: str) -> Iterator[tuple[int, int]]:
    """Overlapping pairs of an unspaced script's characters, and the words between them."""
    at = 0
    for run in UNSPACED.finditer(word):
        yield from (other.span(1) for other in WORD.finditer(word, at, run.start()))
        start, at = run.span()
        yield from ((low, min(low + 2, at)) for low in range(start, max(start + 1, at - 1)))
    yield from (other.span(1) for other in WORD.finditer(word, at))
