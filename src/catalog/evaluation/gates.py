"""Conditions that fail a comparison: ``ndcg@10 < -0.01`` and their like, for use in CI."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from catalog.core.errors import InputError
from catalog.evaluation.comparison import PipelineComparison

_FORM = re.compile(r"\s*([\w@]+)\s*(<=|>=|<|>)\s*([-+]?\d*\.?\d+(?:e[-+]?\d+)?)\s*", re.IGNORECASE)
_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_OTHER_NAMES = {"mrr": "rr", "recall": "r", "hit": "success", "precision": "p"}


@dataclass(frozen=True, slots=True)
class Gate:
    """``metric operator limit``, on the candidate's value minus the baseline's."""

    text: str
    metric: str
    compare: str
    limit: float

    def difference(self, comparison: PipelineComparison) -> float:
        """The difference the gate looks at; raises :class:`InputError` for an unknown metric."""
        values = _differences(comparison)
        if self.metric not in values:
            known = ", ".join(values)
            raise InputError(f"--fail-if {self.text!r}: no metric {self.metric!r}; known: {known}")
        return values[self.metric]

    def trips(self, comparison: PipelineComparison) -> bool:
        """Whether the comparison fails on it."""
        return _OPERATORS[self.compare](self.difference(comparison), self.limit)


def parse_gate(text: str) -> Gate:
    """Read ``ndcg@10 < -0.01``; names in any case, ``mrr``, ``recall`` and ``hit`` understood."""
    form = _FORM.fullmatch(text)
    if form is None:
        raise InputError(f"--fail-if {text!r} is not 'metric < number', such as 'ndcg@10 < -0.01'")
    name, _, depth = form[1].casefold().partition("@")
    base = _OTHER_NAMES.get(name, name)
    return Gate(text, f"{base}@{depth}" if depth else base, form[2], float(form[3]))


def _differences(comparison: PipelineComparison) -> dict[str, float]:
    before, after = comparison.baseline_scores, comparison.candidate_scores
    values = {row.metric.casefold(): row.test.difference for row in comparison.metrics}
    return values | {
        "p50_ms": after.latency.p50 - before.latency.p50,
        "p95_ms": after.latency.p95 - before.latency.p95,
        "empty": after.empty_rate - before.empty_rate,
        "failed": float(after.failed - before.failed),
    }
