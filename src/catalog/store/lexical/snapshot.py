"""One immutable state of the BM25 index: segments, live rows, and how to search them.

The amounts that a term adds to scores are computed once and cached. All rows are scored in single
precision, which halves the memory to read and keep. The few rows that may be among the best are
then scored again from their postings in double precision. A bound on the rounding error selects
these rows, so the result is that of double precision.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, func, select

from catalog.core.errors import StoreDamagedError
from catalog.core.lru_cache import LRUCache
from catalog.store.chunks import read_headings
from catalog.store.engine_types import Hits, Restriction, Spread, Stamp
from catalog.store.lexical.analysis import Term, TextAnalyzer
from catalog.store.lexical.languages import LANGUAGES
from catalog.store.lexical.postings import (
    Counts,
    Int32,
    Int64,
    Mask,
    PostingsSegment,
    Scores,
    join_alternatives,
    length_norms,
    merge_segments,
    saturate,
    term_weight,
    top_hits,
)
from catalog.store.schema import chunks, revisions

_LEAST_CACHE = 16 * 2**20  # bytes: the smallest cache of impacts of a snapshot
_CACHE_PER_ROW = 256  # bytes: 64 terms with a float32 value for each row
_DENSE = 4  # a term in at least one of 4 rows has a value for each row
_GROUPS = 8  # groups of rows for each wanted row
_BLOCK = 65_536  # rows summed at a time: a block fits into the processor's cache

Floats = npt.NDArray[np.float32]
Postings = tuple[Int32, Counts]
Rows = npt.NDArray[np.intp]
MAX_PARTS = 8
OPENING = 10_000
CHURN_ROWS = 2_000
CHURN_SHARE = 0.05
_BATCH = 500  # bound parameters in one statement
_MASKS = 16  # restrictions with cached rows
_FOUND = 10_000  # cached look-ups of tokens


def cache_bytes(rows: int) -> int:
    """Return the size of the cache of impacts for an index with this number of rows, in bytes."""
    return max(_LEAST_CACHE, _CACHE_PER_ROW * rows)


@dataclass(frozen=True, slots=True, eq=False)
class Impacts:
    """The amounts that a term adds to the scores of a segment's ``rows``, before its weight.

    ``rows`` is ``None`` for a frequent term: then ``values`` has a value for every row, 0 without
    the term, because it is faster to add whole arrays than to pick rows.
    """

    rows: Int32 | None
    values: Floats

    @classmethod
    def of(cls, rows: Int32, counts: Counts, norms: Floats) -> Impacts:
        """Return the impacts of a term's postings; ``norms`` are those of all rows."""
        values = counts.astype(np.float32)
        values /= values + norms[rows]
        if len(rows) * _DENSE < len(norms):
            return cls(rows, values)
        of_all = np.zeros(len(norms), dtype=np.float32)
        of_all[rows] = values
        return cls(None, of_all)

    def add_to(self, scores: Floats, weight: float) -> None:
        """Add the impacts, weighted, to the scores of all rows."""
        weighted = np.float32(weight) * self.values
        if self.rows is None:
            scores += weighted
        else:
            np.add.at(scores, self.rows, weighted)  # rows are distinct; faster than indexing


@dataclass(frozen=True, slots=True, eq=False)
class TermImpacts:
    """A term's weight in an index, its number of live rows, and postings and impacts by part."""

    weight: float
    holding: int
    postings: tuple[Postings | None, ...]
    parts: tuple[Impacts | None, ...]

    def count_bytes(self) -> int:
        """Return the approximate size in memory."""
        joined = (
            one.nbytes for found in self.postings if found for one in found if one.base is None
        )
        return 256 + sum(part.values.nbytes for part in self.parts if part) + sum(joined)


def find_contenders(scores: Floats, mask: Mask | None, k: int, error: float) -> Rows:
    """Return the rows that may be among the ``k`` best that ``mask`` allows, ascending.

    Only rows with a score above 0 count. A score may be off by ``error`` of itself; ties are
    included. The bound is the ``k``-th best of the maxima of groups of rows, which needs no sorting
    of all rows. For few rows there is no bound and all of them are returned.
    """
    if mask is not None:
        scores = np.where(mask, scores, np.float32(0))
    groups = _GROUPS * k
    size = len(scores) // groups
    if size < 2:
        return np.flatnonzero(scores > 0)
    best = scores[: groups * size].reshape(size, groups).max(axis=0)
    bound = float(np.partition(best, groups - k)[groups - k]) * (1 - 2 * error)
    return np.flatnonzero(scores >= bound if bound > 0 else scores > 0)


def rounding_error(terms: int) -> float:
    """Return the relative error of a single-precision score that is a sum over ``terms`` terms.

    An impact is rounded with length, sum and quotient; then weight, product and each sum are
    rounded. The result is twice that, to be safe. Higham, "Accuracy and Stability of Numerical
    Algorithms" (2002), section 3.1.
    """
    return (terms + 6) * 2.0**-23


