"""Fitting the balance of the legs to a dataset: one number, learnt from labelled queries.

The vector leg's share of every query is shifted by the same amount. That with the best mean
nDCG@10, its neighbours counting too, less ``_SHRINKAGE · (shift - usual)² / queries`` is chosen, so
that few queries move it little. It is adopted when it wins on queries it was not chosen on: the
mean gain, each fifth of the queries left out in turn, is above 0 by two standard errors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from catalog.evaluation.golden import GoldenQuery, GoldenSet
from catalog.retrieval.adaptive import DEPTH, adaptive
from catalog.retrieval.fusion import NO_WORDS, FoundWords, Leg, RankedList
from catalog.retrieval.query_words import find_words
from catalog.store.chunks import load_chunks
from catalog.store.engine_types import Hit, Restriction, Spread

if TYPE_CHECKING:
    import numpy.typing as npt

    from catalog.ingest.sync_report import Progress
    from catalog.retrieval.search_parts import SearchParts

    Floats = npt.NDArray[np.float64]

LEAST_QUERIES = 50
SHIFTS = tuple(round(0.05 * step, 2) for step in range(-12, 9))
_SHRINKAGE = 2.0
_FOLDS = 5
_ERRORS = 2.0
_CUT = 10


@dataclass(frozen=True, slots=True)
class BalanceFit:
    """The shift that was chosen, and what it gained on queries it was not chosen on.

    ``gain`` is in nDCG@10, ``error`` its standard error; ``is_other`` than the usual shift.
    """

    queries: int
    shift: float
    gain: float
    error: float
    is_other: bool

    @property
    def wins(self) -> bool:
        """Tell whether the shift is better than the usual one beyond chance."""
        return self.is_other and self.gain > _ERRORS * self.error


def fit_balance(scores: Floats, usual: float = 0.0) -> BalanceFit:
    """Choose a shift, given nDCG@10 of each query (row) at each of :data:`SHIFTS` (column).

    ``usual`` is the shift without labels: that which is shrunk towards, and to win over.
    """
    none = int(np.argmin(np.abs(np.array(SHIFTS) - usual)))
    chosen = _choose(scores, none)
    gains = np.concatenate(
        [
            fold[:, _choose(np.delete(scores, np.s_[number::_FOLDS], axis=0), none)] - fold[:, none]
            for number in range(_FOLDS)
            if len(fold := scores[number::_FOLDS])
        ]
    )
    error = float(gains.std(ddof=1)) / math.sqrt(len(gains))
    is_other = chosen != none
    return BalanceFit(len(scores), SHIFTS[chosen], float(gains.mean()), error, is_other)


def measure_shifts(
    parts: SearchParts, golden: GoldenSet, dataset: str, *, progress: Progress
) -> Floats:
    """Return nDCG@10 of documents of each answerable query at each of :data:`SHIFTS`.

    Queries with filters are left out; the row of a query is its place among the others.
    """
    queries = [query for query in golden.answerable if query.filters is None]
    progress.start(len(queries))
    rows = []
    for query in queries:
        rows.append(_measure(parts, query, dataset))
        progress.advance(1, "asking")
    return np.array(rows).reshape(len(rows), len(SHIFTS))


def _measure(parts: SearchParts, query: GoldenQuery, dataset: str) -> list[float]:
    lists, document = _ask(parts, query.query, dataset)
    usual = parts.usual_balance(dataset)
    scores = []
    for shift in SHIFTS:
        fused = adaptive(lists, replace(usual, shift=shift))
        ranked = dict.fromkeys(document[hit.chunk_id] for hit in fused if hit.chunk_id in document)
        scores.append(_ndcg(list(ranked)[:_CUT], query.relevant))
    return scores


def _ask(parts: SearchParts, text: str, dataset: str) -> tuple[list[RankedList], dict[str, str]]:
    """Return the lists of both legs, of row numbers, and which document each row is of."""
    within, rag = Restriction(dataset), parts.rag
    vector, _ = parts.query_vectors.embed(text)
    by_words = parts.lexical(dataset).search(text, DEPTH, within)
    by_meaning = parts.vector(dataset).search(vector, DEPTH, within)
    spread = parts.library.indexes.sample(dataset).spread(vector)
    parts.library.indexes.require_model()  # else they may be scores of two models
    seqs = {hit.seq for hits in (by_words, by_meaning) for hit in hits}
    with parts.database.read() as connection:
        chunks = load_chunks(connection, dataset, seqs, damaged=[])
    words = find_words(parts.database, parts.lexical(dataset), within, text, by_words)
    legs: tuple[tuple[Leg, float, Sequence[Hit], Spread, FoundWords], ...] = (
        ("lexical", rag.lexical_weight, by_words, by_words.spread, words),
        ("vector", rag.vector_weight, by_meaning, spread, NO_WORDS),
    )
    found = []
    for leg, weight, hits, of_all, of_leg in legs:
        scores = tuple((chunks[hit.seq].chunk_id, hit.score) for hit in hits if hit.seq in chunks)
        found.append(RankedList(leg, leg, text, "original", weight, scores, of_all, of_leg))
    return found, {chunk.chunk_id: chunk.path for chunk in chunks.values()}


def _ndcg(ranked: Sequence[str], grades: Mapping[str, int]) -> float:
    best = sorted(grades.values(), reverse=True)[:_CUT]
    return _discounted([grades.get(path, 0) for path in ranked]) / _discounted(best)


def _discounted(gains: Sequence[int]) -> float:
    return sum(gain / math.log2(place + 2) for place, gain in enumerate(gains))


def _choose(scores: Floats, none: int) -> int:
    padded = np.pad(scores.mean(axis=0), 1, mode="edge")
    smooth = 0.25 * padded[:-2] + 0.5 * padded[1:-1] + 0.25 * padded[2:]
    away = np.array(SHIFTS) - SHIFTS[none]
    return int(np.argmax(smooth - _SHRINKAGE * np.square(away) / len(scores)))
