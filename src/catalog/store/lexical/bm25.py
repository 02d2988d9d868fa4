"""BM25 keyword search, exact and incremental: the default lexical engine.

    score(q, d) = Σ_t  idf(t) · tf / (tf + k1 · (1 - b + b · |d| / average))

N is the number of passages and n_t the number with term t; the sum is over the query's terms, with
repetitions. A term may have several tokens, one for each language or spelling; tf is the count of
the most frequent one. A word that stands in the path of a passage's document alone counts
NAME_COUNT, and does not lower its idf. From Robertson and Zaragoza, "The Probabilistic Relevance
Framework: BM25 and Beyond" (2009), with Lucene's idf and without the constant factor (k1 + 1).

The index is a large part, small parts with later passages, and masks of removed ones. All weights
belong to one state, so an updated index scores exactly like one that is built from scratch.
"""

import re
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache, partial, reduce
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, func, select

from catalog.core.kept import LRUCache
from catalog.store.chunks import read_headings
from catalog.store.database import Database, EngineSetup
from catalog.store.derived import NO_DATASET, Array, Following, Seqs, live_seqs
from catalog.store.engines import LexicalEngine, best_hits, term_weight
from catalog.store.filter_sql import DatasetNames, among
from catalog.store.lexical import analysis
from catalog.store.lexical.analysis import Term, fold, query_terms, raw_words
from catalog.store.lexical.fts import FtsEngine
from catalog.store.lexical.languages import LANGUAGES, detect_language
from catalog.store.lexical.spelling import correct_words
from catalog.store.restriction import Hits, Restriction, Stamp, allowed_seqs
from catalog.store.schema import chunks, documents, revisions

K1, B = 1.2, 0.75
FILE = "words.index"
OPENING = 10_000  # characters of a document that show the language of its short passages
MOST_PARTS = 8  # with more, all but the first are merged
CHURN_ROWS, CHURN_SHARE = 2_000, 0.05  # removed and later rows beyond which saving merges all
NAME_COUNT = 0.3  # occurrences; chosen, not fitted: rankings of texts stay the same
MAX_COUNT = 65_535  # counts are stored in 16 bits; higher ones are cut to this
_DENSE = 4  # a term in at least one of 4 rows has an impact for each row: adding them is faster
_LEAST_CACHE, _CACHE_PER_ROW = 2**24, 512  # bytes: 64 terms with an impact for each row
_CORRECTIONS = 1_000  # misspelt words whose suggestions are cached
_WEIGHTED = 4  # pairs of constants whose weights are kept
_BATCH = 500  # passages read at a time
_REPEATED = 0.4  # different terms of a query: logs have .04 to .4, ArguAna's arguments .47 to 1
_BEGINNING = re.compile(  # admin*, and the first digits of a commit
    r"(?<!\S)(\w{3,}(?=\*)|(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,39}(?!\S))"
)
Mask = npt.NDArray[np.bool_]
Postings = tuple[Array, Array]  # ascending rows, and counts
Weighted = tuple[float, int, Array | slice, Array]


class Part(NamedTuple):
    """An inverted index of some passages, immutable.

    ``seqs`` are their row numbers, ascending; ``lengths`` and ``languages`` describe each passage,
    and ``live`` marks those that are still there. Token ``t`` is ``vocabulary[cuts[t]:cuts[t+1]]``,
    ascending. It occurs ``counts[i]`` times in passage ``rows[i]`` (ascending), for ``i`` from
    ``starts[t]`` to ``starts[t + 1]``.
    """

    seqs: Seqs
    live: Mask
    lengths: Array
    languages: Array
    vocabulary: Array
    cuts: Array
    starts: Array
    rows: Array
    counts: Array

    def find(self, token: str) -> Postings:
        """Return the rows with a token, and its counts."""
        key = token.encode()
        at = self.position(key)
        is_here = at < len(self.cuts) - 1 and self.token_at(at) == key
        here = slice(self.starts[at], self.starts[at + 1]) if is_here else slice(0)
        return self.rows[here], self.counts[here]

    def position(self, key: bytes) -> int:
        """Return the number of the first token that is not before a key."""
        return bisect_left(range(len(self.cuts) - 1), key, key=self.token_at)

    def token_at(self, number: int) -> bytes:
        """Return a token by its number."""
        return self.vocabulary[self.cuts[number] : self.cuts[number + 1]].tobytes()