def score_rows(rows: Rows, norms: Scores, terms: Sequence[tuple[float, Postings | None]]) -> Scores:
    """Return the scores of these ascending rows from the weight and postings of each term.

    ``norms`` are those of the rows.
    """
    scores = np.zeros(len(rows))
    wanted = rows.astype(np.int32)
    for weight, postings in terms:
        if postings is None:
            continue
        holding, counts = postings
        places = np.searchsorted(holding, wanted)
        holds = holding.take(places, mode="clip") == wanted
        values = saturate(counts.take(places, mode="clip"), norms)
        scores += weight * values * holds
    return scores


def sum_squares(scores: Floats) -> tuple[float, float]:
    """Return the sum of the scores and the sum of their squares, in double precision."""
    total = squares = 0.0
    for start in range(0, len(scores), _BLOCK):
        block = scores[start : start + _BLOCK].astype(np.float64)
        total += float(block.sum())
        # not np.dot: it starts threads, and the last digits depend on how many
        squares += float(np.square(block, out=block).sum())
    return total, squares


def read_rows(connection: Connection, dataset: str) -> tuple[Int64, Int64]:
    """Return the ascending row numbers of the dataset's chunks, and the keys of their contents."""
    columns = select(chunks.c.seq, chunks.c.chunk_id, chunks.c.text_hash)
    columns = columns.where(chunks.c.dataset == dataset)
    rows = connection.execute(columns.order_by(chunks.c.seq)).all()
    seqs = np.fromiter((row[0] for row in rows), dtype=np.int64, count=len(rows))
    keys = np.fromiter((_key(*row[1:]) for row in rows), dtype=np.int64, count=len(rows))
    return seqs, keys


def read_texts(
    connection: Connection, dataset: str, seqs: Int64
) -> Iterator[tuple[int, int, str, int]]:
    """Yield row number, key, indexed text and document number of these chunks, in order."""
    identity = (chunks.c.chunk_id, chunks.c.text_hash)
    content = (chunks.c.title, chunks.c.headings, chunks.c.text)
    columns = select(chunks.c.seq, *identity, *content, chunks.c.document_id)
    columns = columns.order_by(chunks.c.seq)
    for start in range(0, len(seqs), _BATCH):
        batch = seqs[start : start + _BATCH].tolist()
        query = columns.where(chunks.c.dataset == dataset, chunks.c.seq.in_(batch))
        for seq, name, digest, title, headings, text, document in connection.execute(query):
            heading_path, context = read_headings(headings)
            indexed = indexed_text(title, [*heading_path, *context], text)
            yield seq, _key(name, digest), indexed, document


class AnalysedRow(NamedTuple):
    """A chunk's row number and key, its language, and its tokens with repetitions."""

    seq: int
    key: int
    language: str | None
    tokens: list[str]


def analyse_rows(
    connection: Connection, dataset: str, seqs: Int64, analyzer: TextAnalyzer
) -> Iterator[AnalysedRow]:
    """Yield the chunks of these ascending row numbers with language and tokens.

    If a chunk's own words do not show its language, the opening of its document decides.
    """
    opening_language = lru_cache(1)(
        lambda document: analyzer.language_of(read_opening(connection, document))
    )
    for seq, key, text, document in read_texts(connection, dataset, seqs):
        yield AnalysedRow(seq, key, *analyzer.analyse(text, partial(opening_language, document)))


def read_opening(connection: Connection, document: int) -> str:
    """Return the first :data:`OPENING` characters of a document, given by its row number."""
    opening = select(func.substr(revisions.c.text, 1, OPENING))
    return connection.scalar(opening.where(revisions.c.document_id == document)) or ""


def indexed_text(title: str, headings: list[str], text: str) -> str:
    """Return title and headings followed by the passage, without lines that the passage repeats."""
    above = list(dict.fromkeys([title, *headings]))
    return "\n".join([*(line for line in above if line and not _holds(text, line)), text])


def _holds(text: str, line: str) -> bool:
    """Return whether the text contains the line as whole words."""
    at = text.find(line)
    while at >= 0:
        end = at + len(line)
        if not (text[at - 1 : at].isalnum() or text[end : end + 1].isalnum()):
            return True
        at = text.find(line, at + 1)
    return False


def _key(chunk_id: str, text_hash: str) -> int:
    """Return a number that identifies the document's content and how it was cut.

    A row number is not enough: after an older copy of the database is restored, it may be used
    again. Raises :class:`StoreDamagedError` if id or hash are not hexadecimal.
    """
    try:
        return int(chunk_id[:15], 16) ^ int(text_hash[:15], 16)
    except (TypeError, ValueError) as error:
        raise StoreDamagedError(f"the id or the hash of passage {chunk_id!r} is damaged") from error


