"""Find the word that a misspelt word may mean, among the words of the passages.

The index has stems only. So candidates are stems near the typed word or near its beginning; the
words as passages write them then decide. A swap of two neighbouring letters counts as one edit
(https://en.wikipedia.org/wiki/Damerau%E2%80%93Levenshtein_distance).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from string import ascii_lowercase
from typing import TYPE_CHECKING, Protocol

import numpy as np
from sqlalchemy import Connection, select

from catalog.store.chunks import read_headings
from catalog.store.filter_sql import among
from catalog.store.lexical.analysis import (
    UNSPACED,
    Term,
    TextAnalyzer,
    fold,
    strip_accents,
)
from catalog.store.schema import chunks

if TYPE_CHECKING:
    from catalog.core.lru_cache import LRUCache
    from catalog.store.derived import Array, Seqs

MOST_WORDS = 5  # unknown words of a query that are looked up
_LONGEST_QUERY = 32  # words: a longer text was pasted, not typed
_LEAST_LETTERS, _FOR_TWO_EDITS = 5, 8
_MOST_LETTERS = 40  # each letter adds about fifty variants to look for
_LONGEST_ENDING = 3  # letters that stemming removes
_CANDIDATES = 12  # stems for which passages are read
_READ = 10  # passages read for each of these stems, evenly spread over the index


class Vocabulary(Protocol):
    """The words of an index in one state."""

    seqs: Seqs
    languages: dict[str, int]
    corrections: LRUCache[object, str]

    def find(self, token: str) -> tuple[Array, Array]:
        """Return the rows with a token, and its counts."""
        ...

    def tokens(self, prefix: str, least: int, most: int) -> set[str]:
        """Return the tokens with this beginning that have ``least`` to ``most`` bytes."""
        ...


def correct_words(
    connection: Connection,
    raws: Sequence[str],
    words: Vocabulary,
    allowed: Seqs | None,
    analyzer: TextAnalyzer,
) -> dict[str, str]:
    """Return the words of a query that no passage contains, each with the nearest word that occurs.

    Only ``allowed`` passages count, ``None`` for all. The nearest word has the fewest edits, then
    the most letters in common, then the most passages; it is spelt as in a passage. It may have
    another ending if the stems are near, and may be a part of a name: ``Cluster`` of
    ``ClusterManager``. A word without a near one is left out. Suggestions are cached with the state
    of the index. Time grows with the number of indexed words with the same first letter.
    """
    if len(raws) > _LONGEST_QUERY:
        return {}
    within, looked_up = None if allowed is None else hash(allowed.tobytes()), 0
    corrected: dict[str, str] = {}
    for raw in dict.fromkeys(filter(_is_correctable, raws)):
        terms = analyzer.query_terms(raw, words.languages)
        if not terms or any(len(_seqs_with(token, words, allowed)) for token in terms[0]):
            continue
        nearest = words.corrections.get((raw, within))
        if nearest is None:
            looked_up += 1
            candidates = _find_candidates(raw, terms[0], words, allowed, analyzer)
            nearest = _spell(connection, raw, candidates, words.languages, analyzer)
            words.corrections.put((raw, within), nearest)
        if nearest:
            corrected[raw] = nearest
        if looked_up == MOST_WORDS:
            break
    return corrected


def _is_correctable(raw: str) -> bool:
    is_word = raw.isalpha() and _LEAST_LETTERS <= len(raw) <= _MOST_LETTERS
    return is_word and not UNSPACED.search(raw)


def _most_edits(word: str) -> int:
    """Return how many edits a correction may be away from a word or a stem."""
    return 0 if len(word) < _LEAST_LETTERS else 1 + (len(word) >= _FOR_TWO_EDITS)


def _seqs_with(token: str, words: Vocabulary, allowed: Seqs | None) -> Seqs:
    """Return the allowed passages with a token."""
    seqs = words.seqs[words.find(token)[0]]
    return seqs if allowed is None else seqs[np.isin(seqs, allowed)]


def _find_candidates(
    raw: str, stems: Term, words: Vocabulary, allowed: Seqs | None, analyzer: TextAnalyzer
) -> dict[str, tuple[int, int, Seqs]]:
    """Return the nearest stems, each with distance from the stem of the word, rarity, passages."""
    from rapidfuzz import process
    from rapidfuzz.distance import OSA

    word = strip_accents(fold(raw))
    near = {word[: len(word) - cut] for cut in range(_LONGEST_ENDING + 1)} | set(stems)
    near = {one for one in near if _most_edits(one)}
    width = max(len(letter.encode()) for letter in word)  # bytes of a character
    sizes = min(map(len, near)) - _most_edits(word), (len(word) + _most_edits(word)) * width
    prefixes = (word[0], word[1] + word[0])  # the first two letters may be swapped
    choices = {token for prefix in prefixes for token in words.tokens(prefix, *sizes)}
    # A wrong letter can also change the stem: "ordinay", but "ordinari" for "ordinary".
    nearest = {
        stem: 1
        for stem in analyzer.stems(_one_edit(word), words.languages)
        if stem in choices or (_is_other(stem, prefixes, sizes[0]) and len(words.find(stem)[0]))
    }
    of_stems: dict[str, int] = {}
    for query in near:
        for token, distance, _ in process.extract(
            query, choices, scorer=OSA.distance, score_cutoff=_most_edits(query), limit=None
        ):
            nearest[token] = min(distance, nearest.get(token, distance))
            if query in stems:
                of_stems[token] = min(distance, of_stems.get(token, distance))
    seqs = {token: _seqs_with(token, words, allowed) for token in nearest if token.isalpha()}
    found = sorted((nearest[token], -len(of), token) for token, of in seqs.items() if len(of))
    return {
        token: (of_stems.get(token, len(word)), rarity, seqs[token])
        for _, rarity, token in found[:_CANDIDATES]
    }


def _is_other(stem: str, prefixes: tuple[str, ...], least: int) -> bool:
    return len(stem) < least or not stem.startswith(prefixes)


def _one_edit(word: str) -> Iterator[str]:
    """Yield all words one edit away: a letter inserted, deleted or replaced, or two swapped."""
    letters = sorted({*ascii_lowercase, *word})
    for at in range(len(word) + 1):
        before, after = word[:at], word[at:]
        yield from (f"{before}{letter}{after}" for letter in letters)
        if after:
            yield before + after[1:]
            yield from (f"{before}{letter}{after[1:]}" for letter in letters)
        if len(after) > 1:
            yield f"{before}{after[1]}{after[0]}{after[2:]}"


def _spell(
    connection: Connection,
    raw: str,
    candidates: Mapping[str, tuple[int, int, Seqs]],
    languages: Iterable[str],
    analyzer: TextAnalyzer,
) -> str:
    """Return the nearest word as a passage spells it, "" if there is no near one."""
    from rapidfuzz.distance import OSA

    word = strip_accents(fold(raw))
    most = _most_edits(word)
    read = {seq for *_, of in candidates.values() for seq in of[:: 1 + len(of) // _READ].tolist()}
    columns = select(chunks.c.title, chunks.c.headings, chunks.c.text)
    pieces: set[str] = set()
    for title, headings, text in connection.execute(columns.where(among(chunks.c.seq, read))):
        lines = chain.from_iterable(read_headings(headings))
        pieces.update(title.split(), " ".join(lines).split(), text.split())
    # A stem and its words begin with the same letters: only such words are analysed.
    beginnings = {re.escape(token[: max(3, len(token) - _LONGEST_ENDING)]) for token in candidates}
    begins = re.compile("|".join(beginnings)).search
    likely = (piece for piece in pieces if begins(strip_accents(fold(piece))))
    spelt = []
    for token, written in analyzer.find_spellings(likely, candidates, languages):
        of_stem, rarity, _ = candidates[token]
        folded = strip_accents(fold(written))
        distance = OSA.distance(word, folded)
        if distance <= most + _LONGEST_ENDING * (of_stem <= most):
            other_letters = (Counter(word) - Counter(folded)).total()
            spelt.append((distance, other_letters, rarity, written.istitle(), written))
    return min(spelt)[-1] if spelt else ""
