"""Find a query's words in a text, by the lexical index's tokens, with offsets."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import chain, compress, pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from catalog.core.documents import Chunk, find_columns
from catalog.retrieval.adaptive import OTHER_JOINTS, rarity_of
from catalog.retrieval.fusion import FoundWords
from catalog.store.chunks import load_chunks
from catalog.store.engine_types import Hit, Restriction, read_chunk_ids
from catalog.store.lexical.analysis import (
    UNSPACED,
    WORD,
    Analyzer,
    Term,
    fold,
    indexed_text,
    raw_words,
    terms_of_words,
)
from catalog.store.lexical.base import term_weight
from catalog.store.lexical.languages import LATIN_LANGUAGES, detect_language, stop_words

if TYPE_CHECKING:
    from catalog.store import Database
    from catalog.store.lexical.base import LexicalEngine

_SEPARATORS = (", ", ";", ":", "(", ")", ". ", "\n")  # the most frequent characters between words
_NAME = re.compile(r"^(?=.*\d)(?=.*[^\W\d_])|_|[a-z][A-Z]|\w\.\w|^[A-Z]{2,}s?$")
MOST_KEYWORDS = 2  # of a query whose relevance depends on its words only
_BEFORE_WORDS, _AFTER_WORDS = "\"'([{", "\"')]}.,;:!?"
_DASHES = str.maketrans(dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212\uff0d", "-"))
_RUNS = re.compile(r"[^\W\d_]+|\d+")  # of letters or digits
_WHITE = re.compile(r"\s")
_LONGEST_ENDING = 3  # letters that other forms of a word may drop
_ACCENTS = re.compile("[\u0300-\u036f]+")
_ENDINGS = {
    "e": "ing|ings",
    "ing": "e|es|ed",
    "ings": "e|es",
    "y": "ies|ied",
    "ies": "y",
    "ied": "y",
    "s": "es",
}
_LONGEST_CACHED = 64
_CACHED_WORDS = 5_000
_MOST_POSTINGS = 200_000  # of indexed pieces: some tens of megabytes
_MOST_TEXTS = 64  # with cached matches: relevance and snippets both ask for them
_MOST_PIECES = 1_000  # cached for one query's passages


class Match(NamedTuple):
    """A word ``text[start:end]`` with tokens of the query: bit ``n`` stands for its nth token."""

    start: int
    end: int
    tokens: int


_new_match = tuple.__new__


def unite(tokens: Iterable[int]) -> int:
    """Return all tokens of the matches."""
    bits = 0
    for some in set(tokens):  # many matches, few distinct ones
        bits |= some
    return bits


Word = tuple[int, ...]
"""The ways to write a word of a query, each as the bits of the tokens it takes."""


def has_word(word: Word, tokens: int) -> bool:
    """Return whether these tokens of the query make up the word."""
    return any(tokens & way == way for way in word)


@dataclass(frozen=True, slots=True)
class QueryWords:
    """The distinct words of a query, each as the bits of its tokens; stop words have none.

    ``raws`` are the same words as in the query. ``tokens`` maps each token of ``language`` to its
    bit; texts must be in the same language. Tokens in ``together`` match only next to each other:
    10 and kg for ``10kg``. Matches in pieces of text are cached, because passages for one query
    share many words. So is the number of words and tokens in a set of tokens.
    """

    words: tuple[Word, ...]
    tokens: dict[str, int]
    language: str = "english"
    together: int = 0
    raws: tuple[str, ...] = ()
    _pieces: dict[str, tuple[Match, ...]] = field(default_factory=dict, repr=False, compare=False)
    _covered: dict[int, tuple[int, int]] = field(default_factory=dict, repr=False, compare=False)
    _found: dict[str, list[Match]] = field(default_factory=dict, repr=False, compare=False)

    def matches(self, text: str) -> list[Match]:
        """Return the words of a text that have a token of the query, in order, without overlaps.

        In scripts without spaces a word would be half a sentence; only the matching characters are
        returned.
        """
        if not self.tokens:
            return []
        found = self._found.get(text)
        if found is None:
            if len(self._found) >= _MOST_TEXTS:
                self._found.clear()
            found = self._found[text] = self._matches_in(text)
        return found

    def _matches_in(self, text: str) -> list[Match]:
        spaced = f" {_space_out(text)} "
        pieces = spaced.split()
        matching = _piece_index(self.language).with_any(self.tokens, set(pieces))
        within = {piece: (f" {piece} ", self._matches_of(piece)) for piece in matching}
        matches: list[Match] = []
        at = 0
        for spaced_piece, of_piece in [within[piece] for piece in pieces if piece in within]:
            at = spaced.find(spaced_piece, at)  # where it begins in the text itself
            for low, high, bits in of_piece:  # no function call here, for speed
                matches.append(_new_match(Match, (at + low, at + high, bits)))
            at += len(spaced_piece) - 1
        return self._drop_lonely(matches) if self.together else matches

    def _drop_lonely(self, matches: Sequence[Match]) -> list[Match]:
        """Drop matches of tokens that match only next to each other but are alone."""
        is_kept = [bool(match.tokens & ~self.together) for match in matches]
        for at, (one, other) in enumerate(pairwise(matches)):
            if other.start - one.end <= 1 and one.tokens & self.together & ~other.tokens:
                for place, match in ((at, one), (at + 1, other)):
                    is_kept[place] |= bool(match.tokens & self.together)
        return list(compress(matches, is_kept))

    def rank(self, matches: Iterable[Match]) -> tuple[int, int, int]:
        """Return how well matches cover the query: (distinct words, distinct tokens, count)."""
        tokens = [match.tokens for match in matches]
        return self.rank_of(unite(tokens), len(tokens))

    def rank_of(self, tokens: int, count: int) -> tuple[int, int, int]:
        """Return the rank of ``count`` matches that together have these tokens."""
        covered = self._covered.get(tokens)
        if covered is None:
            if len(self._covered) >= _MOST_PIECES:
                self._covered.clear()
            words = sum(has_word(word, tokens) for word in self.words)
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
            tokens = self._bits(word[1])
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
            bits = self.tokens.get(fold(part), 0) if is_token else self._bits(part)
            if not bits:
                continue
            if low > end and tokens:
                yield Match(offset + start, offset + end, tokens)
                tokens = 0
            start = start if tokens else low
            end, tokens = high, tokens | bits
        if tokens:
            yield Match(offset + start, offset + end, tokens)

    def _bits(self, text: str) -> int:
        return sum(self.tokens.get(token, 0) for token in _tokens_of(text, self.language))


class _PieceIndex:
    """The known pieces of text by their tokens; twice as fast as testing each piece.

    Safe to share between threads, because a piece becomes known last, after all its tokens.
    """

    def __init__(self, language: str) -> None:
        self._language = language
        self._tables: tuple[set[str], dict[str, set[str]]] = (set(), {})
        self._postings = 0

    def with_any(self, tokens: Iterable[str], pieces: set[str]) -> set[str]:
        """Return the pieces that have any of the tokens."""
        if self._postings > _MOST_POSTINGS:
            self._tables, self._postings = (set(), {}), 0
        known, by_token = self._tables
        matching: set[str] = set()
        for piece in pieces - known:
            of_piece = frozenset(_passage_analyzer(self._language).tokens(piece))
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
def _passage_analyzer(language: str) -> Analyzer:
    return Analyzer(language, is_passage=True)


@lru_cache(maxsize=256)
def language_of_words(text: str) -> str:
    """Return the language whose rules apply to the words of a passage in Latin letters."""
    language = detect_language(text, text.split())
    return language if language in LATIN_LANGUAGES else "english"


@lru_cache(maxsize=64)
def query_words(query: str, language: str = "english") -> QueryWords:
    """Return the words to find in passages of a search that are in that language."""
    raws = [word[1] for word in WORD.finditer(query)]
    words: dict[Term, list[Term]] = {}
    names: dict[Term, str] = {}
    for raw, terms in zip(raws, terms_of_words(raws, [Analyzer(language)]), strict=True):
        parts = [term[0] for term in terms]
        ways = [(token,) for token in parts] if UNSPACED.search(raw) else [tuple(parts[1:])]
        ways += [tuple(way.split(" ")) for term in terms[:1] for way in term]
        words.setdefault(tuple(parts), []).extend(filter(None, ways))
        names.setdefault(tuple(parts), raw)
    words.pop((), None)
    every = [way for ways in words.values() for way in ways]
    bits = {token: 1 << at for at, token in enumerate(dict.fromkeys(chain.from_iterable(every)))}
    alone = {way[0] for way in every if len(way) == 1}
    alone |= {token for parts in words for token in parts}
    masks = tuple(
        tuple(dict.fromkeys(sum(bits[token] for token in set(way)) for way in ways))
        for ways in words.values()
    )
    together = sum(bit for token, bit in bits.items() if token not in alone)
    return QueryWords(masks, bits, language, together, tuple(names[word] for word in words))


def cover_of(
    chunk: Chunk, query: str, weights: Mapping[str, float] = MappingProxyType({})
) -> float:
    """Return the share (0 to 1) of the query's distinct words that a passage contains.

    Title and headings count. ``weights`` has the idf of raw words; a word without one weighs as
    much as the heaviest. Any passage covers a query of stop words only.
    """
    language, asked_in = language_of_words(chunk.text), language_of_words(query)
    if language != asked_in:  # otherwise the query's stop words would count as missing
        common = stop_words(asked_in)
        query = WORD.sub(lambda word: "" if word[1].casefold() in common else word[0], query)
    words = query_words(query, language)
    if not words.words:
        return 1.0
    above = "\n".join((chunk.title, *chunk.heading_path, *find_columns(chunk.context)))
    tokens = unite(m.tokens for text in (chunk.text, above) for m in words.matches(text))
    heaviest = max(weights.values(), default=1.0)
    sizes = [weights.get(raw, heaviest) for raw in words.raws]
    has = [has_word(word, tokens) for word in words.words]
    return sum(compress(sizes, has)) / sum(sizes)


def query_coverage(query: str, text: str, headings: Sequence[str]) -> float:
    """Return the share of the query's words in a passage and its headings, 0 to 1; 1 if none."""
    words = query_words(query, language_of_words(text))
    bits = 0
    for part in (text, *headings):
        for match in words.matches(part):
            bits |= match.tokens
    if not words.words:
        return 1.0
    return sum(has_word(word, bits) for word in words.words) / len(words.words)