@dataclass(frozen=True, slots=True, eq=False)
class LiveSegment:
    """A segment, the mask of its live rows, and its folder if it is saved."""

    segment: PostingsSegment
    live: Mask
    folder: str | None = None
    dead: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dead", len(self.live) - int(np.count_nonzero(self.live)))

    def within(self, seqs: Int64, keys: Int64) -> LiveSegment:
        """Return the same part, with exactly those rows live that the store still has."""
        live = np.zeros(len(self.segment), dtype=np.bool_)
        if len(seqs) > 0:
            at = np.minimum(np.searchsorted(seqs, self.segment.seqs), len(seqs) - 1)
            live = (seqs[at] == self.segment.seqs) & (keys[at] == self.segment.keys)
        return LiveSegment(self.segment, live, self.folder)


@dataclass(frozen=True, slots=True, eq=False)
class LexicalSnapshot:
    """One immutable state of the index, on which a search works; ``stamp`` identifies the state."""

    stamp: Stamp | None
    parts: tuple[LiveSegment, ...]
    k1: float
    b: float
    languages: dict[str, int] = field(init=False)  # numbers of rows
    _average: float = field(init=False, repr=False)  # length
    _norms: tuple[Floats, ...] = field(init=False, repr=False)
    _masks: LRUCache[Hashable, tuple[Mask, ...]] = field(init=False, repr=False)
    _impacts: LRUCache[Term, TermImpacts] = field(init=False, repr=False)
    _found: LRUCache[str, tuple[Postings | None, ...]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "languages", self._count_languages())
        object.__setattr__(self, "_average", self._average_length())
        object.__setattr__(self, "_norms", self._length_norms())
        object.__setattr__(self, "_masks", LRUCache(_MASKS))
        object.__setattr__(self, "_found", LRUCache(_FOUND))
        size = cache_bytes(sum(len(part.segment) for part in self.parts))
        object.__setattr__(self, "_impacts", LRUCache(size, TermImpacts.count_bytes))

    def __len__(self) -> int:
        return sum(len(part.segment) - part.dead for part in self.parts)

    def rank(self, terms: Sequence[Term], k: int, masks: Sequence[Mask]) -> Hits:
        """Return the ``k`` best rows that ``masks`` (one per part) allow, ties by row number."""
        weighted = [
            (times * impacts.weight, impacts)
            for term, times in Counter(terms).items()
            for impacts in [self._impacts_of(term)]
        ]
        all_scores = self._scores(weighted)
        error = rounding_error(len(weighted))
        seqs, scores = [], []
        for at, (part, mask, of_part) in enumerate(zip(self.parts, masks, all_scores, strict=True)):
            is_whole = part.dead == 0 and mask is part.live
            rows = find_contenders(of_part, None if is_whole else mask, k, error)
            norms = length_norms(part.segment.lengths[rows], self._average, self.k1, self.b)
            postings = [(weight, impacts.postings[at]) for weight, impacts in weighted]
            seqs.append(part.segment.seqs[rows])
            scores.append(score_rows(rows, norms, postings))
        if not seqs:
            return Hits()
        hits = top_hits(np.concatenate(seqs), np.concatenate(scores), k)
        return Hits(hits, self._spread(all_scores))

    def count_rows(self, words: Sequence[str], analyzer: TextAnalyzer) -> tuple[int, list[int]]:
        """Return the number of live rows, and for each raw word the number of rows with it.

        For a compound word that no row contains, the first of its parts that occurs is counted.
        """
        counts = []
        for word in words:
            terms = analyzer.query_terms(word, self.languages)
            holding = (self._impacts_of(term).holding for term in terms)
            counts.append(next(filter(None, holding), 0))
        return len(self), counts

    def live_masks(self) -> tuple[Mask, ...]:
        """Return the masks of a search in the whole dataset."""
        return tuple(part.live for part in self.parts)

    def masks(
        self, restriction: Restriction, stamp: Stamp, load: Callable[[], Int64 | None]
    ) -> tuple[Mask, ...]:
        """Return the rows that the restriction allows; ``load`` reads them if none are cached."""
        key = _mask_key(restriction)
        cached = self._masks.get(key)
        if cached is not None:
            return cached
        allowed = load()
        if allowed is None:
            return self.live_masks()
        masks = tuple(part.live & np.isin(part.segment.seqs, allowed) for part in self.parts)
        if stamp == self.stamp:  # the rows of an older reader must not be cached for newer ones
            self._masks.put(key, masks)
        return masks

    def _spread(self, scores: Sequence[Floats]) -> Spread:
        """Return mean and deviation of the live rows' scores; there is an array for each part."""
        pairs = zip(self.parts, scores, strict=True)
        sums = [sum_squares(one if part.dead == 0 else one[part.live]) for part, one in pairs]
        size = max(1, len(self))
        mean = sum(total for total, _ in sums) / size
        square = sum(squares for _, squares in sums) / size
        return Spread(mean, math.sqrt(max(0.0, square - mean * mean)))

    def _average_length(self) -> float:
        total = sum(int(part.segment.lengths[part.live].sum()) for part in self.parts)
        return total / len(self) if total > 0 else 1.0

    def _length_norms(self) -> tuple[Floats, ...]:
        return tuple(
            length_norms(part.segment.lengths, self._average, self.k1, self.b).astype(np.float32)
            for part in self.parts
        )

    def _count_languages(self) -> dict[str, int]:
        counts = np.zeros(len(LANGUAGES), dtype=np.int64)
        for part in self.parts:
            counts += np.bincount(part.segment.languages[part.live], minlength=len(LANGUAGES))
        found = zip(LANGUAGES, counts.tolist(), strict=True)
        return {language: count for language, count in found if count}

    def _scores(self, weighted: Sequence[tuple[float, TermImpacts]]) -> list[Floats]:
        scores = [np.zeros(len(part.segment), dtype=np.float32) for part in self.parts]
        for weight, impacts in weighted:
            for of_part, of_term in zip(scores, impacts.parts, strict=True):
                if of_term is not None:
                    of_term.add_to(of_part, weight)
        return scores

    def _impacts_of(self, term: Term) -> TermImpacts:
        """Return the impacts of a term; recent ones are cached.

        The cache key leaves out tokens that are not in the index, such as most joined neighbours.
        """
        there = tuple(written for written in term if any(self.find(written)))
        if (cached := self._impacts.get(there)) is not None:
            return cached
        found = {written: self.find(written) for written in there}
        postings = tuple(
            join_alternatives({written: of_parts[at] for written, of_parts in found.items()})
            for at in range(len(self.parts))
        )
        holding = sum(
            _count_live(part, of_part[0])
            for part, of_part in zip(self.parts, postings, strict=True)
            if of_part is not None
        )
        of_parts = tuple(
            None if of_part is None else Impacts.of(*of_part, norms)
            for of_part, norms in zip(postings, self._norms, strict=True)
        )
        impacts = TermImpacts(term_weight(len(self), holding), holding, postings, of_parts)
        self._impacts.put(there, impacts)
        return impacts

    def find(self, written: str) -> tuple[Postings | None, ...]:
        """Return a token's postings in each part.

        ``written`` may be several tokens: then the rows must have all of them.
        """
        found = self._found.get(written)
        if found is None:
            found = tuple(part.segment.find_all(written.split(" ")) for part in self.parts)
            self._found.put(written, found)
        return found


