"""Find the word that a misspelt word may mean, among the words of the passages.

The index has stems only. So candidates are stems near the typed word or near its beginning; the
words as passages write them then decide. A swap of two neighbouring letters counts as one edit
(https://en.wikipedia.org/wiki/Damerau%E2%80%93Levenshtein_distance).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from string import ascii_lowercase
from typing import NamedTuple

import numpy as np
from sqlalchemy import Connection, select

from catalog.store.chunks import read_headings
from catalog.store.lexical.analysis import UNSPACED, TextAnalyzer, fold, strip_accents
from catalog.store.lexical.postings import Int64, Mask, PostingsSegment
from catalog.store.lexical.snapshot import LexicalSnapshot, indexed_text
from catalog.store.schema import chunks

MOST_WORDS = 5  # unknown words of a query that are looked up
_LONGEST_QUERY = 32  # words: a longer text was pasted, not typed
_LEAST_LETTERS, _FOR_TWO_EDITS = 5, 8
_MOST_LETTERS = 40  # each letter adds about fifty variants to look for
_LONGEST_ENDING = 3  # letters that stemming removes
_CANDIDATES = 12  # stems for which passages are read
_READ = 200  # passages read for each of these stems, from all parts of the index


class _Candidate(NamedTuple):
    distance: int
    rarity: int  # minus the number of passages
    token: str
    of_stem: int  # its distance from the stem of the typed word
    seqs: Int64


def correct_words(
    connection: Connection,
    raws: Sequence[str],
    snapshot: LexicalSnapshot,
    masks: Sequence[Mask],
    analyzer: TextAnalyzer,
) -> dict[str, str]:
    """Return the words of a query that no passage contains, each with the nearest word that occurs.

    Only passages that ``masks`` allow count. The nearest word has the fewest edits, then the most
    letters in common, then the most passages; it is spelt as in a passage. It may have another
    ending if the stems are near, and may be a part of a name: ``Cluster`` of ``ClusterManager``. A
    word without a near one is left out. Time grows with the number of indexed words with the same
    first letter: about 40 ms for a word if the index has a million words.
    """
    if len(raws) > _LONGEST_QUERY:
        return {}
    unknown = []
    for raw in dict.fromkeys(filter(_is_correctable, raws)):
        terms = analyzer.query_terms(raw, snapshot.languages)
        if terms and not any(_is_held(token, snapshot, masks) for token in terms[0]):
            unknown.append((raw, terms[0]))
    corrected: dict[str, str] = {}
    for raw, stems in unknown[:MOST_WORDS]:
        candidates = _find_candidates(raw, stems, snapshot, masks, analyzer)
        if nearest := _spell(connection, raw, candidates, analyzer):
            corrected[raw] = nearest
    return corrected


def _is_correctable(raw: str) -> bool:
    is_word = raw.isalpha() and _LEAST_LETTERS <= len(raw) <= _MOST_LETTERS
    return is_word and not UNSPACED.search(raw)


def _most_edits(word: str) -> int:
    """Return how many edits a correction may be away from a word or a stem."""
    return 0 if len(word) < _LEAST_LETTERS else 1 + (len(word) >= _FOR_TWO_EDITS)


def _find_candidates(
    raw: str,
    stems: Collection[str],
    snapshot: LexicalSnapshot,
    masks: Sequence[Mask],
    analyzer: TextAnalyzer,
) -> list[_Candidate]:
    from rapidfuzz import process
    from rapidfuzz.distance import OSA

    word = strip_accents(fold(raw))
    near = {word[: len(word) - cut] for cut in range(_LONGEST_ENDING + 1)} | set(stems)
    near = {one for one in near if _most_edits(one)}
    width = max(len(letter.encode()) for letter in word)  # bytes of a character
    most = _most_edits(word)
    sizes = min(map(len, near)) - most, (len(word) + most) * width
    prefixes = (word[0], word[1] + word[0])  # the first two letters may be swapped
    choices = list(
        {token for part in snapshot.parts for token in _tokens(part.segment, prefixes, sizes)}
    )

    # A wrong letter can also change the stem: "ordinay", but "ordinari" for "ordinary".
    variants = " ".join(_one_edit(word))
    near_stems = {
        stem for stems in analyzer.query_terms(variants, snapshot.languages) for stem in stems
    }
    nearest = {
        stem: 1 for stem in near_stems if any(part is not None for part in snapshot.find(stem))
    }
    of_stems: dict[str, int] = {}
    for query in near:
        for token, distance, _ in process.extract(
            query, choices, scorer=OSA.distance, score_cutoff=_most_edits(query), limit=None
        ):
            nearest[token] = min(distance, nearest.get(token, distance))
            if query in stems:
                of_stems[token] = min(distance, of_stems.get(token, distance))
    found = []
    for token, distance in nearest.items():
        rows = _rows_of(token, snapshot, masks) if token.isalpha() else []
        if count := sum(map(len, rows)):
            each = max(1, _READ // len(rows))
            seqs = np.concatenate([of_part[:: 1 + len(of_part) // each] for of_part in rows])
            of_stem = of_stems.get(token, len(word))
            found.append(_Candidate(distance, -count, token, of_stem, seqs))
    return sorted(found)[:_CANDIDATES]


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


def _is_held(token: str, snapshot: LexicalSnapshot, masks: Sequence[Mask]) -> bool:
    """Return whether a passage that ``masks`` allow contains the token."""
    pairs = zip(masks, snapshot.find(token), strict=True)
    return any(bool(mask[found[0]].any()) for mask, found in pairs if found is not None)


def _rows_of(token: str, snapshot: LexicalSnapshot, masks: Sequence[Mask]) -> list[Int64]:
    """Return the row numbers of the passages with the token that ``masks`` allow, by part."""
    return [
        part.segment.seqs[found[0][mask[found[0]]]]
        for part, mask, found in zip(snapshot.parts, masks, snapshot.find(token), strict=True)
        if found is not None
    ]


def _tokens(
    segment: PostingsSegment, prefixes: Iterable[str], sizes: tuple[int, int]
) -> Iterator[str]:
    """Yield a segment's tokens with one of the prefixes whose size in bytes is within ``sizes``."""
    for prefix in prefixes:
        first, last = segment.find_range(prefix)
        starts = segment.term_starts[first : last + 1]
        written = segment.terms[starts[0] : starts[-1]].tobytes()
        of_each = np.diff(starts)
        fits = (of_each >= sizes[0]) & (of_each <= sizes[1])
        begins, ends = (starts[:-1] - starts[0])[fits].tolist(), (starts[1:] - starts[0])[fits]
        for begin, end in zip(begins, ends.tolist(), strict=True):
            yield written[begin:end].decode()


def _spell(
    connection: Connection,
    raw: str,
    candidates: Sequence[_Candidate],
    analyzer: TextAnalyzer,
) -> str | None:
    """Return the nearest word as a passage spells it, ``None`` if there is no near one."""
    from rapidfuzz.distance import OSA

    word = strip_accents(fold(raw))
    most = _most_edits(word)
    spelt = []
    for candidate in candidates:
        for text in _read_texts(connection, candidate.seqs):
            for written in analyzer.find_spellings(text, candidate.token):
                folded = strip_accents(fold(written))
                distance = OSA.distance(word, folded)
                if distance <= most + _LONGEST_ENDING * (candidate.of_stem <= most):
                    other_letters = (Counter(word) - Counter(folded)).total()
                    order = distance, other_letters, candidate.rarity, written.istitle()
                    spelt.append((*order, written))
    return min(spelt)[-1] if spelt else None


def _read_texts(connection: Connection, seqs: Int64) -> list[str]:
    columns = select(chunks.c.title, chunks.c.headings, chunks.c.text)
    rows = connection.execute(columns.where(chunks.c.seq.in_(seqs.tolist())))
    return [
        indexed_text(title, [line for part in read_headings(headings) for line in part], text)
        for title, headings, text in rows
    ]
