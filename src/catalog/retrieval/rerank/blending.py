"""Joining a reranker's scores with the fused order: pure functions over numbers.

Each passage's score is ``fused_part + rerank_part``. With f the fused score, r the reranker's raw
score, p the same as relevance (0 to 1), and n the rank before, from 1:

=========  ==================================  ===================
blend      fused_part                          rerank_part
=========  ==================================  ===================
position   w(n) / n                            (1 - w(n)) · p
linear     (1 - w) · minmax(f)                 w · minmax(r)
replace    0                                   p
=========  ==================================  ===================

``w(n)`` is .75 for the first three, .60 to the tenth, .40 after (the bands of the qmd search).
Minimum and maximum are those of the passages that were scored; a list of equal scores maps to 1.
A passage that was not scored has no rerank part and stays behind those that were.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

BlendName = Literal["position", "linear", "replace"]
_BANDS = ((3, 0.75), (10, 0.60))
_WEIGHT_BEYOND = 0.40


class RerankScore(NamedTuple):
    """A reranker's raw score of one passage, and the same as 0 to 1."""

    raw: float
    relevance: float


class BlendedScore(NamedTuple):
    """The two summands of a passage's score."""

    fused: float
    reranked: float

    @property
    def score(self) -> float:
        """Return their sum."""
        return self.fused + self.reranked


def blend(
    name: BlendName,
    fused: Sequence[float],
    reranked: Sequence[RerankScore],
    *,
    weight: float = 0.3,
) -> list[BlendedScore]:
    """Blend the scores of passages in the fused order.

    ``reranked`` are the scores of the first passages, at most as many as there are; ``weight``
    (0 to 1) is the reranker's share of ``linear``.
    """
    count, ranks = len(reranked), range(1, len(fused) + 1)
    if name == "linear":
        own = [(1 - weight) * part for part in _minmax(fused, count)]
        theirs = [weight * part for part in _minmax([score.raw for score in reranked], count)]
    elif name == "position":
        own = [_band_weight(rank) / rank for rank in ranks]
        theirs = [
            (1 - _band_weight(rank)) * score.relevance
            for rank, score in zip(ranks, reranked, strict=False)
        ]
    else:
        own = [0.0] * len(fused)
        theirs = [score.relevance for score in reranked]
    theirs += [0.0] * (len(fused) - count)
    return [BlendedScore(*parts) for parts in zip(own, theirs, strict=True)]


def sort_positions(scores: Sequence[BlendedScore], scored: int) -> list[int]:
    """Return positions best first: the ``scored`` first ones, then the others; ties in order."""
    return sorted(range(len(scores)), key=lambda n: (n >= scored, -scores[n].score, n))


def _band_weight(rank: int) -> float:
    return next((weight for last, weight in _BANDS if rank <= last), _WEIGHT_BEYOND)


def _minmax(scores: Sequence[float], scored: int) -> list[float]:
    """Scale scores by the range of the first ``scored``: below 0 for what is worse than those."""
    if scored == 0:
        return [0.0] * len(scores)
    low, high = min(scores[:scored]), max(scores[:scored])
    if high > low:
        return [(score - low) / (high - low) for score in scores]
    return [1.0 + min(0.0, score - low) for score in scores]
