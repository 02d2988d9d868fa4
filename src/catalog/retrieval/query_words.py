"""Find a query's words in a text, by the lexical index's tokens, with offsets; and its synonyms.

A user's own synonyms are in ``synonyms.txt`` in the home: ``PTO = paid time off`` on a line.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, reduce
from itertools import chain, compress, pairwise
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from catalog.core.documents import Chunk, find_columns
from catalog.core.errors import ConfigError
from catalog.core.query import MOST_TYPED
from catalog.retrieval.fusion import NO_WORDS, OTHER_JOINTS, FoundWords, rarity_of
from catalog.store.chunks import load_chunks
from catalog.store.engines import term_weight
from catalog.store.lexical.analysis import (
    UNSPACED,
    WORD,
    Analyzer,
    Term,
    analyzers_of,
    fold,
    indexed_text,
    raw_words,
    terms_of_words,
    word_terms,
)
from catalog.store.lexical.bm25 import Bm25Engine, Words
from catalog.store.lexical.languages import LATIN_LANGUAGES, detect_language, stop_words
from catalog.store.restriction import Hit, Restriction

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from catalog.store.engines import LexicalEngine

_SCRIPTS = re.compile(f"({UNSPACED.pattern})|{UNSPACED.pattern.replace('[', '[^', 1)}")
_GAPS = str.maketrans(dict.fromkeys("\t\n\v\f\r\x1c\x1d\x1e\x1f;:()", " "))  # between pieces
_JOINTS = "-.,_'"  # within a word
_JOINT = re.compile(r"(?<![-.,_'])[-.,_']++\w{1,4}")  # and letters of the next part
_UNJOINED = str.maketrans(dict.fromkeys(_JOINTS))
_PIECES, _SHORT = 20_000, 64  # pieces whose tokens are cached, and the longest of these
_NAME = re.compile(r"^(?=.*\d)(?=.*[^\W\d_])|_|[a-z][A-Z]|\w\.\w|^[A-Z]{2,}s?$")
MOST_KEYWORDS = 2  # of a query whose relevance depends on its words only
_BEFORE_WORDS, _AFTER_WORDS = "\"'([{", "\"')]}.,;:!?"
_DASHES = str.maketrans(dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212\uff0d", "-"))
SYNONYMS = "synonyms.txt"
# Other wordings of a query; words of a phrase; words and phrases on a line.
_MOST_REWORDED, _LONGEST_FORM, _MOST_FORMS = 10, 8, 50
_SIGNS = ".,;:?!()\"'"
_RUNS = re.compile(r"[^\W\d_]+|\d+")  # of letters or digits
_LETTERS = re.compile(r"[^\W_]+")
_MOST_COPIES = 10  # best hits among which parts of a pasted query are looked for
_SHARED = 0.1  # of a passage's runs of three words: with more it is a part of the pasted text
_LONGEST_ENDING = 3  # letters that other forms of a word may have or lack
_ENDING = re.compile(r"(?<=\w\w)(?:ings?|i?e[sd]|[esy])$")


class Match(NamedTuple):
    """A word ``text[start:end]`` with tokens of the query: bit ``n`` stands for its nth token."""

    start: int
    end: int
    tokens: int


Part = tuple[int, int, Sequence[str]]
"""A word ``piece[start:end]`` of a piece of text, and its tokens."""


def unite(tokens: Iterable[int]) -> int:
    """Return all tokens of the matches."""
    return reduce(or_, tokens, 0)


Word = tuple[int, ...]
"""The ways to write a word of a query, each as the bits of the tokens it takes."""


def has_word(word: Word, tokens: int) -> bool:
    """Return whether these tokens of the query make up the word."""
    return any(tokens & way == way for way in word)


@dataclass(frozen=True, slots=True, eq=False)
class QueryWords:
    """The distinct words of a query, each as the bits of its tokens; stop words have none.

    ``raws`` are the same words as in the query. ``tokens`` maps each token of ``language`` to its
    bit; texts must be in the same language. Tokens in ``together`` match only next to each other:
    10 and kg for ``10kg``.
    """

    words: tuple[Word, ...]
    tokens: dict[str, int]
    language: str = "english"
    together: int = 0
    raws: tuple[str, ...] = ()

    def matches(self, text: str) -> list[Match]:
        """Return the words of a text that have a token of the query, in order, without overlaps.

        In scripts without spaces a word would be half a sentence; only the matching characters are
        returned.
        """
        matches, together, bit_of = list[Match](), self.together, self.tokens
        parts_of, heads, ends = _analysis(self.language), _heads(tuple(bit_of)), dict[int, int]()
        # every character stays at its place; "?" stands for those beyond ASCII
        plain = text.encode("ascii", "replace").decode().translate(_GAPS).lower()
        plain = plain.replace(", ", "  ").replace(". ", "  ") + " "
        near = " ".join([plain[max(0, it.start() - 4) : it.end()] for it in _JOINT.finditer(plain)])
        bare = near.translate(_UNJOINED)
        if any(bare.count(head) > near.count(head) for head in heads):  # foobar for foo.bar
            heads = (*heads, *_JOINTS)
        for head in heads:
            at = plain.find(head)
            while at >= 0:
                end = at + 1
                if not (plain[at - 1].isalpha() and plain[at].isalpha() and text[at].islower()):
                    ends[plain.rfind(" ", 0, at) + 1] = end = plain.find(" ", at)
                at = plain.find(head, end)
        for at, end in sorted(ends.items()):
            for low, high, tokens in parts_of(text[at:end]):
                start, bits = at + low, 0
                for token in tokens:
                    bits |= bit_of.get(token, 0)
                if matches and bits and start <= matches[-1].end:
                    start, _, before = matches.pop()
                    bits |= before
                if bits:
                    matches.append(Match(start, at + high, bits))
        if not together:
            return matches
        joined = {
            match
            for one, other in pairwise(matches)
            if other.start - one.end <= 1 and one.tokens & together & ~other.tokens
            for match in (one, other)
            if match.tokens & together
        }
        return [match for match in matches if match.tokens & ~together or match in joined]

    def rank(self, matches: Iterable[Match]) -> tuple[int, int, int]:
        """Return how well matches cover the query: (distinct words, distinct tokens, count)."""
        bits = [match.tokens for match in matches]
        return *self.rank_of(unite(bits)), len(bits)

    def rank_of(self, tokens: int) -> tuple[int, int]:
        """Return how many distinct words these tokens make up, and how many they are."""
        count = 0
        for word in self.words if tokens else ():  # without calls: it ranks every sentence
            for way in word:
                if tokens & way == way:
                    count += 1
                    break
        return count, tokens.bit_count()


@cache
def _analysis(language: str) -> Callable[[str], tuple[Part, ...]]:
    """Return a function that finds the parts of a piece of text with their tokens."""
    tokens_of = analyzers_of([language], is_passage=True)[0].tokens

    def analyse(piece: str) -> tuple[Part, ...]:
        parts = list[Part]()
        for run in _SCRIPTS.finditer(piece):
            first, end = run.span()
            if run[1] is None:
                inner = WORD.finditer(piece, first, end)
                parts += [(*word.span(1), tokens_of(word[1])) for word in inner]
            else:  # without spaces: characters and pairs of them
                spans = [(at, at + size) for at in range(first, end) for size in (1, 2)]
                parts += [(a, b, [fold(piece[a:b])]) for a, b in spans if b <= end]
        return tuple(parts)

    kept = lru_cache(_PIECES)(analyse)  # passages share most of their words
    return lambda piece: kept(piece) if len(piece) <= _SHORT else analyse(piece)


@lru_cache(maxsize=64)
def _heads(tokens: tuple[str, ...]) -> tuple[str, ...]:
    """Return the first letters of words that may have one of these tokens, and ``?`` for others.

    A word begins with the same letters as its stem. Short stems may also have another letter:
    ``age`` of aging, ``sky`` of skies, ``die`` of dying.
    """
    heads = (one[: max(2 + (len(one) > 3), min(5, len(one) - 2))].lower() for one in tokens)
    ways = ([head[:-1] + end for end in "iy"] if head[-1] in "iy" else [head] for head in heads)
    every = {"?", *chain.from_iterable(ways)}
    return tuple(one for one in every if not any(one.startswith(it) for it in every - {one}))


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
    together = sum(bit for token, bit in bits.items() if token not in alone)
    masks = [[sum(bits[token] for token in {*way}) for way in ways] for ways in words.values()]
    written = tuple(tuple(dict.fromkeys(ways)) for ways in masks)
    return QueryWords(written, bits, language, together, tuple(names[word] for word in words))


def cover_of(chunk: Chunk, query: str, found: FoundWords = NO_WORDS) -> float:
    """Return the share (0 to 1) of the query's words in a passage, from postings or its text."""
    if (known := found.covers.get(chunk.seq)) is not None:
        return known
    above = (chunk.title, *chunk.heading_path, *find_columns(chunk.context))
    return query_coverage(query, chunk.text, above, found.weights)


