"""Fuse ranked lists into one, by pure functions over chunk ids.

Weighted reciprocal rank fusion (Cormack, Clarke, Büttcher 2009, with weights):

    score(d) = Σ_lists weight / (k + rank_in_list(d)),  ranks from 1
             + bonus by d's best rank in an original-query list: first, or second and third

Relative score fusion: the scores of each list are mapped to [0, 1] by the list's minimum and
maximum and added up with the weights. A passage gets nothing from a list that lacks it.

The third way, ``adaptive``, has its own module. In all three, a passage that is ``unembedded``
cannot be in the vector lists. What it gets from the lexical lists is therefore scaled up for both
legs, by the weights of all lists over those of the lexical ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from catalog.core.query import SubQueryOrigin
from catalog.store.engine_types import FLAT, Spread

Leg = Literal["lexical", "vector"]


@dataclass(frozen=True, slots=True)
class FoundWords:
    """The words of a query that its keyword hits contain.

    ``cover`` is the share (0 to 1) in the best hit. ``weights`` are the words' idf. ``rare`` are
    the ids of chunks with the rarest word, ``rarity`` (0 to 1) says how rare it is, and ``is_name``
    whether it looks like a name.
    """

    cover: float = 1.0
    weights: Mapping[str, float] = field(default_factory=dict)
    rare: AbstractSet[str] = frozenset()
    rarity: float = 0.0
    is_name: bool = False

    @property
    def bonus(self) -> float:
        """The bonus of a passage with the rarest word, in deviations."""
        return self.rarity if self.is_name else self.rarity / 2


NO_WORDS = FoundWords()


@dataclass(frozen=True, slots=True)
class RankedList:
    """The ranked list of one leg for one sub-query: distinct chunk ids with raw scores.

    ``spread`` is that of the scores of all chunks of the dataset; ``words`` are the query's words
    that a lexical list found. Only ``adaptive`` reads these two.
    """

    leg: Leg
    engine: str
    query: str
    origin: SubQueryOrigin
    weight: float
    hits: tuple[tuple[str, float], ...]
    spread: Spread = FLAT
    words: FoundWords = NO_WORDS


class ListContribution(NamedTuple):
    """The part of a chunk's score that comes from one list."""

    source: RankedList
    rank: int
    raw_score: float
    contribution: float


class FusedHit(NamedTuple):
    """A chunk after fusion: ``score`` is the sum of the contributions, in order, plus ``bonus``."""

    chunk_id: str
    score: float
    contributions: tuple[ListContribution, ...]
    bonus: float

    def originals(self, leg: Leg) -> tuple[ListContribution, ...]:
        """Return the contributions of one leg's lists for the user's own query."""
        return tuple(
            part
            for part in self.contributions
            if part.source.leg == leg and part.source.origin == "original"
        )

    @property
    def best_rank(self) -> int:
        """The best rank in any list."""
        return min([part.rank for part in self.contributions])


def rrf(
    lists: Sequence[RankedList],
    *,
    k: int = 60,
    bonus_first: float = 0.05,
    bonus_second: float = 0.02,
    unembedded: AbstractSet[str] = frozenset(),
) -> list[FusedHit]:
    """Fuse by weighted reciprocal ranks with the top-rank bonus; best first.

    Ties are ordered by best single rank, then by chunk id. The lists are not changed.
    """

    def contribution(source: RankedList, rank: int, _score: float) -> float:
        return source.weight / (k + rank)

    def bonus(_chunk: str, parts: Sequence[ListContribution]) -> float:
        original = [part.rank for part in parts if part.source.origin == "original"]
        best = min(original, default=4)
        return bonus_first if best == 1 else bonus_second if best <= 3 else 0.0

    return fuse(lists, contribution, bonus, unembedded)


def relative_score(
    lists: Sequence[RankedList], *, unembedded: AbstractSet[str] = frozenset()
) -> list[FusedHit]:
    """Fuse by the weighted sum of min-max normalised scores; best first, ties as in :func:`rrf`.

    If all scores of a list are equal, each of its passages gets the list's whole weight.
    """
    bounds = {
        id(ranked): (ranked.hits[-1][1], ranked.hits[0][1]) for ranked in lists if ranked.hits
    }

    def contribution(source: RankedList, _rank: int, score: float) -> float:
        low, high = bounds[id(source)]
        return source.weight * ((score - low) / (high - low) if high > low else 1.0)

    return fuse(lists, contribution, unembedded=unembedded)


def single(ranked: RankedList) -> list[FusedHit]:
    """Return one list as fused hits; the score is the engine's own."""
    return [
        FusedHit(chunk_id, score, (ListContribution(ranked, rank, score, score),), 0.0)
        for rank, (chunk_id, score) in enumerate(ranked.hits, start=1)
    ]


def fuse(
    lists: Sequence[RankedList],
    contribution: Callable[[RankedList, int, float], float],
    bonus: Callable[[str, Sequence[ListContribution]], float] = lambda _chunk, _parts: 0.0,
    unembedded: AbstractSet[str] = frozenset(),
) -> list[FusedHit]:
    """Sum up, by passage, the ``contribution`` of each (list, rank, raw score), and the bonus."""
    by_chunk: dict[str, list[ListContribution]] = {}
    both_legs = _weight_for_both(lists)
    for source in lists:
        for rank, (chunk_id, score) in enumerate(source.hits, start=1):
            given = contribution(source, rank, score)
            if chunk_id in unembedded:
                given *= both_legs
            part = ListContribution(source, rank, score, given)
            by_chunk.setdefault(chunk_id, []).append(part)
    fused = []
    for chunk_id, parts in by_chunk.items():
        added = bonus(chunk_id, parts)
        score = sum([part.contribution for part in parts]) + added
        hit = FusedHit(chunk_id, score, tuple(parts), added)
        fused.append((-score, hit.best_rank, chunk_id, hit))
    return [hit for *_, hit in sorted(fused)]


def _weight_for_both(lists: Sequence[RankedList]) -> float:
    """Return the factor for the lexical lists' contributions if they stand for both legs."""
    lexical = sum(ranked.weight for ranked in lists if ranked.leg == "lexical")
    return sum(ranked.weight for ranked in lists) / lexical if lexical > 0 else 1.0
