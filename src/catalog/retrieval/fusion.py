"""Fuse ranked lists into one, by pure functions over the keys of passages.

In all ways to fuse, a passage that is ``unembedded`` cannot be in the vector lists. What it gets
from the lexical lists is therefore scaled up for both legs, by the weights of all lists over those
of the lexical ones.

``adaptive`` has a balance for each query: meaning counts more, the less the best keyword hit has.

    a = 1 - (1 - base - shift) · min(1, cover / .8) ** (2 · known)
    score(d) = (1 - a) · part_lexical(d) + a · part_vector(d)

``cover`` is the share of the query's different words that the best keyword hit contains; four in
five count as all. Of a pasted query hits that share sentences with it are passed over, and words
count by their idf. ``shift`` belongs to the dataset: it is negative if the model does not know the
language of the passages, -1 if the vectors are useless, and 1 if the words are. ``known`` is the
share of passages in languages that the model knows.

A rare word of a typed query decides more than common ones: ``rerere.enabled`` in "I get an error
with rerere.enabled". ``rarity`` (0 to 1) says how rare it is:

    rarity = (idf / idf(1) - .8) / .2, cut to 0..1, with idf(1) of a word in a single passage
    cover  = max(cover, .8 · rarity)  if the best keyword hit contains the word
    score += rarity or rarity / 2     of each passage that contains it: more for a word that looks
                                      like a name (digits, capitals or signs within), which also
                                      counts as rarer than every other word

A query of one to three keywords and nothing else asks for passages with these words:

    score += 3                        of each passage that contains all of them
    score += 3                        of each passage that contains them as they are written,
                                      2 with other joints: XK320 for XK-320

All of this is multiplied by the lexical list's weight. The score is in deviations, so meaning
outweighs it only if it is far more certain.

    part_leg(d) = (score_leg(d) - floor_leg) / deviation_leg, at least 0; 0 if d is not in the list

The deviation is that of the scores of all chunks of the dataset for this query. The floor is the
score of the list's 100th hit. A lexical list with fewer hits has the floor 0, because all other
chunks have none of the words; a vector list with fewer has the score of its last hit. This is a sum
of z-scores: Renda and Straccia 2003. ``docs/evidence/quality.md`` has the measurements.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, NamedTuple

from catalog.core.query import SubQueryOrigin
from catalog.store.engines import term_weight
from catalog.store.restriction import FLAT, Spread

Leg = Literal["lexical", "vector"]
Key = int | str
"""A passage: its row number in the store, or the id of another retriever's node."""

DEPTH = 100
# A prior, like Balance.base: fitted values did worse on collections left out (docs/decisions/0047).
_ENOUGH = 0.8  # of the query's words: a question also has words that no answer has
_STEEPNESS = 2.0
_RARE = 0.8  # of the highest idf: reached by a word in 4 of 500 passages or in 11 of 50,000
HAS_WORDS = 3.0  # deviations that a passage gains by all keywords of a query of up to three
AS_WRITTEN = 3.0  # and those that it gains by having them as they are written
OTHER_JOINTS = 2 / 3  # the share of AS_WRITTEN for a name with other joints: XK320 for XK-320
_FOREIGN = -0.35  # the shift where the model knows the language of no passage


@dataclass(frozen=True, slots=True)
class FoundWords:
    """The words of a query that its hits contain.

    ``cover`` is the share (0 to 1) in ``first``, the best keyword hit that does not just repeat the
    query. ``covers`` has the share in each hit, weighted by ``weights``, the words' idf, as far as
    the index knows. ``rare`` are the passages with the rarest word, ``rarity`` (0 to 1) says how
    rare it is, and ``is_name`` whether it looks like a name.
    """

    cover: float = 1.0
    weights: Mapping[str, float] = field(default_factory=dict)
    rare: AbstractSet[Key] = frozenset()
    rarity: float = 0.0
    is_name: bool = False
    first: Key | None = None
    covers: Mapping[Key, float] = field(default_factory=dict)


NO_WORDS = FoundWords()


class RankedList(NamedTuple):
    """The ranked list of one leg for one sub-query: distinct keys with raw scores.

    ``spread`` is that of the scores of all chunks of the dataset; ``words`` are the query's words
    that a lexical list found. Only ``adaptive`` reads these two.
    """

    leg: Leg
    engine: str
    query: str
    origin: SubQueryOrigin
    weight: float
    hits: Sequence[tuple[Key, float]]
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

    key: Key
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


@dataclass(frozen=True, slots=True)
class Balance:
    """The rule for the vector leg's share of the score, from the cover of the best keyword hit."""

    base: float = 0.65  # the vector leg's share where that hit has enough of the query
    shift: float = 0.0  # the dataset's own
    known: float = 1.0  # of the dataset's passages, whose language the model knows
    reason: str = ""  # of the shift, for explanations

    @property
    def left_out(self) -> Leg | None:
        """Return the leg that is useless for every query, else ``None``."""
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
    reason="the passages' vectors do not agree with their words, so only words count",
)
BY_MEANING = Balance(
    shift=1.0, reason="searches by words do not find the right passages, so only vectors count"
)


