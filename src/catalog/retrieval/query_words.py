"""Find a query's words in a text, by the lexical index's tokens, with offsets."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, reduce
from itertools import chain, compress, pairwise
from operator import or_
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from catalog.core.documents import Chunk, find_columns
from catalog.core.query import MOST_TYPED
from catalog.retrieval.fusion import NO_WORDS, OTHER_JOINTS, FoundWords, rarity_of
from catalog.store.chunks import load_chunks
from catalog.store.lexical.analysis import (
    UNSPACED,
    WORD,
    Analyzer,
    Term,
    fold,
    indexed_text,
    raw_words,
    terms_of_words,
    word_terms,
)
from catalog.store.lexical.base import term_weight
from catalog.store.lexical.bm25 import Bm25Engine, Mask, Words
from catalog.store.lexical.languages import LATIN_LANGUAGES, detect_language, stop_words
from catalog.store.restriction import Hit, Restriction

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from catalog.store.lexical.base import LexicalEngine

_END = r"\s;:()"  # what ends a piece of text, which is a word or several with joints
_NAME = re.compile(r"^(?=.*\d)(?=.*[^\W\d_])|_|[a-z][A-Z]|\w\.\w|^[A-Z]{2,}s?$")
MOST_KEYWORDS = 2  # of a query whose relevance depends on its words only
_BEFORE_WORDS, _AFTER_WORDS = "\"'([{", "\"')]}.,;:!?"
_DASHES = str.maketrans(dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212\uff0d", "-"))
_RUNS = re.compile(r"[^\W\d_]+|\d+")  # of letters or digits
_LETTERS = re.compile(r"[^\W_]+")
_MOST_COPIES = 10  # best hits among which parts of a pasted query are looked for
_LONGEST_ENDING = 3  # letters that other forms of a word may have or lack
_ENDING = re.compile(r"(?<=\w\w)(?:ings?|i?e[sd]|[esy])$")
_MOST_PIECES = 1_000  # cached for one query's passages


class Match(NamedTuple):
    """A word ``text[start:end]`` with tokens of the query: bit ``n`` stands for its nth token."""

    start: int
    end: int
    tokens: int


def unite(tokens: Iterable[int]) -> int:
    """Return all tokens of the matches."""
    return reduce(or_, tokens, 0)


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
    share many words.
    """

    words: tuple[Word, ...]
    tokens: dict[str, int]
    language: str = "english"
    together: int = 0
    raws: tuple[str, ...] = ()
    _pieces: dict[str, list[Match]] = field(default_factory=dict, repr=False, compare=False)

    def matches(self, text: str) -> list[Match]:
        """Return the words of a text that have a token of the query, in order, without overlaps.

        In scripts without spaces a word would be half a sentence; only the matching characters are
        returned.
        """
        if not self.tokens:
            return []
        lowered, matches = text.lower(), list[Match]()
        if len(lowered) != len(text):  # as that of a Turkish capital I with a dot
            lowered = "".join(letter.lower()[0] for letter in text)
        for found in _pieces_with(tuple(self.tokens)).finditer(lowered):
            start, piece = found.start(), text[found.start() : found.end()]
            of_piece = self._pieces.get(piece)
            if of_piece is None:
                if len(self._pieces) >= _MOST_PIECES:
                    self._pieces.clear()
                of_piece = self._pieces[piece] = list(self._matches_within(piece))
            for low, high, bits in of_piece:
                matches.append(Match(start + low, start + high, bits))
        if not self.together:
            return matches
        is_kept = [bool(match.tokens & ~self.together) for match in matches]
        for at, (one, other) in enumerate(pairwise(matches)):
            if other.start - one.end <= 1 and one.tokens & self.together & ~other.tokens:
                for place, match in ((at, one), (at + 1, other)):
                    is_kept[place] |= bool(match.tokens & self.together)
        return list(compress(matches, is_kept))

    def rank(self, matches: Iterable[Match]) -> tuple[int, int, int]:
        """Return how well matches cover the query: (distinct words, distinct tokens, count)."""
        bits = [match.tokens for match in matches]
        return *self.rank_of(unite(bits)), len(bits)

    def rank_of(self, tokens: int) -> tuple[int, int]:
        """Return how many distinct words these tokens make up, and how many they are."""
        words = 0
        for word in self.words:  # no function call here, for speed
            for way in word:
                if tokens & way == way:
                    words += 1
                    break
        return words, tokens.bit_count()

    def _matches_within(self, piece: str) -> Iterator[Match]:
        for word in WORD.finditer(piece):
            first, tokens = word.start(1), self._bits(word[1])
            if not tokens or not UNSPACED.search(word[1]):
                yield from [Match(first, word.end(1), tokens)] if tokens else []
                continue
            start = end = tokens = 0
            for low, high in _parts(word[1]):  # runs of characters whose pairs match
                part = word[1][low:high]
                bits = self.tokens.get(fold(part), 0) if UNSPACED.match(part) else self._bits(part)
                if bits and tokens and low > end:
                    yield Match(first + start, first + end, tokens)
                    tokens = 0
                if bits:
                    start, end, tokens = start if tokens else low, high, tokens | bits
            if tokens:
                yield Match(first + start, first + end, tokens)

    def _bits(self, text: str) -> int:
        found = _passage_analyzer(self.language).tokens(text)
        return unite(self.tokens.get(token, 0) for token in found)