def find_words(
    database: Database,
    engine: LexicalEngine,
    restriction: Restriction,
    text: str,
    hits: Sequence[Hit],
) -> FoundWords:
    """Return the words of ``text`` that its keyword hits contain, best hit first."""
    words = list(dict.fromkeys(raw_words(text)))
    passages, counts = engine.document_counts(words)
    held = [(word, count) for word, count in zip(words, counts, strict=True) if count > 0]
    ranked = [
        (looks_like_name(word), rarity, count, word)
        for word, count in held
        if (rarity := rarity_of(passages, count)) > 0
    ]
    is_name, rarity, count, word = max(ranked, default=(False, 0.0, 0, ""))
    # The best hits for that word come first; hits with a part of a compound word follow.
    rare = [hit.seq for hit in engine.search(word, count, restriction)] if word else []
    with database.read() as connection:
        first = load_chunks(connection, restriction.dataset, [h.seq for h in hits[:1]], damaged=[])
        names = read_chunk_ids(connection, restriction.dataset, rare) if rare else {}
    return FoundWords(
        cover=max((cover_of(chunk, text) for chunk in first.values()), default=1.0),
        weights={word: term_weight(passages, count) for word, count in held},
        rare=frozenset(names.values()),
        rarity=rarity,
        is_name=is_name,
    )