def query_coverage(
    query: str, text: str, headings: Sequence[str], weights: Mapping[str, float] = NO_WORDS.weights
) -> float:
    """Return the share of the query's words in a passage and its headings, 0 to 1.

    Any passage covers a query of stop words only. A word without a weight counts as the heaviest.
    """
    language, asked_in = language_of_words(text), language_of_words(query)
    if language != asked_in:  # otherwise the query's stop words would count as missing
        common = stop_words(asked_in)
        query = WORD.sub(lambda word: "" if word[1].casefold() in common else word[0], query)
    words = query_words(query, language)
    if not words.words:
        return 1.0
    tokens = unite(match.tokens for part in (text, *headings) for match in words.matches(part))
    sizes = _sizes(words.raws, weights)
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
    """Return which words of ``text`` the passages ``seqs`` contain; ``hits`` are the best first.

    A pasted text may be indexed itself: ``first`` is the best hit that is no part of it. Its common
    words are everywhere, so idf counts.
    """
    first, is_pasted = hits[0].seq if hits else None, len(text.split()) > MOST_TYPED
    if is_pasted:
        best = [hit.seq for hit in hits[:_MOST_COPIES]]
        near, said = load_chunks(connection, engine.dataset, best, damaged=[]), _threes(text)
        runs = ((seq, _threes(near[seq].text)) for seq in best if seq in near)
        others = (seq for seq, of_hit in runs if len(of_hit & said) <= _SHARED * len(of_hit))
        first = next(others, first)
    if isinstance(engine, Bm25Engine):
        found = _from_postings(engine.at(connection), text, first, seqs, is_pasted)
    else:
        raws = list(dict.fromkeys(raw_words(text)))
        passages, counts = engine.document_counts(raws)
        counted = dict(zip(raws, counts, strict=True))
        found, rarest = _weigh(counted, passages, is_pasted)
        # The best hits for that word come first; hits with a part of a compound word follow.
        rare = engine.search(rarest, counted[rarest], restriction) if rarest else ()
        found = replace(found, rare=frozenset(hit.seq for hit in rare), first=first)
    if first is None or (first in found.covers and not is_pasted):
        return found
    read = load_chunks(connection, engine.dataset, [first], damaged=[])
    covers = (cover_of(one, text, found if is_pasted else NO_WORDS) for one in read.values())
    return replace(found, cover=max(covers, default=1.0))


