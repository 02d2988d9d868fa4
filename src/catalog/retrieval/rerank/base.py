"""The interface of every reranker, and the checks of its answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from catalog.core.errors import RerankError


class Reranker(Protocol):
    """A model that reads query and passage together. It is cheap to make and loads at first use.

    Several threads may use one reranker at once. Two more methods are used if they exist:
    ``scores_within(query, passages, seconds)`` is :meth:`scores` with a time limit;
    ``learn(scores)`` gets raw scores, cached ones too, before any of them is passed to
    :meth:`relevance`. If an attribute ``chooses_sentences`` is true, the reranker also scores the
    sentences of recordings' passages that are shown.
    """

    @property
    def name(self) -> str:
        """Return the model's name for explanations, such as ``ms-marco-MiniLM-L-12-v2``."""
        ...

    @property
    def fingerprint(self) -> str:
        """Identify the exact weights, or model and prompt: equal fingerprints score equally.

        Raises :class:`~catalog.core.errors.ModelUnavailableError`.
        """
        ...

    @property
    def batch_size(self) -> int:
        """Return the largest number of passages for one call of :meth:`scores`."""
        ...

    def fit(self, query: str, passage: str, *, head: str = "") -> tuple[str, bool]:
        """Return the text to read together with the query, and whether the passage was cut.

        The text is ``head`` (such as title and headings) on its own line, then the run of the
        passage that fits. See :mod:`catalog.retrieval.rerank.excerpts`.
        """
        ...

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        """Return one finite raw score for each passage, in order; higher is better.

        Raw scores of one :attr:`fingerprint` are comparable across calls. ``passages`` are results
        of :meth:`fit`. Raises :class:`~catalog.core.errors.RerankError` for a failure or an
        unusable answer, and :class:`~catalog.core.errors.ConfigError` if the model is not available
        at all.
        """
        ...

    def relevance(self, score: float) -> float:
        """Map a raw score to 0..1; the order stays the same."""
        ...


def check_scores(scores: Sequence[float], count: int, name: str) -> list[float]:
    """Return the scores as floats; raise :class:`RerankError` unless ``count`` and all finite."""
    if len(scores) != count:
        raise RerankError(f"{name} returned {len(scores)} scores for {count} passages")
    try:
        numbers = [float(score) for score in scores]
    except (TypeError, ValueError, OverflowError) as error:
        raise RerankError(f"{name} returned a score that is not a number") from error
    if not all(map(math.isfinite, numbers)):
        raise RerankError(f"{name} returned a score that is not finite")
    return numbers


def sigmoid(logit: float) -> float:
    """Compute ``1 / (1 + exp(-logit))``, for logits of any size."""
    if logit >= 0:
        return 1 / (1 + math.exp(-logit))
    power = math.exp(logit)
    return power / (1 + power)
