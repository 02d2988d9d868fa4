"""Fusion whose balance is each query's own: the surer leg counts for more.

Over the first 100 hits of a leg, a lexical list of fewer being filled up with scores of 0,

    z_leg(d) = (score_leg(d) - mean) / deviation
    part_leg(d) = z_leg(d) - min(0, z_leg of the last of them), at least 0; 0 if d is not there
    score(d) = (1 - a) · part_lexical(d) + a · part_vector(d)
    a = 1 / (1 + exp(-(c0 + c1 · flat + c2 · z_lexical(best) + c3 · z_vector(best))))

``flat`` is the lexical mean divided by its best score: near 1 when no passage stands out, near 0
when a rare word is in few. z-scores before a sum: Renda and Straccia 2003. The four constants
were fitted on training queries by ``benchmarks/fusion.py``; ``docs/scoring.md`` tells how they fare
on held-out ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from catalog.search_v2.fusion import FusedHit, RankedList, fuse

DEPTH = 100
_EXTREME = 30.0  # exp of more says nothing new


@dataclass(frozen=True, slots=True)
class Confidence:
    """How sure the two original lists of a query are: the three features of the formula."""

    flat: float
    lexical: float
    vector: float


@dataclass(frozen=True, slots=True)
class Balance:
    """The four constants of the formula."""

    constant: float = -0.39
    flat: float = 3.12
    lexical: float = -0.41
    vector: float = 0.44

    def vector_share(self, features: Confidence) -> float:
        """Return ``a``: the vector leg's share of the score, between 0 and 1."""
        logit = (
            self.constant
            + self.flat * features.flat
            + self.lexical * features.lexical
            + self.vector * features.vector
        )
        return 1 / (1 + math.exp(-max(-_EXTREME, min(_EXTREME, logit))))


FITTED = Balance()


@dataclass(frozen=True, slots=True)
class Scale:
    """How a list's raw scores become parts: ``(score - mean) / deviation - floor``, not below 0."""

    mean: float
    deviation: float
    floor: float
    flat: float
    best: float

    @classmethod
    def of(cls, ranked: RankedList) -> Scale:
        """Return the scale of one list, from its first :data:`DEPTH` hits."""
        scores = [score for _, score in ranked.hits[:DEPTH]]
        if not scores:
            return cls(0.0, 1.0, 0.0, 0.0, 0.0)
        reference = scores
        if ranked.leg == "lexical":  # a passage without any of the words scores 0
            reference = scores + [0.0] * (DEPTH - len(scores))
        mean = math.fsum(reference) / len(reference)
        spread = math.fsum((score - mean) ** 2 for score in reference)
        deviation = math.sqrt(spread / len(reference)) or 1.0
        return cls(
            mean=mean,
            deviation=deviation,
            floor=min(0.0, (scores[-1] - mean) / deviation),
            flat=mean / scores[0] if scores[0] > 0 else 0.0,
            best=(scores[0] - mean) / deviation,
        )

    def part(self, score: float) -> float:
        """Return a raw score on this scale, at least 0."""
        return max(0.0, (score - self.mean) / self.deviation - self.floor)


def adaptive(
    lists: Sequence[RankedList],
    balance: Balance = FITTED,
    *,
    unembedded: AbstractSet[str] = frozenset(),
) -> list[FusedHit]:
    """Fuse the lists, each weighted by its own and its leg's share; ties as in ``rrf``.

    The balance is struck over the original query's two lists. A leg that is alone has all of it.
    """
    shares = _balance_legs(lists, balance)
    weighted = [replace(ranked, weight=ranked.weight * shares[ranked.leg]) for ranked in lists]
    scales = {id(ranked): Scale.of(ranked) for ranked in weighted}

    def contribution(source: RankedList, _rank: int, score: float) -> float:
        return source.weight * scales[id(source)].part(score)

    return fuse(weighted, contribution, unembedded=unembedded)


def confidence(lexical: RankedList, vector: RankedList) -> Confidence:
    """Return the formula's three features."""
    of_lexical, of_vector = Scale.of(lexical), Scale.of(vector)
    return Confidence(of_lexical.flat, of_lexical.best, of_vector.best)


def _balance_legs(lists: Sequence[RankedList], balance: Balance) -> dict[str, float]:
    original = {ranked.leg: ranked for ranked in lists if ranked.origin == "original"}
    if len(original) < 2:
        return {"lexical": 1.0, "vector": 1.0}
    share = balance.vector_share(confidence(original["lexical"], original["vector"]))
    return {"lexical": 1 - share, "vector": share}