def _from_postings(
    index: Words, text: str, first: int | None, seqs: Iterable[int], is_pasted: bool
) -> FoundWords:
    """Return which words the passages contain without reading a text.

    Postings do not know whether ``rtx`` and ``4090`` stand together, as ``RTX4090`` asks: passages
    for which that decides are not in ``covers``.
    """
    import numpy as np

    rows = np.array(sorted({*filter(None, [first]), *seqs}), dtype=np.int64)
    terms: dict[str, list[Term]] = {}
    for raw, of_word in word_terms(text, tuple(index.languages)):
        if of_word and of_word not in terms.values():
            terms.setdefault(raw, of_word)
    if not terms:
        return FoundWords(covers=dict.fromkeys(rows.tolist(), 1.0), first=first)
    counted = {raw: index.rarest(held)[0] for raw, held in terms.items()}
    found, rarest = _weigh(counted, len(index), is_pasted)
    has, masks, is_unsure = index.finder(rows), [], np.zeros(len(rows), dtype=np.bool_)
    for raw, (whole, *parts) in terms.items():
        mask = has([token for token in whole if " " not in token])
        if parts:
            unite_parts = np.logical_or if UNSPACED.search(raw) else np.logical_and
            mask = mask | unite_parts.reduce([has(part) for part in parts])
        for token in whole:
            if " " in token:
                is_unsure |= has([token]) & ~mask
        masks.append(mask)
    held, is_sure = np.array(masks), ~is_unsure
    sizes = np.array(_sizes(terms, found.weights))
    covers = np.where(held.all(axis=0), 1.0, sizes @ held / sizes.sum())
    return replace(
        found,
        cover=1.0 if first is None else float(held[:, np.searchsorted(rows, first)].mean()),
        rare=frozenset(rows[has(index.rarest(terms.get(rarest, ()))[1])].tolist()),
        first=first,
        covers=dict(zip(rows[is_sure].tolist(), covers[is_sure].tolist(), strict=True)),
    )


