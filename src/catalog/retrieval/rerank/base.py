"""The interface of every reranker, and the checks of its answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from catalog.core.errors import RerankError


class Reranker(Protocol):
    """A model that reads query and passage together. Building one is cheap; it loads at first use.

    One reranker may be asked from several threads at once. Two methods are used where they exist:
    ``scores_within(query, passages, seconds)``, which is :meth:`scores` but gives up after that
    time, and ``learn(scores)``, which is shown raw scores, cached ones too, before any of them is
    given to :meth:`relevance`. With an attribute ``chooses_sentences`` that is true it is also
    asked for each sentence of the passages of recordings that are shown.
    """

    @property
    def name(self) -> str:
        """Return the model's name for explanations, such as ``ms-marco-MiniLM-L-12-v2``."""
        ...

    @property
    def fingerprint(self) -> str:
        """Return a name for the exact weights, or model and prompt: equal ones score equally.

        Raises :class:`~catalog.core.errors.ModelUnavailableError`.
        """
        ...

    @property
    def batch_size(self) -> int:
        """Return how many passages one call of :meth:`scores` should be given at most."""
        ...

    def fit(self, query: str, passage: str, *, head: str = "") -> tuple[str, bool]:
        """Return what is read beside the query, and whether any of the passage was cut.

        That is ``head`` (such as title and headings) on a line of its own, and the run of the
        passage that fits under it. See :mod:`catalog.retrieval.rerank.excerpts`.
        """
        ...

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        """Return one finite raw score for each passage, in order; higher is better.

        Raw scores of one :attr:`fingerprint` are on one scale, whichever call gave them.
        ``passages`` are as :meth:`fit` gives them. Raises
        :class:`~catalog.core.errors.RerankError` for a failure or an answer that cannot be used,
        and :class:`~catalog.core.errors.ConfigError` when the model cannot be had at all.
        """
        ...

    def relevance(self, score: float) -> float:
        """Map a raw score to 0..1, in the same order."""
        ...


def check_scores(scores: Sequence[float], count: int, name: str) -> list[float]:
    """Return the scores as floats; raise :class:`RerankError` unless ``count``, all finite."""
    if len(scores) != count:
        raise RerankError(f"{name} gave {len(scores)} scores for {count} passages")
    try:
        numbers = [float(score) for score in scores]
    except (TypeError, ValueError, OverflowError) as error:
        raise RerankError(f"{name} gave a score that is no number") from error
    if not all(map(math.isfinite, numbers)):
        raise RerankError(f"{name} gave a score that is not finite")
    return numbers


def sigmoid(logit: float) -> float:
    """Compute ``1 / (1 + exp(-logit))``, for logits of any size."""
    if logit >= 0:
        return 1 / (1 + math.exp(-logit))
    power = math.exp(logit)
    return power / (1 + power)
