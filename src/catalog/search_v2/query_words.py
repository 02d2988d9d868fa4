"""Finding a query's words in a text by the tokens the lexical index counts, with offsets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from types import MappingProxyType
from typing import NamedTuple

from catalog.core.documents import Chunk
from catalog.store.lexical.analysis import UNSPACED, WORD, Analyzer, fold
from catalog.store.lexical.languages import LATIN_LANGUAGES, detect_language, stop_words
from catalog.store.lexical.snapshot import indexed_text

_SEPARATORS = (",", ";", ":", "(", ")", ". ", "\n")  # the commonest characters of no word
_NAME = re.compile(r"(?=.*\d)(?=.*[^\W\d_])|_|[a-z][A-Z]|\w\.\w|^[A-Z]{2,}s?$")
_MOST_KEYWORDS = 2
_WHITE = re.compile(r"\s")
_LONGEST_CACHED = 64
_CACHED_WORDS = 5_000
_MOST_POSTINGS = 200_000  # of indexed pieces: some tens of megabytes
_MOST_PIECES = 1_000  # cached of one query's passages


class Match(NamedTuple):
    """``text[start:end]`` is a word that has tokens of the query: bit ``n`` for its nth."""

    start: int
    end: int
    tokens: int


_new_match = tuple.__new__


def unite(tokens: Iterable[int]) -> int:
    """Return the tokens that any of the matches has."""
    bits = 0
    for some in set(tokens):  # many matches, few different ones
        bits |= some
    return bits


@dataclass(frozen=True, slots=True)
class QueryWords:
    """The different words of a query, each as the bits of its tokens; stop words have none.

    ``tokens`` gives each token its bit; they are of ``language``, as the texts have to be. Where
    they stand in a piece of text is cached, for passages that answer one query share many of
    their words; and how many words and tokens a set of tokens covers.
    """

    words: tuple[int, ...]
    tokens: dict[str, int]
    language: str = "english"
    _pieces: dict[str, tuple[Match, ...]] = field(default_factory=dict, repr=False, compare=False)
    _covered: dict[int, tuple[int, int]] = field(default_factory=dict, repr=False, compare=False)

    def matches(self, text: str) -> list[Match]:
        """Return the words of a text that have a token of the query, in order, none overlapping.

        Of a script without spaces between words, where a word would be half a sentence, only the
        characters that match.
        """
        if not self.tokens:
            return []
        spaced = f" {_space_out(text)} "
        pieces = spaced.split()
        matching = _piece_index(self.language).with_any(self.tokens, set(pieces))
        within = {piece: (f" {piece} ", self._matches_of(piece)) for piece in matching}
        matches: list[Match] = []
        at = 0
        for spaced_piece, of_piece in [within[piece] for piece in pieces if piece in within]:
            at = spaced.find(spaced_piece, at)  # where it begins in the text itself
            for low, high, bits in of_piece:  # past the class's own function: there are many
                matches.append(_new_match(Match, (at + low, at + high, bits)))
            at += len(spaced_piece) - 1
        return matches

    def rank(self, matches: Iterable[Match]) -> tuple[int, int, int]:
        """Return how well matches cover the query: different words, different tokens, count."""
        tokens = [match.tokens for match in matches]
        return self.rank_of(unite(tokens), len(tokens))

    def rank_of(self, tokens: int, count: int) -> tuple[int, int, int]:
        """Return the rank of so many matches that have these tokens between them."""
        covered = self._covered.get(tokens)
        if covered is None:
            if len(self._covered) >= _MOST_PIECES:
                self._covered.clear()
            words = len([1 for word in self.words if word & tokens])
            covered = self._covered[tokens] = (words, tokens.bit_count())
        return *covered, count

    def _matches_of(self, piece: str) -> tuple[Match, ...]:
        matches = self._pieces.get(piece)
        if matches is None:
            if len(self._pieces) >= _MOST_PIECES:
                self._pieces.clear()
            matches = self._pieces[piece] = tuple(self._matches_within(piece))
        return matches

    def _matches_within(self, piece: str) -> Iterator[Match]:
        for word in WORD.finditer(piece):
            tokens = self.bits_of(word[1])
            if tokens and UNSPACED.search(word[1]):
                yield from self._unspaced_runs(word[1], word.start(1))
            elif tokens:
                yield Match(word.start(1), word.end(1), tokens)

    def _unspaced_runs(self, word: str, offset: int) -> Iterator[Match]:
        """Return the runs of a word's single characters, pairs and other parts that match."""
        start = end = tokens = 0
        for low, high in _parts(word):
            part = word[low:high]
            is_token = UNSPACED.match(part)
            bits = self.tokens.get(fold(part), 0) if is_token else self.bits_of(part)
            if not bits:
                continue
            if low > end and tokens:
                yield Match(offset + start, offset + end, tokens)
                tokens = 0
            start = start if tokens else low
            end, tokens = high, tokens | bits
        if tokens:
            yield Match(offset + start, offset + end, tokens)

    def bits_of(self, text: str) -> int:
        """Return the bits of the tokens of a word."""
        return sum(self.tokens.get(token, 0) for token in _tokens_of(text, self.language))