def looks_like_name(word: str) -> bool:
    """Return whether a word looks like a name: ``maxRetries``, ``rerere.enabled``, ``XK-320``.

    Such a word has letters and a digit, an underscore, a dot or a capital inside, or capitals only.
    """
    return _NAME.search(word) is not None


def keywords_of(query: str, most: int = MOST_KEYWORDS) -> tuple[str, ...]:
    """Return the words of a query of at most ``most`` words without stop words, else ``()``.

    Words keep their form and the signs around them: ``-O2``, ``--force``, ``°C``. A stop word in
    capitals, such as ``IT``, counts as a word.

    >>> keywords_of('gcc -O2')
    ('gcc', '-O2')
    """
    words = tuple(dict.fromkeys(word[1] for word in WORD.finditer(query)))
    if not 0 < len(words) <= most:
        return ()
    common = stop_words(language_of_words(query))
    if any(word.casefold() in common and not word.isupper() for word in words):
        return ()
    written: dict[str, None] = {}
    for piece in query.split():
        of_piece = WORD.findall(piece)
        whole = piece.lstrip(_BEFORE_WORDS).rstrip(_AFTER_WORDS)
        written |= dict.fromkeys([whole] if len(of_piece) == 1 else of_piece)
    return tuple(written)


def how_written(chunk: Chunk, words: Iterable[str]) -> float:
    """Return 1.0 if a passage contains words exactly as written, less if nearly, 0.0 if not.

    Title, headings and searched metadata count. A phrase may continue on the next line. Case counts
    only for stop words in capitals: ``IT`` is not ``it``. The value is :data:`OTHER_JOINTS` for
    names with other joints: ``XK320`` and ``XK-320``, ``maxRetries`` and ``max_retries``, ``10 kg``
    and ``10kg``.
    """
    text = indexed_text(chunk.title, [*chunk.heading_path, *chunk.context], chunk.text)
    text = unicodedata.normalize("NFC", text).translate(_DASHES)  # as queries are
    folded, common = text.casefold(), stop_words("english")
    words = tuple(word.translate(_DASHES) for word in words)

    def has(word: str, *, joined: bool) -> bool:
        is_name = word.isupper() and word.casefold() in common
        word = word if is_name else word.casefold()
        if UNSPACED.search(word):
            return word in folded
        return _written(word, joined=joined).search(text if is_name else folded) is not None

    if all(has(word, joined=False) for word in words):
        return 1.0
    is_joined = all(has(word, joined=True) for word in words) or has(" ".join(words), joined=True)
    return OTHER_JOINTS if is_joined else 0.0


