"""Fusion whose balance is each query's own: what the best keyword hit lacks, meaning makes up for.

    a = 1 - (1 - base - shift) · min(1, cover / .8) ** (2 · known)
    score(d) = (1 - a) · part_lexical(d) + a · part_vector(d)

``cover`` is the share of the query's different words that the best keyword hit has; four in five
are as good as all. ``shift`` is the dataset's: what its labels taught, else less where the model
does not know the language of its passages, -1 where its vectors are of no use, and 1 where its
words are not. ``known`` is the share of passages whose language the model knows: vectors of another
make up for nothing.

    part_leg(d) = (score_leg(d) - floor_leg) / deviation_leg, at least 0; 0 if d is not in the list

The deviation is of the scores that the query gives all chunks of the dataset. The floor is the
score of the list's 100th hit. In a lexical list of fewer it is 0, because the other chunks have
none of the words; in such a vector list it is the last one's. A sum of z-scores: Renda and
Straccia 2003. ``docs/scoring.md`` tells how it fares, and how that was measured.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from catalog.search_v2.fusion import FusedHit, Leg, RankedList, fuse

DEPTH = 100
SCALE_VERSION = 4  # of the formula: raise it whenever the same hits would get other scores
_ENOUGH = 0.8  # of the query's words: a question also has words that no answer has
_STEEPNESS = 2.0
_LEAST_FOREIGN = 0.2  # of the passages: fewer may be short ones that were mistaken
_FOREIGN = -0.35  # the shift where the model knows the language of no passage


@dataclass(frozen=True, slots=True)
class Balance:
    """How the vector leg's share of the score follows from what the best keyword hit has."""

    base: float = 0.65  # the vector leg's share where that hit has enough of the query
    shift: float = 0.0  # the dataset's own
    known: float = 1.0  # of the dataset's passages, whose language the model knows
    reason: str = ""  # of the shift, for explanations

    @property
    def left_out(self) -> Leg | None:
        """Return the leg that is of no use for any query, if one is."""
        if self.known == 0 and self.shift <= -1:
            return "vector"
        return "lexical" if self.shift >= 1 else None

    def vector_share(self, cover: float) -> float:
        """Return ``a``, the vector leg's share of the score: 0 to 1."""
        of_words = max(0.0, min(1.0, 1 - self.base - self.shift))
        return 1 - of_words * math.pow(min(1.0, cover / _ENOUGH), _STEEPNESS * self.known)


PRIOR = Balance()
BY_WORDS = Balance(
    shift=-1.0,
    known=0.0,
    reason="the passages' vectors do not agree with their words, so these alone count",
)

BY_MEANING = Balance(
    shift=1.0, reason="what the passages' words find is not theirs, so that vectors alone count"
)


def balance_of_languages(passages: Mapping[str, int], known: Collection[str]) -> Balance:
    """Return the prior, shifted by the share of passages in languages that the model does not know.

    ``passages`` counts them by language, ``""`` where it is not known; an empty ``known`` says
    that the model knows all, or that nothing is known of it. Below a fifth nothing is shifted.
    """
    foreign = sum(count for name, count in passages.items() if name and name not in known)
    share = foreign / max(1, sum(passages.values()))
    if not known or share < _LEAST_FOREIGN:
        return PRIOR
    reason = f"the embedding model does not know the language of {share:.0%} of the passages"
    return replace(PRIOR, shift=_FOREIGN * share, known=1 - share, reason=reason)


@dataclass(frozen=True, slots=True)
class Scale:
    """How a list's raw scores become parts: ``(score - floor) / deviation``, not below 0."""

    floor: float
    deviation: float

    @classmethod
    def of(cls, ranked: RankedList) -> Scale:
        """Return the scale of one list."""
        first = ranked.hits[:DEPTH]
        is_cut = len(first) == DEPTH or ranked.leg == "vector"
        floor = first[-1][1] if first and is_cut else 0.0
        return cls(floor, 1.0 if ranked.spread.is_flat else ranked.spread.deviation)

    def part(self, score: float) -> float:
        """Return a raw score on this scale, at least 0."""
        return max(0.0, (score - self.floor) / self.deviation)


def adaptive(
    lists: Sequence[RankedList],
    balance: Balance = PRIOR,
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


def _balance_legs(lists: Sequence[RankedList], balance: Balance) -> dict[str, float]:
    original = {ranked.leg: ranked for ranked in lists if ranked.origin == "original"}
    if len(original) < 2:
        return {"lexical": 1.0, "vector": 1.0}
    share = balance.vector_share(original["lexical"].cover)
    return {"lexical": 1 - share, "vector": share}