def build_part(passages: Iterable[tuple[int, int, Sequence[str], Sequence[str]]]) -> Part:
    """Build a part from row number, language, tokens and path's tokens of each passage, ascending.

    A token of the path alone has the count 0.
    """
    numbers: dict[str, int] = {}
    seqs, lengths, languages = array("q"), array("i"), array("B")
    rows, token_of, count_of = array("i"), array("i"), array("i")
    for row, (seq, language, tokens, of_path) in enumerate(passages):
        counted = dict.fromkeys(of_path, 0) | Counter(tokens)
        seqs.append(seq)
        lengths.append(len(tokens))
        languages.append(language)
        rows.extend([row] * len(counted))
        token_of.extend([numbers.setdefault(token, len(numbers)) for token in counted])
        count_of.extend([min(count, MAX_COUNT) for count in counted.values()])
    about = np.array(seqs, np.int64), np.array(lengths, np.int32), np.array(languages, np.uint8)
    postings = np.array(token_of, np.int32), np.array(rows, np.int32), np.array(count_of, np.uint16)
    return _sorted([token.encode() for token in numbers], about, postings)


def merge_parts(parts: Sequence[Part]) -> Part:
    """Return the live rows of parts in this order, as if built from these alone."""
    numbers: dict[bytes, int] = {}
    columns, first = [], 0
    for part in parts:
        blob, cuts, live = part.vocabulary.tobytes(), part.cuts.tolist(), part.live
        tokens = [numbers.setdefault(blob[a:b], len(numbers)) for a, b in pairwise(cuts)]
        token_of = np.repeat(np.array(tokens, np.int32), np.diff(part.starts))
        kept = live[part.rows]
        row_of = (np.cumsum(live, dtype=np.int32) - 1 + first)[part.rows[kept]]
        first += int(live.sum())
        about = (part.seqs[live], part.lengths[live], part.languages[live])
        columns.append((*about, token_of[kept], row_of, part.counts[kept]))
    joined = [np.concatenate(column) for column in zip(*columns, strict=True)]
    return _sorted(list(numbers), joined[:3], joined[3:])


