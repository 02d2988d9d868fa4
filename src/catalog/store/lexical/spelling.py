"""Find the word that a misspelt word may mean, among the words of the passages.

The index has stems only. So candidates are stems near the typed word or near its beginning; the
words as passages write them then decide. A swap of two neighbouring letters counts as one edit
(https://en.wikipedia.org/wiki/Damerau%E2%80%93Levenshtein_distance).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from string import ascii_lowercase
from typing import TYPE_CHECKING, Protocol

import numpy as np
from sqlalchemy import Connection, select

from catalog.store.chunks import read_headings
from catalog.store.filter_sql import among
from catalog.store.lexical.analysis import (
    CASED,
    UNSPACED,
    Term,
    analyzers_of,
    fold,
    query_terms,
    raw_words,
    strip_accents,
)
from catalog.store.schema import chunks

if TYPE_CHECKING:
    from catalog.core.lru_cache import LRUCache
    from catalog.store.derived import Array, Seqs

MOST_WORDS = 5  # unknown words of a query that are looked up
_LONGEST_QUERY = 32  # words: a longer text was pasted, not typed
_LEAST_LETTERS, _FOR_TWO_EDITS = 5, 8
_MOST_LETTERS = 40
_LONGEST_ENDING = 3  # letters that stemming removes
_CANDIDATES = 12  # stems for which passages are read
_READ = 10  # passages read for each of these stems, evenly spread over the index
_LETTERS = re.compile(r"[^\W\d_]+")


class Tokens(Protocol):
    """What a correction asks of an index: :class:`~.bm25.Words`."""

    seqs: Seqs
    languages: dict[str, int]
    corrections: LRUCache[object, str]

    def find(self, token: str) -> Sequence[Array]: ...  # rows, counts
    def tokens(self, prefix: str, least: int, most: int) -> set[str]: ...


def correct_words(
    connection: Connection, raws: Sequence[str], words: Tokens, allowed: Seqs | None
) -> dict[str, str]:
    """Return the words of a query that no passage contains, each with the nearest word that occurs.

    Only ``allowed`` passages count, ``None`` for all. The nearest word has the fewest edits, then
    the most letters in common, then the most passages; it is spelt as in a passage. It may have
    another ending if the stems are near, and may be a part of a name: ``Cluster`` of
    ``ClusterManager``. A word without a near one is left out. Suggestions are cached with the state
    of the index. Time grows with the number of indexed words with the same first letter.
    """
    within = None if allowed is None else hash(allowed.tobytes())
    unknown, corrected = dict[str, Term](), dict[str, str]()
    for raw in dict.fromkeys(raws) if len(raws) <= _LONGEST_QUERY else ():
        is_word = raw.isalpha() and _LEAST_LETTERS <= len(raw) <= _MOST_LETTERS
        if not is_word or UNSPACED.search(raw):
            continue
        for term in query_terms(raw, words.languages)[:1]:
            if not any(len(_seqs_with(token, words, allowed)) for token in term):
                unknown[raw] = term
    for raw, stems in islice(unknown.items(), MOST_WORDS):
        nearest = words.corrections.get((raw, within))
        if nearest is None:
            candidates = _find_candidates(_plain(raw), stems, words, allowed)
            nearest = _spell(connection, _plain(raw), candidates, words.languages)
            words.corrections.put((raw, within), nearest)
        if nearest:
            corrected[raw] = nearest
    return corrected


def _plain(word: str) -> str:
    return strip_accents(fold(word))


def _most_edits(word: str) -> int:
    """Return how many edits a correction may be away from a word or a stem."""
    return 0 if len(word) < _LEAST_LETTERS else 1 + (len(word) >= _FOR_TWO_EDITS)


def _seqs_with(token: str, words: Tokens, allowed: Seqs | None) -> Seqs:
    """Return the allowed passages with a token."""
    seqs = words.seqs[words.find(token)[0]]
    return seqs if allowed is None else seqs[np.isin(seqs, allowed)]


def _find_candidates(
    word: str, stems: Term, words: Tokens, allowed: Seqs | None
) -> dict[str, tuple[int, Seqs]]:
    """Return the nearest stems, each with the distance from the word's stem, and passages."""
    from rapidfuzz import process
    from rapidfuzz.distance import OSA

    near = {word[: len(word) - cut] for cut in range(_LONGEST_ENDING + 1)} | set(stems)
    width = max(len(letter.encode()) for letter in word)  # bytes of a character
    sizes = _LEAST_LETTERS - 2, (len(word) + _most_edits(word)) * width
    prefixes = (word[0], word[1] + word[0])  # the first two letters may be swapped
    choices = {token for prefix in prefixes for token in words.tokens(prefix, *sizes)}
    # A wrong letter can also change the stem: "ordinay", but "ordinari" for "ordinary".
    analyzers = analyzers_of(words.languages)
    variants = {analyzer.token(one) or "" for one in _one_edit(word) for analyzer in analyzers}
    nearest = {
        stem: 1
        for stem in variants
        if stem in choices or (not stem.startswith(word[0]) and len(words.find(stem)[0]))
    }
    of_stems: dict[str, int] = {}
    for query in filter(_most_edits, near):
        for token, distance, _ in process.extract(
            query, choices, scorer=OSA.distance, score_cutoff=_most_edits(query), limit=None
        ):
            nearest[token] = min(distance, nearest.get(token, distance))
            if query in stems:
                of_stems[token] = min(distance, of_stems.get(token, distance))
    seqs = {token: _seqs_with(token, words, allowed) for token in nearest if token.isalpha()}
    found = sorted((nearest[token], -len(of), token) for token, of in seqs.items() if len(of))
    return {
        token: (of_stems.get(token, len(word)), seqs[token]) for *_, token in found[:_CANDIDATES]
    }


