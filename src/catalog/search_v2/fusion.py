"""Fusing ranked lists into one: pure functions over chunk ids, no framework.

Weighted reciprocal rank fusion (Cormack, Clarke, Büttcher 2009, with weights):

    score(d) = Σ_lists weight / (k + rank_in_list(d)),  ranks from 1
             + bonus by d's best rank in an original-query list: first, or second and third

Relative score fusion: each list's scores are mapped to [0, 1] by its own minimum and maximum
and summed with the weights; a passage a list lacks gets nothing from it.

The third way, ``adaptive``, has its own module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from catalog.core.query import SubQueryOrigin

Leg = Literal["lexical", "vector"]


@dataclass(frozen=True, slots=True)
class RankedList:
    """One leg's answer to one sub-query: chunk ids with raw scores, best first, no id twice."""

    leg: Leg
    engine: str
    query: str
    origin: SubQueryOrigin
    weight: float
    hits: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class ListContribution:
    """What one list contributed to one passage."""

    source: RankedList
    rank: int
    raw_score: float
    contribution: float


@dataclass(frozen=True, slots=True)
class FusedHit:
    """A passage after fusion: ``score`` is the sum of the shares, in order, plus ``bonus``."""

    chunk_id: str
    score: float
    contributions: tuple[ListContribution, ...]
    bonus: float

    def originals(self, leg: Leg) -> tuple[ListContribution, ...]:
        """What the lists of the user's own query in one leg contributed."""
        return tuple(
            share
            for share in self.contributions
            if share.source.leg == leg and share.source.origin == "original"
        )

    @property
    def best_rank(self) -> int:
        """Its best rank in any list."""
        return min(share.rank for share in self.contributions)


def rrf(
    lists: Sequence[RankedList],
    *,
    k: int = 60,
    bonus_first: float = 0.05,
    bonus_second: float = 0.02,
) -> list[FusedHit]:
    """Weighted reciprocal rank fusion with the top-rank bonus; best first, ties by id.

    Equal scores are ordered by best single rank, then by chunk id. The lists are not changed.
    """

    def contribution(source: RankedList, rank: int, _score: float) -> float:
        return source.weight / (k + rank)

    def bonus(shares: Sequence[ListContribution]) -> float:
        original = [share.rank for share in shares if share.source.origin == "original"]
        best = min(original, default=4)
        return bonus_first if best == 1 else bonus_second if best <= 3 else 0.0

    return fuse(lists, contribution, bonus)


def relative_score(lists: Sequence[RankedList]) -> list[FusedHit]:
    """Weighted sum of min-max normalised scores; best first, ties as in :func:`rrf`.

    A list whose scores are all equal gives each of its passages its whole weight.
    """
    bounds = {id(one): (one.hits[-1][1], one.hits[0][1]) for one in lists if one.hits}

    def contribution(source: RankedList, _rank: int, score: float) -> float:
        low, high = bounds[id(source)]
        return source.weight * ((score - low) / (high - low) if high > low else 1.0)

    return fuse(lists, contribution)


def single(ranked: RankedList) -> list[FusedHit]:
    """One list as it is: the score is the engine's own."""
    return fuse([ranked], lambda _source, _rank, score: score)


def fuse(
    lists: Sequence[RankedList],
    contribution: Callable[[RankedList, int, float], float],
    bonus: Callable[[Sequence[ListContribution]], float] = lambda _shares: 0.0,
) -> list[FusedHit]:
    """Sum what ``contribution`` says of each (list, rank, raw score), and the bonus, by passage."""
    shares: dict[str, list[ListContribution]] = {}
    for source in lists:
        for rank, (chunk_id, score) in enumerate(source.hits, start=1):
            share = ListContribution(source, rank, score, contribution(source, rank, score))
            shares.setdefault(chunk_id, []).append(share)
    fused = [
        FusedHit(
            chunk_id=chunk_id,
            score=sum(share.contribution for share in of_chunk) + bonus(of_chunk),
            contributions=tuple(of_chunk),
            bonus=bonus(of_chunk),
        )
        for chunk_id, of_chunk in shares.items()
    ]
    return sorted(fused, key=lambda one: (-one.score, one.best_rank, one.chunk_id))
