"""Joining a reranker's scores with the fused order: pure functions over numbers.

Each passage's score is ``fused_part + rerank_part``. With f the fused score, r the reranker's raw
score, p the same as relevance (0 to 1), and n the rank before, from 1:

=========  ==================================  ===================
blend      fused_part                          rerank_part
=========  ==================================  ===================
position   w(n) / n                            (1 - w(n)) · p
linear     (1 - w) · minmax(f)                 w · minmax(r)
rrf        1 / (k + n)                         1 / (k + rank by r)
replace    0                                   p
=========  ==================================  ===================

``w(n)`` is .75 for the first three, .60 to the tenth, .40 after (the bands of the qmd search).
Minimum and maximum are those of the passages that were scored; a list of equal scores maps to 1.
A passage that was not scored has no rerank part and stays behind those that were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

BlendName = Literal["position", "linear", "rrf", "replace"]
_BANDS = ((3, 0.75), (10, 0.60))
_BEYOND = 0.40


@dataclass(frozen=True, slots=True)
class RerankScore:
    """What the reranker said of one passage: its raw score, and that as 0 to 1."""

    raw: float
    relevance: float


@dataclass(frozen=True, slots=True)
class BlendedScore:
    """The two summands of a blended score."""

    fused: float
    reranked: float

    @property
    def score(self) -> float:
        """Their sum."""
        return self.fused + self.reranked


def blend(
    name: BlendName,
    fused: Sequence[float],
    judged: Sequence[RerankScore],
    *,
    weight: float = 0.3,
    k: int = 60,
) -> list[BlendedScore]:
    """The parts of every passage, in the order given, which is the fused one.

    ``judged`` holds the first passages, at most as many as there are. ``weight`` (0 to 1) is the
    reranker's share of ``linear``, ``k`` the constant of ``rrf``.
    """
    reranked = _rerank_parts(name, judged, weight, k)
    reranked += [0.0] * (len(fused) - len(judged))
    own = _fused_parts(name, fused, len(judged), weight, k)
    return [BlendedScore(*pair) for pair in zip(own, reranked, strict=True)]


def sort_positions(parts: Sequence[BlendedScore], scored: int) -> list[int]:
    """Positions best first: the scored ones, then the others; ties keep the fused order."""
    return sorted(range(len(parts)), key=lambda n: (n >= scored, -parts[n].score, n))


def _rerank_parts(
    name: BlendName, judged: Sequence[RerankScore], weight: float, k: int
) -> list[float]:
    if name == "linear":
        return [weight * part for part in _minmax([one.raw for one in judged], len(judged))]
    if name == "rrf":
        best_first = sorted(range(len(judged)), key=lambda n: (-judged[n].raw, n))
        ranks = {n: rank for rank, n in enumerate(best_first, start=1)}
        return [1 / (k + ranks[n]) for n in range(len(judged))]
    if name == "position":
        return [(1 - _band(n)) * one.relevance for n, one in enumerate(judged, start=1)]
    return [one.relevance for one in judged]


def _fused_parts(
    name: BlendName, fused: Sequence[float], scored: int, weight: float, k: int
) -> list[float]:
    if name == "linear":
        return [(1 - weight) * part for part in _minmax(fused, scored)]
    if name == "rrf":
        return [1 / (k + n) for n in range(1, len(fused) + 1)]
    if name == "position":
        return [_band(n) / n for n in range(1, len(fused) + 1)]
    return [0.0] * len(fused)


def _band(rank: int) -> float:
    return next((weight for last, weight in _BANDS if rank <= last), _BEYOND)


def _minmax(scores: Sequence[float], scored: int) -> list[float]:
    """Scores by the range of the first ``scored``: below 0 for what is worse than all those."""
    if scored == 0:
        return [0.0] * len(scores)
    low, high = min(scores[:scored]), max(scores[:scored])
    if high > low:
        return [(score - low) / (high - low) for score in scores]
    return [1.0 + min(0.0, score - low) for score in scores]
