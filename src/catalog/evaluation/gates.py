"""Conditions that fail a comparison, such as ``ndcg@10 < -0.01``, for use in CI."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from catalog.core.errors import BlindComparisonError, InputError
from catalog.evaluation.comparison import PipelineComparison
from catalog.evaluation.metrics import QUALITY, RunScores

_FORM = re.compile(r"\s*([\w@]+)\s*(<=|>=|<|>)\s*([-+]?\d*\.?\d+(?:e[-+]?\d+)?)\s*", re.IGNORECASE)
_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ALIASES = {"mrr": "rr", "recall": "r", "hit": "success", "precision": "p"}
KNOWN = (*(name.casefold() for name in QUALITY), "p50_ms", "p95_ms", "empty", "failed")


@dataclass(frozen=True, slots=True)
class Gate:
    """``metric operator limit``, on the candidate's value minus the baseline's."""

    text: str
    metric: str
    compare: str
    limit: float

    def difference(self, comparison: PipelineComparison) -> float:
        """Return the difference that the gate looks at; NaN where a search was not timed."""
        return _differences(comparison)[self.metric]

    def trips(self, comparison: PipelineComparison) -> bool:
        """Return whether the comparison fails; raises :class:`BlindComparisonError` if untimed."""
        difference = self.difference(comparison)
        if math.isnan(difference):
            raise BlindComparisonError(f"--fail-if {self.text!r}: one of the two was not timed")
        return _OPERATORS[self.compare](difference, self.limit)


def parse_gate(text: str) -> Gate:
    """Read ``ndcg@10 < -0.01``; names in any case, ``mrr``, ``recall`` and ``hit`` understood.

    Raises :class:`InputError` for another form or an unknown metric.
    """
    form = _FORM.fullmatch(text)
    if form is None:
        raise InputError(f"--fail-if {text!r} is not 'metric < number', such as 'ndcg@10 < -0.01'")
    name, _, depth = form[1].casefold().partition("@")
    base = _ALIASES.get(name, name)
    metric = f"{base}@{depth}" if depth else base
    if metric not in KNOWN:
        raise InputError(f"--fail-if {text!r}: no metric {metric!r}; known: {', '.join(KNOWN)}")
    return Gate(text, metric, form[2], float(form[3]))


def _ms(scores: RunScores, which: Literal["p50", "p95"]) -> float:
    return math.nan if scores.latency is None else float(getattr(scores.latency, which))


def _differences(comparison: PipelineComparison) -> dict[str, float]:
    before, after = comparison.baseline_scores, comparison.candidate_scores
    values = {row.metric.casefold(): row.test.difference for row in comparison.metrics}
    return values | {
        "p50_ms": _ms(after, "p50") - _ms(before, "p50"),
        "p95_ms": _ms(after, "p95") - _ms(before, "p95"),
        "empty": after.empty_rate - before.empty_rate,
        "failed": float(after.failed - before.failed),
    }