class _PieceIndex:
    """Pieces of text met so far, by their tokens; twice as fast as a look at each.

    Safe to share between threads: a piece is known only once it is held by all its tokens.
    """

    def __init__(self, language: str) -> None:
        self._language = language
        self._tables: tuple[set[str], dict[str, set[str]]] = (set(), {})
        self._postings = 0

    def with_any(self, tokens: Iterable[str], pieces: set[str]) -> set[str]:
        """Return those of the pieces that have any of the tokens."""
        if self._postings > _MOST_POSTINGS:
            self._tables, self._postings = (set(), {}), 0
        known, by_token = self._tables
        matching: set[str] = set()
        for piece in pieces - known:
            of_piece = frozenset(_analyzer(self._language, singles=True).tokens(piece))
            if len(piece) > _LONGEST_CACHED:
                if not of_piece.isdisjoint(tokens):
                    matching.add(piece)
                continue
            for token in of_piece:
                by_token.setdefault(token, set()).add(piece)
            known.add(piece)
            self._postings += len(of_piece) + 1
        return matching.union(*(by_token[token] & pieces for token in tokens if token in by_token))


@cache
def _piece_index(language: str) -> _PieceIndex:
    return _PieceIndex(language)


@cache
def _analyzer(language: str, *, singles: bool = False) -> Analyzer:
    return Analyzer(language, singles=singles)


def language_of_words(text: str) -> str:
    """Return the language by whose rules the words of a passage in Latin letters are compared."""
    language = detect_language(text, text.split())
    return language if language in LATIN_LANGUAGES else "english"


@lru_cache(maxsize=64)
def query_words(query: str, language: str = "english") -> QueryWords:
    """Return what to look for in the passages of one search that are in that language."""
    analysed = (_tokens_of(word[1], language) for word in WORD.finditer(query))
    words = tuple(dict.fromkeys(tokens for tokens in analysed if tokens))
    tokens = dict.fromkeys(token for word in words for token in word)
    bits = {token: 1 << at for at, token in enumerate(tokens)}
    masks = tuple(sum(bits[token] for token in word) for word in words)
    return QueryWords(masks, bits, language)


def cover_of(
    chunk: Chunk, query: str, weights: Mapping[str, float] = MappingProxyType({})
) -> float:
    """Return the share (0 to 1) of the query's different words that a passage contains.

    Title and headings count. ``weights`` gives raw words their idf; a word that it lacks weighs as
    much as the heaviest one. A part of a compound word, or of a word in a script without spaces,
    stands for the whole. A query of stop words alone is covered by any passage.
    """
    text = indexed_text(chunk.title, list(chunk.heading_path), chunk.text)
    language, asked_in = language_of_words(text), language_of_words(query)
    if language != asked_in:  # or the passage would lack the stop words of the query's language
        common = stop_words(asked_in)
        query = WORD.sub(lambda word: "" if word[1].casefold() in common else word[0], query)
    words = query_words(query, language)
    if not words.words:
        return 1.0
    tokens = unite(match.tokens for match in words.matches(text))
    heaviest = max(weights.values(), default=1.0)
    found = {word[1]: words.bits_of(word[1]) for word in WORD.finditer(query)}
    sizes = {word: weights.get(word, heaviest) for word, bits in found.items() if bits}
    return sum(size for word, size in sizes.items() if found[word] & tokens) / sum(sizes.values())


def looks_like_name(word: str) -> bool:
    """Tell whether a word looks like an identifier: ``maxRetries``, ``rerere.enabled``, ``XK-320``.

    It has a digit beside letters, an underscore, a dot or a capital within, or capitals alone.
    """
    return _NAME.search(word) is not None


def keywords_of(query: str) -> tuple[str, ...]:
    """Return the words of a query that has one or two and no stop word among them, else nothing.

    A stop word in capitals, such as ``IT``, is a word.
    """
    words = tuple(dict.fromkeys(word[1] for word in WORD.finditer(query)))
    if not 0 < len(words) <= _MOST_KEYWORDS:
        return ()
    common = stop_words(language_of_words(query))
    has_common = any(word.casefold() in common and not word.isupper() for word in words)
    return () if has_common else words


def has_as_written(chunk: Chunk, words: Iterable[str]) -> bool:
    """Tell whether a passage, title and headings included, contains words as they are written.

    Case counts for stop words in capitals alone: ``IT`` is not ``it``.
    """
    text = indexed_text(chunk.title, list(chunk.heading_path), chunk.text)
    folded = text.casefold()
    return all(
        _has_word(text, word)
        if word.isupper() and word.casefold() in stop_words("english")
        else _has_word(folded, word.casefold())
        for word in words
    )


def _has_word(text: str, word: str) -> bool:
    if UNSPACED.search(word):
        return word in text
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None


def _space_out(text: str) -> str:
    """Return the text, as long as it is, with spaces for white space and common separators."""
    for separator in _SEPARATORS:
        text = text.replace(separator, " " * len(separator))
    return text if text.isprintable() else _WHITE.sub(" ", text)


def _tokens_of(text: str, language: str) -> frozenset[str]:
    is_short = len(text) <= _LONGEST_CACHED
    return _cached_tokens(text, language) if is_short else _analyse(text, language)


def _analyse(text: str, language: str) -> frozenset[str]:
    return frozenset(_analyzer(language).tokens(text))


_cached_tokens = lru_cache(maxsize=_CACHED_WORDS)(_analyse)


def _parts(word: str) -> Iterator[tuple[int, int]]:
    """Return an unspaced script's characters and overlapping pairs, and the words between them."""
    at = 0
    for run in UNSPACED.finditer(word):
        yield from (other.span(1) for other in WORD.finditer(word, at, run.start()))
        start, at = run.span()
        for low in range(start, at):
            yield from ((low, high) for high in (low + 1, low + 2) if high <= at)
    yield from (other.span(1) for other in WORD.finditer(word, at))