def _parts(word: str) -> Iterator[tuple[int, int]]:
    """Return single characters and overlapping pairs of unspaced scripts, and other words."""
    at = 0
    for run in UNSPACED.finditer(word):
        yield from (other.span(1) for other in WORD.finditer(word, at, run.start()))
        start, at = run.span()
        for low in range(start, at):
            yield from ((low, high) for high in (low + 1, low + 2) if high <= at)
    yield from (other.span(1) for other in WORD.finditer(word, at))


@lru_cache(maxsize=256)
def _pieces_with(tokens: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern of lower-case pieces of text that may have one of the tokens.

    Stems and words begin with the same letters, but for accents and joints. Short stems may also
    have another letter: ``age`` of aging, ``sky`` of skies, ``die`` of dying.
    """
    heads = {token[:3] if len(token) > 3 else token[:2] for token in map(str.lower, tokens)}
    spelt = "|".join(sorted({re.sub("[iy]$", "[iy]", re.escape(head)) for head in heads}))
    may_match = rf"{spelt}|[^\x00-\x7f]|[^a-z0-9{_END}]\w"
    return re.compile(rf"(?<![^{_END}])[^{_END}]*?(?:{may_match})[^{_END}]*")


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


def cover_of(chunk: Chunk, query: str, found: FoundWords = NO_WORDS) -> float:
    """Return the share (0 to 1) of the query's distinct words that a passage contains.

    The index's postings know it for the passages of a search. For others it is read from the text,
    title and headings, where a word without a weight weighs as much as the heaviest.
    """
    if (known := found.covers.get(chunk.seq)) is not None:
        return known
    above = (chunk.title, *chunk.heading_path, *find_columns(chunk.context))
    return query_coverage(query, chunk.text, above, found.weights)


def query_coverage(
    query: str,
    text: str,
    headings: Sequence[str],
    weights: Mapping[str, float] = MappingProxyType({}),
) -> float:
    """Return the share of the query's words in a passage and its headings, 0 to 1.

    Any passage covers a query of stop words only.
    """
    language, asked_in = language_of_words(text), language_of_words(query)
    if language != asked_in:  # otherwise the query's stop words would count as missing
        common = stop_words(asked_in)
        query = WORD.sub(lambda word: "" if word[1].casefold() in common else word[0], query)
    words = query_words(query, language)
    if not words.words:
        return 1.0
    tokens = unite(match.tokens for part in (text, *headings) for match in words.matches(part))
    heaviest = max(weights.values(), default=1.0)
    sizes = [weights.get(raw, heaviest) for raw in words.raws]
    has = [has_word(word, tokens) for word in words.words]
    return sum(compress(sizes, has)) / sum(sizes)


def find_words(
    connection: Connection,
    engine: LexicalEngine,
    restriction: Restriction,
    text: str,
    hits: Sequence[Hit],
    seqs: Iterable[int],
) -> FoundWords:
    """Return which words of ``text`` the passages ``seqs`` contain; ``hits`` are the best first."""
    dataset = restriction.dataset
    first = hits[0].seq if hits else None
    is_pasted = len(text.split()) > MOST_TYPED
    if is_pasted:  # , maybe from a document that is indexed itself
        best = [hit.seq for hit in hits[:_MOST_COPIES]]
        near, said = load_chunks(connection, dataset, best, damaged=[]), _runs_of_three(text)
        of_each = {seq: _runs_of_three(near[seq].text) for seq in best if seq in near}
        others = (seq for seq, runs in of_each.items() if len(runs & said) <= len(runs) / 2)
        first = next(others, first)
    if isinstance(engine, Bm25Engine):
        found = _from_postings(engine.at(connection), text, first, seqs)
    else:
        raws = list(dict.fromkeys(raw_words(text)))
        passages, counts = engine.document_counts(raws)
        counted = dict(zip(raws, counts, strict=True))
        rarest, rarity, is_name = _rarest(counted, passages)
        # The best hits for that word come first; hits with a part of a compound word follow.
        rare = engine.search(rarest, counted[rarest], restriction) if rarest else ()
        weights = {raw: term_weight(passages, count) for raw, count in counted.items() if count}
        with_it = frozenset(hit.seq for hit in rare)
        found = FoundWords(1.0, weights, with_it, rarity, is_name, first)
    if first is None or first in found.covers:
        return found
    read = load_chunks(connection, dataset, [first], damaged=[])
    cover = max((cover_of(chunk, text) for chunk in read.values()), default=1.0)
    return replace(found, cover=cover)


def _from_postings(index: Words, text: str, first: int | None, seqs: Iterable[int]) -> FoundWords:
    """Return which words the passages contain without reading a text.

    Postings do not know whether ``rtx`` and ``4090`` stand together, as ``RTX4090`` asks: passages
    for which that decides are not in ``covers``.
    """
    import numpy as np

    rows = np.array(sorted({*filter(None, [first]), *seqs}), dtype=np.int64)
    terms: dict[str, list[Term]] = {}
    for raw, of_word in word_terms(text, index.languages):
        if of_word and of_word not in terms.values():
            terms.setdefault(raw, of_word)
    if not terms:
        return FoundWords(covers=dict.fromkeys(rows.tolist(), 1.0), first=first)
    counted = {raw: index.count(of_word) for raw, of_word in terms.items()}
    weights = {raw: term_weight(len(index), n) for raw, n in counted.items() if n}
    rarest, rarity, is_name = _rarest(counted, len(index))
    heaviest = max(weights.values(), default=1.0)
    sizes = np.array([weights.get(raw, heaviest) for raw in terms])

    def has(term: Term) -> Mask:
        found: Mask = np.logical_or.reduce([index.has(token, rows) for token in term])
        return found

    held, is_unsure = [], np.zeros(len(rows), dtype=np.bool_)
    for raw, (whole, *parts) in terms.items():
        unite_parts = np.logical_or if UNSPACED.search(raw) else np.logical_and
        is_held = has(tuple(token for token in whole if " " not in token))
        if parts:
            is_held = is_held | unite_parts.reduce([has(part) for part in parts])
        for token in whole:
            if " " in token:
                is_unsure |= index.has(token, rows) & ~is_held
        held.append(is_held)
    mask, is_sure = np.array(held), ~is_unsure
    covers = np.where(mask.all(axis=0), 1.0, sizes @ mask / sizes.sum())
    rare = next((one for one in terms.get(rarest, ()) if index.count([one])), None)
    return FoundWords(
        cover=1.0 if first is None else float(mask[:, np.searchsorted(rows, first)].mean()),
        weights=weights,
        rare=frozenset() if rare is None else frozenset(rows[has(rare)].tolist()),
        rarity=rarity,
        is_name=is_name,
        first=first,
        covers=dict(zip(rows[is_sure].tolist(), covers[is_sure].tolist(), strict=True)),
    )


def _rarest(counted: Mapping[str, int], passages: int) -> tuple[str, float, bool]:
    """Return the rarest word, names first, how rare it is, and whether it looks like a name."""
    ranked = [
        (looks_like_name(raw), rarity, count, raw)
        for raw, count in counted.items()
        if (rarity := rarity_of(passages, count)) > 0
    ]
    is_name, rarity, _, raw = max(ranked, default=(False, 0.0, 0, ""))
    return raw, rarity, is_name


def _runs_of_three(text: str) -> set[tuple[str, ...]]:
    words = _LETTERS.findall(text.casefold())
    return set(zip(words, words[1:], words[2:], strict=False))


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
    text = indexed_text(chunk.title, [*chunk.heading_path, *chunk.context], chunk.text)
    written = set(re.findall(r"\w+", fold(text)))

    def is_form(word: str, other: str) -> bool:
        short, long = sorted((word, other), key=len)
        is_longer = long.startswith(short) and len(long) - len(short) <= _LONGEST_ENDING
        return is_longer or _ENDING.sub("", word) == _ENDING.sub("", other)

    return all(any(is_form(word, one) for one in written) for word in map(fold, words))


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