def _weigh(counted: Mapping[str, int], passages: int, is_pasted: bool) -> tuple[FoundWords, str]:
    """Return the words' weights and the rarity of the rarest, names first; and that word.

    Every long text has rare words, so that none decides but a name that is rarer than all others.
    """
    weights = {raw: term_weight(passages, count) for raw, count in counted.items() if count}
    ranked = [
        (looks_like_name(raw), rarity, count, raw)
        for raw, count in counted.items()
        if (rarity := rarity_of(passages, count)) > 0
    ]
    is_name, rarity, _, rarest = best = max(ranked, default=(False, 0.0, 0, ""))
    if is_pasted and not (is_name and sum(one[:2] == best[:2] for one in ranked) == 1):
        rarity, rarest = 0.0, ""
    return FoundWords(weights=weights, rarity=rarity, is_name=is_name), rarest


def _sizes(raws: Iterable[str], weights: Mapping[str, float]) -> list[float]:
    heaviest = max(weights.values(), default=1.0)
    return [weights.get(raw, heaviest) for raw in raws]


def _threes(text: str) -> set[tuple[str, ...]]:
    words = _LETTERS.findall(text.casefold())
    return set(zip(words, words[1:], words[2:], strict=False))


def looks_like_name(word: str) -> bool:
    """Return whether a word looks like a name: ``maxRetries``, ``rerere.enabled``, ``XK-320``."""
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
    written: list[str] = []
    for piece in query.split():
        of_piece = WORD.findall(piece)
        whole = piece.lstrip(_BEFORE_WORDS).rstrip(_AFTER_WORDS)
        written += [whole] if len(of_piece) == 1 else of_piece
    return tuple(dict.fromkeys(written))


def how_written(chunk: Chunk, words: Iterable[str]) -> float:
    """Return 1.0 if a passage contains words exactly as written, less if nearly, 0.0 if not.

    A phrase may continue on the next line. Case counts only for stop words in capitals, such as
    ``IT``. The value is :data:`OTHER_JOINTS` for ``XK320`` and ``XK-320``, ``10 kg`` and ``10kg``.
    """
    words, common = tuple(word.translate(_DASHES) for word in words), stop_words("english")
    # a word with signs may name a file
    whole = _whole(chunk) if all(map(str.isalnum, words)) else f"{chunk.path}\n{_whole(chunk)}"
    text = unicodedata.normalize("NFC", whole).translate(_DASHES)  # as queries are
    folded = text.casefold()

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


def _whole(chunk: Chunk) -> str:
    return indexed_text(chunk.title, [*chunk.heading_path, *chunk.context], chunk.text)


def has_other_forms(chunk: Chunk, words: Iterable[str]) -> bool:
    """Return whether a passage with the same stems has forms of the words, such as ``boats``."""
    written = set(re.findall(r"\w+", fold(_whole(chunk))))

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


def read_synonyms(home: Path, more: Sequence[str] = ()) -> dict[str, list[str]]:
    """Return synonyms, also of ``more`` lines, by word or phrase in lower case.

    Raises :class:`ConfigError`, which names a wrong line.
    """
    file = home / SYNONYMS
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines() if file.exists() else []
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {SYNONYMS} in the home: {error}") from error
    found: dict[str, list[str]] = {}
    for number, line in enumerate([*lines, *more], start=1):
        forms = [" ".join(one.split()) for one in re.split("[,=]", line)]
        if line.strip() and not line.startswith("#"):
            if line.count("=") != 1 or "" in forms or len(forms) > _MOST_FORMS:
                wrong = f"{SYNONYMS} in the home, line {number} is wrong: {line[:80]!r}"
                how = f"PTO = paid time off, or a, b = c, of at most {_MOST_FORMS} forms"
                raise ConfigError(f"{wrong}; write it as {how}")
            for form in forms:
                others = (one for one in forms if one != form)
                found.setdefault(form.casefold(), []).extend(others)
    return found


def reword(text: str, home: Path, more: Sequence[str] = ()) -> list[str]:
    """Return the text with each word or phrase replaced by its synonyms, in turn; at most ten.

    A stop word, such as ``it``, is meant only in capitals.
    """
    synonyms, texts = read_synonyms(home, more), list[str]()
    words = text.split() if synonyms else []
    for at in range(len(words)):
        for end in range(at + 1, min(len(words), at + _LONGEST_FORM) + 1):
            said = " ".join(words[at:end])
            form = said.strip(_SIGNS)
            is_meant = form.isupper() or form.casefold() not in stop_words("english")
            for one in synonyms.get(form.casefold(), ()) if is_meant else ():
                texts.append(" ".join([*words[:at], said.replace(form, one), *words[end:]]))
    return [*dict.fromkeys(texts)][:_MOST_REWORDED]
