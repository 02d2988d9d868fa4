"""Fusion with a balance for each query: meaning counts more, the less the best keyword hit covers.

    a = 1 - (1 - base - shift) · min(1, cover / .8) ** (2 · known)
    score(d) = (1 - a) · part_lexical(d) + a · part_vector(d)

``cover`` is the share of the query's different words that the best keyword hit contains; four in
five count as all. ``shift`` belongs to the dataset: it is
negative if the model does not know the language of the passages, -1 if the vectors are useless, and
1 if the words are. ``known`` is the share of passages in languages that the model
knows.

A rare word decides more than common ones: ``rerere.enabled`` in "I get an error with rerere.enabled
in my program". ``rarity`` (0 to 1) says how rare it is:

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

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from catalog.embedding.profiles import foreign_share
from catalog.retrieval.fusion import FusedHit, Leg, ListContribution, RankedList, fuse
from catalog.store.lexical.base import term_weight

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


def rarity_of(passages: int, holding: int) -> float:
    """Return how rare a word is that ``holding`` of ``passages`` passages contain, from 0 to 1.

    A word that no passage contains has the rarity 0.
    """
    if holding == 0:
        return 0.0
    share = term_weight(passages, holding) / term_weight(passages, 1)
    return max(0.0, min(1.0, (share - _RARE) / (1 - _RARE)))


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
    """Return the prior balance, shifted by the share of passages whose language the model lacks.

    See :func:`~catalog.embedding.profiles.foreign_share`.
    """
    share = foreign_share(passages, known)
    if not share:
        return PRIOR
    reason = f"the embedding model does not know the language of {share:.0%} of the passages"
    return replace(PRIOR, shift=_FOREIGN * share, known=1 - share, reason=reason)


@dataclass(frozen=True, slots=True)
class Scale:
    """The map from a list's raw scores to parts: ``(score - floor) / deviation``, at least 0."""

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

    The balance comes from the two lists of the original query. A single leg gets the whole share.
    """
    shares = _balance_legs(lists, balance)
    weighted = [replace(ranked, weight=ranked.weight * shares[ranked.leg]) for ranked in lists]
    scales = {id(ranked): Scale.of(ranked) for ranked in weighted}

    def contribution(source: RankedList, _rank: int, score: float) -> float:
        return source.weight * scales[id(source)].part(score)

    bonuses = {
        chunk: ranked.weight * ranked.words.bonus for ranked in lists for chunk in ranked.words.rare
    }

    def bonus(chunk: str, _parts: Sequence[ListContribution]) -> float:
        return bonuses.get(chunk, 0.0)

    return fuse(weighted, contribution, bonus, unembedded)


def _balance_legs(lists: Sequence[RankedList], balance: Balance) -> dict[str, float]:
    original = {ranked.leg: ranked for ranked in lists if ranked.origin == "original"}
    if len(original) < 2:
        return {"lexical": 1.0, "vector": 1.0}
    hits, words = original["lexical"].hits, original["lexical"].words
    is_rare_found = bool(hits) and hits[0][0] in words.rare
    cover = max(words.cover, _ENOUGH * words.rarity) if is_rare_found else words.cover
    share = balance.vector_share(cover)
    return {"lexical": 1 - share, "vector": share}