def find_missing_rows(parts: Sequence[LiveSegment], seqs: Int64) -> Int64:
    """Return the ascending row numbers among ``seqs`` that are live in no part."""
    live_seqs = [part.segment.seqs[part.live] for part in parts]
    indexed = np.concatenate([np.empty(0, dtype=np.int64), *live_seqs])
    return seqs[~np.isin(seqs, indexed)]


def _count_live(part: LiveSegment, rows: Int32) -> int:
    return len(rows) if part.dead == 0 else int(np.count_nonzero(part.live[rows]))


def _mask_key(restriction: Restriction) -> Hashable:
    # repr, because True == 1 == 1.0 in Python, but they are different values in a filter
    filters = repr(restriction.filter)
    return restriction.scope.ids, filters, restriction.without, restriction.containing


def compact(parts: tuple[LiveSegment, ...]) -> tuple[LiveSegment, ...]:
    """Return at most two parts: everything merged, or the first part and the merged rest.

    All parts are merged if the rows outside the first part plus its removed rows exceed both
    :data:`CHURN_ROWS` and :data:`CHURN_SHARE` of it.
    """
    if len(parts) == 0:
        return ()
    base, rest = parts[0], parts[1:]
    churn = base.dead + sum(len(part.segment) for part in rest)
    if churn > max(CHURN_ROWS, CHURN_SHARE * len(base.segment)):
        return (_merge(parts),)
    return (base, *((_merge(rest),) if len(rest) > 1 else rest))


def limit_parts(parts: tuple[LiveSegment, ...]) -> tuple[LiveSegment, ...]:
    """Merge the parts after the first if there are more than :data:`MAX_PARTS`."""
    return parts if len(parts) <= MAX_PARTS else (parts[0], _merge(parts[1:]))


def _merge(parts: tuple[LiveSegment, ...]) -> LiveSegment:
    segment: PostingsSegment = merge_segments([(part.segment, part.live) for part in parts])
    return LiveSegment(segment, np.ones(len(segment), dtype=np.bool_))