def balance_of_languages(passages: Mapping[str, int], known: Collection[str]) -> Balance:
    """Return the prior balance, shifted by the share of passages whose language the model lacks."""
    from catalog.embedding.profiles import foreign_share

    share = foreign_share(passages, known)
    if not share:
        return PRIOR
    reason = f"the embedding model does not know the language of {share:.0%} of the passages"
    return replace(PRIOR, shift=_FOREIGN * share, known=1 - share, reason=reason)


def rarity_of(passages: int, holding: int) -> float:
    """Return how rare a word is that ``holding`` of ``passages`` passages contain, from 0 to 1.

    A word that no passage contains has the rarity 0.
    """
    if holding == 0:
        return 0.0
    share = term_weight(passages, holding) / term_weight(passages, 1)
    return max(0.0, min(1.0, (share - _RARE) / (1 - _RARE)))


def rrf(
    lists: Sequence[RankedList],
    *,
    k: int = 60,
    bonus_first: float = 0.05,
    bonus_second: float = 0.02,
    unembedded: AbstractSet[Key] = frozenset(),
) -> list[FusedHit]:
    """Fuse by weighted reciprocal ranks (Cormack, Clarke, Büttcher 2009); best first.

    A list adds ``weight / (k + rank)``, with ranks from 1, and the best rank in a list of the
    original query a bonus: first, or second and third. Ties are ordered by best rank, then by key.
    """
    own = [one.hits for one in lists if one.origin == "original"]
    bonuses = dict.fromkeys([key for hits in own for key, _ in hits[1:3]], bonus_second)
    bonuses |= dict.fromkeys([key for hits in own for key, _ in hits[:1]], bonus_first)
    return fuse(lists, lambda one, rank, _score: one.weight / (k + rank), bonuses, unembedded)


def relative_score(
    lists: Sequence[RankedList], *, unembedded: AbstractSet[Key] = frozenset()
) -> list[FusedHit]:
    """Fuse by the weighted sum of min-max normalised scores; best first, ties as in :func:`rrf`.

    If all scores of a list are equal, each of its passages gets the list's whole weight.
    """

    def contribution(source: RankedList, _rank: int, score: float) -> float:
        low, high = source.hits[-1][1], source.hits[0][1]
        return source.weight * ((score - low) / (high - low) if high > low else 1.0)

    return fuse(lists, contribution, unembedded=unembedded)


def adaptive(
    lists: Sequence[RankedList],
    balance: Balance = PRIOR,
    *,
    unembedded: AbstractSet[Key] = frozenset(),
) -> list[FusedHit]:
    """Fuse the lists, each weighted by its own and its leg's share; ties as in :func:`rrf`.

    The balance comes from the two lists of the original query. A single leg gets the whole share.
    """
    original = {ranked.leg: ranked for ranked in lists if ranked.origin == "original"}
    shares: dict[Leg, float] = {"lexical": 1.0, "vector": 1.0}
    if len(original) == 2:
        words = original["lexical"].words
        least = _ENOUGH * words.rarity if words.first in words.rare else 0.0
        share = balance.vector_share(max(words.cover, least))
        shares = {"lexical": 1 - share, "vector": share}
    weighted, bonuses = list[RankedList](), dict[Key, float]()
    scales: dict[int, tuple[float, float]] = {}
    for ranked in lists:
        words, best, spread = ranked.words, ranked.hits[:DEPTH], ranked.spread
        gained = ranked.weight * (words.rarity if words.is_name else words.rarity / 2)
        bonuses |= dict.fromkeys(words.rare, gained)
        is_cut = best and (len(best) == DEPTH or ranked.leg == "vector")
        weighted.append(ranked._replace(weight=ranked.weight * shares[ranked.leg]))
        floor = best[-1][1] if is_cut else 0.0
        scales[id(weighted[-1])] = floor, 1.0 if spread.is_flat else spread.deviation

    def contribution(source: RankedList, _rank: int, score: float) -> float:
        floor, deviation = scales[id(source)]
        return source.weight * max(0.0, (score - floor) / deviation)

    return fuse(weighted, contribution, bonuses, unembedded)


def single(ranked: RankedList) -> list[FusedHit]:
    """Return one list as fused hits; the score is the engine's own."""
    return fuse([ranked], lambda _source, _rank, score: score)


def fuse(
    lists: Sequence[RankedList],
    contribution: Callable[[RankedList, int, float], float],
    bonuses: Mapping[Key, float] = MappingProxyType({}),
    unembedded: AbstractSet[Key] = frozenset(),
) -> list[FusedHit]:
    """Sum up, by passage, the ``contribution`` of each (list, rank, raw score), and the bonus."""
    by_key: dict[Key, list[ListContribution]] = {}
    lexical = sum(ranked.weight for ranked in lists if ranked.leg == "lexical")
    both_legs = sum(ranked.weight for ranked in lists) / lexical if lexical > 0 else 1.0
    for source in lists:
        for rank, (key, score) in enumerate(source.hits, start=1):
            given = contribution(source, rank, score)
            if key in unembedded:
                given *= both_legs
            by_key.setdefault(key, []).append(ListContribution(source, rank, score, given))
    fused = []
    for key, parts in by_key.items():
        added, rank = bonuses.get(key, 0.0), parts[0].rank
        score = parts[0].contribution + added
        if len(parts) > 1:
            rank = min([part.rank for part in parts])
            score = sum([part.contribution for part in parts]) + added
        fused.append((-score, rank, key, FusedHit(key, score, tuple(parts), added)))
    return [hit[3] for hit in sorted(fused)]
