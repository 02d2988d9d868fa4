"""Find the word that a misspelt word may mean, among the words of the passages.

The index has stems only. So candidates are stems near the typed word or near its beginning; the
words as passages write them then decide. A swap of two neighbouring letters counts as one edit
(https://en.wikipedia.org/wiki/Damerau%E2%80%93Levenshtein_distance).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from sqlalchemy import Connection, select

from catalog.store.filter_sql import among
from catalog.store.lexical import analysis
from catalog.store.lexical.analysis import analyzers_of, query_terms, raw_words
from catalog.store.schema import chunks

if TYPE_CHECKING:
    from catalog.core.kept import LRUCache
    from catalog.store.derived import Array, Seqs

MOST_WORDS = 5  # unknown words of a query that are looked up
_LONGEST_QUERY = 32  # words: a longer text was pasted, not typed
_LEAST_LETTERS, _FOR_TWO_EDITS, _MOST_LETTERS = 5, 8, 40
_LONGEST_ENDING = 3  # letters that stemming removes
_CANDIDATES = 6  # stems for which passages are read
_READ = 10  # passages read for each of these stems, evenly spread over the index
_LETTERS = re.compile(r"[^\W\d_]+")


class Tokens(Protocol):
    """What a correction asks of an index: see :mod:`catalog.store.lexical.bm25`."""

    seqs: Seqs
    languages: dict[str, int]
    corrections: LRUCache[object, str]

    def find(self, token: str) -> Sequence[Array]: ...  # rows, counts
    def tokens(self, prefix: str, letters: str, others: int) -> list[str]: ...
    def is_known(self, token: str) -> bool: ...


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
    corrected, looked_up = dict[str, str](), 0
    for raw in dict.fromkeys(raws) if len(raws) <= _LONGEST_QUERY else ():
        is_word = raw.isalpha() and _LEAST_LETTERS <= len(raw) <= _MOST_LETTERS
        is_word = is_word and not analysis.UNSPACED.search(raw)
        terms = query_terms(raw, words.languages) if is_word else []
        known = [token for token in terms[0] if len(words.find(token)[0])] if terms else []
        if not terms or any(allowed is None or len(_seqs_with(it, words, allowed)) for it in known):
            continue
        looked_up += 1
        nearest = words.corrections.get((raw, within)) if looked_up <= MOST_WORDS else ""
        if nearest is None:
            nearest = _correct(connection, _plain(raw), {*terms[0]}, words, allowed)
            words.corrections.put((raw, within), nearest)
        if nearest:
            corrected[raw] = nearest
    return corrected


def _plain(word: str) -> str:
    return analysis.strip_accents(analysis.fold(word))


def _most_edits(word: str) -> int:
    """Return how many edits a correction may be away from a word or a stem."""
    return 0 if len(word) < _LEAST_LETTERS else 1 + (len(word) >= _FOR_TWO_EDITS)


def _seqs_with(token: str, words: Tokens, allowed: Seqs | None) -> Seqs:
    """Return the allowed passages with a token."""
    seqs = words.seqs[words.find(token)[0]]
    return seqs if allowed is None else seqs[np.isin(seqs, allowed)]


def _correct(
    connection: Connection, word: str, stems: set[str], words: Tokens, allowed: Seqs | None
) -> str:
    """Return the nearest word as a passage spells it, "" if there is no near one."""
    from rapidfuzz.distance import OSA

    distances = _near_stems(word, stems, words)
    held = {token: _seqs_with(token, words, allowed) for token in distances if token.isalpha()}
    found = sorted((distances[token], -len(of), token) for token, of in held.items() if len(of))
    candidates = {token: held[token] for *_, token in found[:_CANDIDATES]}
    read = {seq for of in candidates.values() for seq in of[:: 1 + len(of) // _READ].tolist()}
    columns = select(chunks.c.title, chunks.c.headings, chunks.c.text)
    texts = connection.execute(columns.where(among(chunks.c.seq, read)))
    # A stem and its words begin with the same letters: only such words are analysed.
    begins = (re.escape(token[: max(3, len(token) - _LONGEST_ENDING)]) for token in candidates)
    begun = re.compile("|".join(begins), re.IGNORECASE)
    pieces = {piece for text in chain.from_iterable(texts) for piece in text.split()}
    likely = (one for one in pieces if begun.search(one if one.isascii() else _plain(one)))
    raws = raw_words(" ".join(likely))
    parts = ((*_LETTERS.findall(raw), *analysis.CASED.findall(raw)) for raw in raws)
    most, analyzers, spelt = _most_edits(word), analyzers_of(words.languages, is_passage=True), []
    for written in set(chain.from_iterable(parts)):
        folded = _plain(written)
        distance, others = OSA.distance(word, folded), (Counter(word) - Counter(folded)).total()
        for token in {token for one in analyzers for token in one.tokens_of([written])}:
            is_near = any(OSA.distance(stem, token) <= _most_edits(stem) for stem in stems)
            if token in candidates and distance <= most + _LONGEST_ENDING * is_near:
                uses = -len(candidates[token])
                spelt.append((distance, others, uses, written.istitle(), written))
    return min(spelt)[-1] if spelt else ""


def _near_stems(word: str, stems: set[str], words: Tokens) -> dict[str, int]:
    """Return indexed stems near the word, its beginnings or its stems, with the edits between."""
    from rapidfuzz import process
    from rapidfuzz.distance import OSA

    most, analyzers = _most_edits(word), analyzers_of(words.languages)
    others = most * max(len(letter.encode()) for letter in word)
    prefixes = {word[0], word[1] + word[0]}  # the first two letters may be swapped
    near = {one for start in prefixes for one in words.tokens(start, word + "".join(stems), others)}
    choices = {one for one in near if _LEAST_LETTERS - 2 <= len(one) <= len(word) + most}
    # A wrong letter can also change the stem: "ordinay", but "ordinari" for "ordinary".
    variants = {of.token(one) or "" for one in _one_edit(word) for of in analyzers}
    begun = {one for one in variants if one.startswith(word[0])}
    nearest = dict.fromkeys((begun & choices) | set(filter(words.is_known, variants - begun)), 1)
    queries = {word[: len(word) - cut] for cut in range(_LONGEST_ENDING + 1)} | stems
    for query in filter(_most_edits, queries):
        how: dict[str, Any] = {"scorer": OSA.distance, "score_cutoff": _most_edits(query)}
        for token, distance, _ in process.extract(query, choices, limit=None, **how):
            nearest[token] = min(distance, nearest.get(token, distance))
    return nearest


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