def _sorted(written: Sequence[bytes], about: Sequence[Array], postings: Sequence[Array]) -> Part:
    """Sort postings by token, rows ascending, and drop tokens without any."""
    (seqs, lengths, languages), (token_of, rows, counts) = about, postings
    used = np.bincount(token_of, minlength=len(written))
    order = sorted(np.flatnonzero(used).tolist(), key=written.__getitem__)
    place = np.zeros(len(written), dtype=np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    by_token = np.lexsort((rows, place[token_of]))
    return Part(
        seqs,
        np.ones(len(seqs), dtype=np.bool_),
        lengths,
        languages,
        vocabulary=np.frombuffer(b"".join(written[n] for n in order), dtype=np.uint8),
        cuts=np.cumsum([0, *(len(written[n]) for n in order)], dtype=np.int64),
        starts=np.concatenate(([0], np.cumsum(used[order]))).astype(np.int64),
        rows=rows[by_token],
        counts=counts[by_token],
    )


class Words:
    """BM25 over one state of a dataset, or of several as one; immutable.

    A row is the place of a passage in ``seqs``, over all parts. Dead rows are never found.
    """

    def __init__(self, stamp: Stamp, parts: Sequence[Part], k1: float = K1, b: float = B) -> None:
        self.stamp, self.parts = stamp, parts or [build_part(())]
        columns = zip(*(part[:4] for part in self.parts), strict=True)
        self.seqs, self._live, lengths, languages = map(np.concatenate, columns)
        self._firsts = np.cumsum([0, *(len(part.seqs) for part in self.parts)]).tolist()
        self._size = int(self._live.sum())
        total = int(lengths[self._live].sum())
        self._norms = k1 * (1 - b + b * lengths / (total / self._size if total else 1.0))
        counts = np.bincount(languages[self._live], minlength=len(LANGUAGES)).tolist()
        self.languages = {name: n for name, n in zip(LANGUAGES, counts, strict=True) if n}
        size = max(_LEAST_CACHE, _CACHE_PER_ROW * len(self.seqs))
        self._found: LRUCache[str, Postings] = LRUCache(size, _count_bytes)
        self._terms: LRUCache[Term, Weighted] = LRUCache(size, _count_bytes)
        self.corrections: LRUCache[object, str] = LRUCache(_CORRECTIONS)

    def __len__(self) -> int:
        """Return the number of passages."""
        return self._size

    def rank(self, terms: Sequence[Term], k: int, allowed: Seqs | None = None) -> Hits:
        """Return the ``k`` best passages with any of the terms, ties by row number.

        ``allowed`` are the passages that may answer, ``None`` for all; the spread is that of all.
        """
        scores = np.zeros(len(self.seqs))
        for term, times in Counter(terms).items():
            idf, _, rows, impacts = self.weigh(term)
            scores[rows] += times * idf * impacts
        return best_hits(self.seqs, scores, k, allowed, self._size)

    def finder(self, seqs: Seqs) -> Callable[[Iterable[str]], Mask]:
        """Return a function that tells which of these passages have one of the tokens."""
        at = np.searchsorted(self.seqs, seqs, sorter=self._order)
        wanted = self._order[np.minimum(at, len(self.seqs) - 1)]
        is_here, has_it = self.seqs[wanted] == seqs, np.zeros(len(self.seqs), dtype=np.bool_)

        def has(tokens: Iterable[str]) -> Mask:
            has_it[:] = False
            for token in tokens:
                has_it[self.find(token)[0]] = True
            return np.asarray(has_it[wanted] & is_here)

        return has

    def rarest(self, terms: Sequence[Term]) -> tuple[int, Term]:
        """Return how many passages have a word, and its term: the first, or else the rarest part.

        A number is no such part: many passages have a 4090 that is not of an ``RTX4090``.
        """
        found = [(count, term) for term in terms if (count := self.weigh(term)[1])]
        if found and found[0][1] == terms[0]:
            return found[0]
        return min((one for one in found if not one[1][0].isdecimal()), default=(0, ()))

    def weigh(self, term: Term) -> Weighted:
        """Return a term's idf, its number of passages, and an impact for each of some rows."""
        held = tuple(one for one in term if len(self.find(one)[0]))  # not most joined neighbours
        weighted = self._terms.get(held)
        if weighted is None:
            rows, counts = _join_alternatives({one: self.find(one) for one in held})
            in_texts, counts = np.count_nonzero(counts), np.maximum(counts, NAME_COUNT)
            impacts = counts / (counts + self._norms[rows])
            weighted = term_weight(self._size, int(in_texts) or len(rows)), len(rows), rows, impacts
            if _DENSE * len(rows) >= len(self.seqs):
                of_all = np.zeros(len(self.seqs))
                of_all[rows] = impacts
                weighted = *weighted[:2], slice(None), of_all
            self._terms.put(held, weighted)
        return weighted

    def tokens(self, prefix: str, letters: str, others: int) -> list[str]:
        """Return tokens with this beginning and at most so many letters that are not ``letters``.

        Letters are compared by five bits of each byte, so some tokens have more.
        """
        known = np.bitwise_or.reduce(_letter_bits(np.frombuffer(letters.encode(), np.uint8)))
        found = list[str]()
        for part in self.parts:
            first = part.position(prefix.encode())
            cuts = part.cuts[first : part.position(prefix.encode() + b"\xff") + 1]
            written = part.vocabulary[cuts[0] : cuts[-1]]
            if len(written):
                bits = np.bitwise_or.reduceat(_letter_bits(written), cuts[:-1] - cuts[0])
                fits = np.flatnonzero(np.bitwise_count(bits & ~known) <= others)
                ends = zip(cuts[fits].tolist(), cuts[fits + 1].tolist(), strict=True)
                found += [part.vocabulary[a:b].tobytes().decode() for a, b in ends]
        return found

    def is_known(self, token: str) -> bool:
        """Return whether a passage has the token, or had it until lately."""
        return any(len(part.find(token)[0]) for part in self.parts)

    def find(self, token: str) -> Postings:
        """Return the ascending rows with a token and its counts; for ``rtx 4090``, with both."""
        found = self._found.get(token)
        if found is None:
            first, *more = map(self._read, token.split(" "))
            found = reduce(_intersect, more, first)
            self._found.put(token, found)
        return found

    def _read(self, token: str) -> Postings:
        each = [part.find(token) for part in self.parts]
        counts = np.concatenate([counts for _, counts in each])
        moved = (of[0] + np.int32(first) for of, first in zip(each, self._firsts, strict=False))
        rows = np.concatenate([*moved])
        is_live = self._live[rows]
        return rows[is_live], counts[is_live]

    @cached_property
    def _order(self) -> Array:
        return np.argsort(self.seqs, kind="stable")


def _letter_bits(letters: Array) -> Array:
    return np.asarray(np.left_shift(1, letters & 31, dtype=np.uint32))


def _count_bytes(arrays: Iterable[object]) -> int:
    return 256 + sum(one.nbytes for one in arrays if isinstance(one, np.ndarray))


def _intersect(one: Postings, other: Postings) -> Postings:
    rows, a, b = np.intersect1d(one[0], other[0], assume_unique=True, return_indices=True)
    return rows, np.minimum(one[1][a], other[1][b])


def _join_alternatives(found: Mapping[str, Postings]) -> Postings:
    """Return the rows with any token of a term, each with the count of the most frequent one.

    A name in one word counts double beside its split form (``rtx 4090``), whose parts may be far
    apart in a passage.
    """
    of_one = 1.0 + any(" " in token for token in found)
    rows = np.concatenate([np.empty(0, np.int32), *(rows for rows, _ in found.values())])
    weighted = (of[1] * (1.0 if " " in token else of_one) for token, of in found.items())
    counts = np.concatenate([np.empty(0), *weighted])
    if len(found) <= 1:
        return rows, counts
    order = np.argsort(rows, kind="stable")
    rows, first = np.unique(rows[order], return_index=True)
    return rows, np.maximum.reduceat(counts[order], first)


class WordIndex(Following[Words]):
    """The keyword index of one dataset, in ``folder``; :meth:`at` gives one state of it."""

    def __init__(self, database: Database, dataset: str, folder: Path) -> None:
        super().__init__(database, dataset, folder / FILE, analysis.fingerprint())

    def follow(self, connection: Connection, held: Words | None, stamp: Stamp) -> Words:
        """Mask the passages that are gone, and analyse the missing ones."""
        seqs = live_seqs(connection, self.dataset)
        parts = [one._replace(live=np.isin(one.seqs, seqs)) for one in (held.parts if held else ())]
        parts = [part for part in parts if part.live.any()]
        there = [np.empty(0, np.int64), *(part.seqs[part.live] for part in parts)]
        missing = np.setdiff1d(seqs, np.concatenate(there), assume_unique=True)
        if len(missing):
            parts.append(build_part(self._analyse(connection, missing)))
        if len(parts) > MOST_PARTS:
            parts[1:] = [merge_parts(parts[1:])]
        return Words(stamp, parts)

    def compact(self, state: Words) -> Words:
        """Merge all parts if many passages are new or gone: at 50,000 it takes a second."""
        first = state.parts[0]
        changed = len(state) + len(first.seqs) - 2 * int(first.live.sum())
        is_changed = changed > max(CHURN_ROWS, CHURN_SHARE * len(state))
        return Words(state.stamp, [merge_parts(state.parts)]) if is_changed else state

    def pack(self, state: Words) -> dict[str, Array]:
        numbered = enumerate(part._asdict() for part in state.parts)
        return {f"{n}.{name}": values for n, part in numbered for name, values in part.items()}

    def unpack(self, stamp: Stamp, arrays: Mapping[str, Array]) -> Words:
        numbers = range(len(arrays) // len(Part._fields))
        named = ((arrays[f"{n}.{name}"] for name in Part._fields) for n in numbers)
        return Words(stamp, [Part(*columns) for columns in named])

    def _analyse(
        self, connection: Connection, seqs: Seqs
    ) -> Iterator[tuple[int, int, Sequence[str], Sequence[str]]]:
        """Yield row number, language, tokens and path's tokens of these passages.

        If a passage's own words do not show its language, the opening of its document decides.
        """
        language_of = lru_cache(1)(partial(_language_of, connection))
        content = (chunks.c.title, chunks.c.headings, chunks.c.text, documents.c.path)
        columns = select(chunks.c.seq, *content, chunks.c.document_id).order_by(chunks.c.seq)
        columns = columns.join(documents, documents.c.id == chunks.c.document_id)
        for start in range(0, len(seqs), _BATCH):
            batch = columns.where(among(chunks.c.seq, seqs[start : start + _BATCH].tolist()))
            for seq, title, headings, text, path, document in connection.execute(batch):
                lines = [line for lines in read_headings(headings) for line in lines]
                indexed = analysis.indexed_text(title, lines, text)
                language, tokens = analysis.analyse_passage(indexed, partial(language_of, document))
                (analyzer,) = analysis.analyzers_of([language], is_passage=True)
                yield seq, LANGUAGES.index(language), tokens, analyzer.tokens(path)


def _language_of(connection: Connection, document: int) -> str | None:
    opening = select(func.substr(revisions.c.text, 1, OPENING))
    text = connection.scalar(opening.where(revisions.c.document_id == document)) or ""
    return detect_language(text, raw_words(text))


class Bm25Engine(LexicalEngine):
    """Keyword search over one dataset, or over several as one; safe to share between threads."""

    name = "bm25"

    def __init__(self, *indexes: WordIndex, k1: float = K1, b: float = B) -> None:
        self.indexes, self._database = indexes, indexes[0].database
        self._is_usual = (k1, b) == (K1, B)
        names = tuple(index.dataset for index in indexes)
        self.dataset: DatasetNames = names if names[1:] else names[0]
        self._join = lru_cache(1)(
            lambda *states: Words(NO_DATASET, [part for one in states for part in one.parts], k1, b)
        )
        self._weighted = lru_cache(_WEIGHTED)(partial(Bm25Engine, *indexes))

    def at(self, connection: Connection) -> Words:
        """Return the words in the state that ``connection`` sees."""
        states = [index.at(connection) for index in self.indexes]
        return states[0] if len(states) == 1 and self._is_usual else self._join(*states)

    def _now(self) -> Words:
        with self._database.read() as connection:
            return self.at(connection)

    def search(self, text: str, k: int, restriction: Restriction) -> Hits:
        """Search as :class:`LexicalEngine` says; a restriction to another dataset finds nothing."""
        if k <= 0 or restriction.dataset != self.dataset:
            return Hits()
        with self._database.read() as connection:
            words = self.at(connection)
            begun = (words.tokens(fold(one), "", 99) for one in _BEGINNING.findall(text))
            if terms := [*query_terms(text, words.languages), *map(tuple, begun)]:
                once = list(dict.fromkeys(terms))  # a pasted log has the same words in each line
                terms = once if len(once) < _REPEATED * len(terms) else terms
                return words.rank(terms, k, allowed_seqs(connection, restriction))
        # the full-text index has stop words
        return FtsEngine(self._database, self.dataset).search(text, k, restriction)

    def is_searchable(self, text: str) -> bool:
        return len(query_terms(text, self._now().languages)) > 0

    def document_counts(self, words: Sequence[str]) -> tuple[int, list[int]]:
        state = self._now()
        return len(state), [state.rarest(query_terms(word, state.languages))[0] for word in words]

    def correct(self, text: str, restriction: Restriction) -> dict[str, str]:
        with self._database.read() as connection:
            words, allowed = self.at(connection), allowed_seqs(connection, restriction)
            return correct_words(connection, raw_words(_BEGINNING.sub("", text)), words, allowed)

    def languages(self) -> dict[str, int]:
        return self._now().languages

    def join(self, others: Sequence[LexicalEngine]) -> LexicalEngine:
        engines = [one for one in (self, *others) if isinstance(one, Bm25Engine)]
        return Bm25Engine(*(index for one in engines for index in one.indexes))

    def weighted(self, k1: float, b: float) -> LexicalEngine:
        return self if (k1, b) == (K1, B) else self._weighted(k1=k1, b=b)

    def refresh(self) -> None:
        for index in self.indexes:
            index.save()

    def verify(self) -> int:
        return sum(index.is_damaged() for index in self.indexes)

    def close(self) -> None:
        self._join.cache_clear()
        self._weighted.cache_clear()
        for index in self.indexes:
            index.close()


def open_engine(setup: EngineSetup) -> Bm25Engine:
    """Return the engine ``bm25``."""
    return Bm25Engine(WordIndex(setup.database, setup.dataset, setup.folder))