def _one_edit(word: str) -> Iterator[str]:
    """Yield words with an edit that may change the stem: at the beginning or in the last letters.

    A letter is inserted, deleted or replaced, or two are swapped.
    """
    letters = sorted({*ascii_lowercase, *word})
    for at in {0, *range(max(1, len(word) - 4), len(word) + 1)}:
        before, after = word[:at], word[at:]
        yield from (f"{before}{letter}{after}" for letter in letters)
        yield from (f"{before}{letter}{after[1:]}" for letter in ["", *letters] if after)
        yield before + after[1:2] + after[:1] + after[2:]


def _spell(
    connection: Connection,
    word: str,
    candidates: Mapping[str, tuple[int, Seqs]],
    languages: Iterable[str],
) -> str:
    """Return the nearest word as a passage spells it, "" if there is no near one."""
    from rapidfuzz.distance import OSA

    read = {seq for _, of in candidates.values() for seq in of[:: 1 + len(of) // _READ].tolist()}
    columns = select(chunks.c.title, chunks.c.headings, chunks.c.text)
    pieces: set[str] = set()
    for title, headings, text in connection.execute(columns.where(among(chunks.c.seq, read))):
        pieces.update(" ".join([title, *chain(*read_headings(headings)), text]).split())
    # A stem and its words begin with the same letters: only such words are analysed.
    begins = {re.escape(token[: max(3, len(token) - _LONGEST_ENDING)]) for token in candidates}
    begin = re.compile("|".join(begins), re.IGNORECASE).search
    likely = " ".join(one for one in pieces if begin(one if one.isascii() else _plain(one)))
    spelt, analyzers = [], analyzers_of(languages, is_passage=True)
    parts = ((*_LETTERS.findall(raw), *CASED.findall(raw)) for raw in raw_words(likely))
    for written in set(chain(*parts)):
        folded = _plain(written)
        distance, others = OSA.distance(word, folded), (Counter(word) - Counter(folded)).total()
        for token in {token for one in analyzers for token in one.tokens_of([written])}:
            of_stem, seqs = candidates.get(token, (0, ()))
            is_near_stem = of_stem <= _most_edits(word)
            if len(seqs) and distance <= _most_edits(word) + _LONGEST_ENDING * is_near_stem:
                spelt.append((distance, others, -len(seqs), written.istitle(), written))
    return min(spelt)[-1] if spelt else ""