def has_other_forms(chunk: Chunk, words: Iterable[str]) -> bool:
    """Return whether a passage contains other forms of words, such as ``boats`` or ``baking``.

    A form has up to three letters more or fewer; a final ``e`` or ``y`` may change. Accents do not
    count. Title, headings and searched metadata do. The caller has to make sure that the stems are
    the same.
    """
    text = _without_accents(
        indexed_text(chunk.title, [*chunk.heading_path, *chunk.context], chunk.text)
    )
    return all(_form_of(_without_accents(word)).search(text) is not None for word in words)


def _without_accents(text: str) -> str:
    return _ACCENTS.sub("", unicodedata.normalize("NFD", text)).casefold()


@lru_cache(maxsize=256)
def _form_of(word: str) -> re.Pattern[str]:
    forms = [rf"{re.escape(word)}\w{{0,{_LONGEST_ENDING}}}"]
    forms += [re.escape(word[:-cut]) for cut in range(1, _LONGEST_ENDING + 1) if word[:-cut]]
    for ending, others in _ENDINGS.items():
        if word.endswith(ending) and len(word) > len(ending) + 1:
            forms.append(f"{re.escape(word.removesuffix(ending))}(?:{others})")
    return re.compile(rf"(?<!\w)(?:{'|'.join(forms)})(?!\w)")


def find_phrase(text: str, phrase: str) -> tuple[int, int] | None:
    """Return the place of a phrase in a text: as written, or with other endings of its words."""
    whole = _written(phrase.translate(_DASHES), joined=False).pattern
    if found := re.search(whole, text.translate(_DASHES), re.IGNORECASE):
        return found.span()
    stems = (word[1][: max(3, len(word[1]) - _LONGEST_ENDING)] for word in WORD.finditer(phrase))
    loose = r"\W+".join(rf"{re.escape(stem)}\w{{0,9}}" for stem in stems)
    found = re.search(rf"(?<!\w){loose}(?!\w)", text, re.IGNORECASE) if loose else None
    return None if found is None else found.span()


@lru_cache(maxsize=256)
def _written(word: str, *, joined: bool) -> re.Pattern[str]:
    """Return a pattern for a word or phrase as written; in the text all dashes must be ``-``."""
    if joined and word[0].isalnum() and word[-1].isalnum() and (parts := _RUNS.findall(word)):
        body = "[-_. ]?".join("[-_.,]?".join(map(re.escape, part)) for part in parts)
    else:
        body = r"\s+".join(map(re.escape, word.split()))
    first = r"(?<!\w)" if word[0].isalnum() else f"(?<!{re.escape(word[0])})"
    last = r"(?!\w)" if word[-1].isalnum() else f"(?!{re.escape(word[-1])})"
    return re.compile(f"{first}{body}{last}")


def _space_out(text: str) -> str:
    """Replace white space and common separators by spaces; the length stays the same."""
    for separator in _SEPARATORS:
        text = text.replace(separator, " " * len(separator))
    return text if text.isprintable() else _WHITE.sub(" ", text)


def _tokens_of(text: str, language: str) -> frozenset[str]:
    is_short = len(text) <= _LONGEST_CACHED
    return _cached_tokens(text, language) if is_short else _analyse(text, language)


def _analyse(text: str, language: str) -> frozenset[str]:
    return frozenset(_passage_analyzer(language).tokens(text))


_cached_tokens = lru_cache(maxsize=_CACHED_WORDS)(_analyse)


def _parts(word: str) -> Iterator[tuple[int, int]]:
    """Return single characters and overlapping pairs of unspaced scripts, and other words."""
    at = 0
    for run in UNSPACED.finditer(word):
        yield from (other.span(1) for other in WORD.finditer(word, at, run.start()))
        start, at = run.span()
        for low in range(start, at):
            yield from ((low, high) for high in (low + 1, low + 2) if high <= at)
    yield from (other.span(1) for other in WORD.finditer(word, at))
