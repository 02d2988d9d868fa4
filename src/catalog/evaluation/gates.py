"""Conditions that fail a comparison, for use in CI: ``ndcg@10 worse``, ``p95_ms > 50``.

A quality metric is decided on bounds of its mean paired difference, because the measured difference
is mostly noise; see :func:`~catalog.evaluation.significance.bound_losses`.

==============================  ===================================================================
``ndcg@10 worse``               a loss is shown (one-sided test)
``ndcg@10 worse by 0.02``       a loss of more than .02 is shown
``ndcg@10 not as good within``  a loss of .02 or more is not ruled out
``0.02``                        (non-inferiority is not shown)
``ndcg@10 not equivalent``      a difference of .02 or more is not ruled out in one direction or the
``within 0.02``                 other (equivalence is not shown: TOST, Schuirmann 1987)
==============================  ===================================================================
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from catalog.core.errors import BlindComparisonError, InputError
from catalog.evaluation.comparison import PipelineComparison
from catalog.evaluation.metrics import PRIMARY, QUALITY, find_metric, timing
from catalog.evaluation.runs import QueryOutcome
from catalog.evaluation.significance import LEVEL, MIN_QUERIES, TIE, LossBounds, bound_losses

Form = Literal["worse", "not as good", "not equivalent", "as measured"]

_NUMBER = r"[-+]?(?:\d++(?:\.\d++)?|\.\d++)(?:e[-+]?\d++)?"
_MEASURED = re.compile(rf"([\w@]+)\s*(<=|>=|<|>)\s*({_NUMBER})", re.IGNORECASE)
_SHOWN = re.compile(
    rf"([\w@]+)\s+(?:(worse)(?:\s+by\s+({_NUMBER}))?|(not\s+as\s+good|not\s+equivalent)"
    rf"\s+within\s+({_NUMBER}))",
    re.IGNORECASE,
)
_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
MEASURED = ("p50_ms", "p95_ms", "empty", "failed")
FORMS = (
    "'ndcg@10 worse', 'ndcg@10 worse by 0.02', 'ndcg@10 not as good within 0.02', "
    "'ndcg@10 not equivalent within 0.02' or 'p95_ms > 50'"
)
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Gate:
    """One condition. ``limit`` is the margin, from 0 to 1, or the number after ``operator``."""

    text: str
    metric: str
    form: Form
    limit: float
    operator: str = ""

    def decide(self, comparison: PipelineComparison) -> GateResult:
        """Decide whether the comparison fails.

        Raises :class:`BlindComparisonError` if that cannot be decided: fewer queries than
        :data:`~catalog.evaluation.significance.MIN_QUERIES`, or a search that was not timed.
        """
        if self.form == "as measured":
            difference = self.measure_difference(
                list(comparison.baseline.outcomes.values()),
                list(comparison.candidate.outcomes.values()),
            )
            if math.isnan(difference):
                raise BlindComparisonError(f"--fail-if {self.text!r}: one of the two has no times")
            return GateResult(self, self.holds(difference), difference)
        differences = self.require_differences(comparison)
        bounds = bound_losses(differences[None, :])
        failed, mean = bool(self.fails(bounds)[0]), float(differences.mean())
        if self.form == "worse":
            low, high, p = bounds.low, bounds.high, float(bounds.p[0])
            return GateResult(self, failed, mean, float(low[0]), float(high[0]), p)
        return GateResult(self, failed, mean, float(bounds.safe_low[0]), float(bounds.safe_high[0]))

    def require_differences(self, comparison: PipelineComparison) -> npt.NDArray[np.float64]:
        """Return the metric's differences by query; raise if they are too few."""
        differences = comparison.differences(self.metric)
        if not differences.size:
            raise BlindComparisonError(
                f"--fail-if {self.text!r}: not measured; that needs labels with spans, and hits "
                "with their text or times"
            )
        if differences.size < MIN_QUERIES:
            raise BlindComparisonError(
                f"--fail-if {self.text!r}: {differences.size} queries with answers are too few "
                f"to decide; label at least {MIN_QUERIES}"
            )
        return differences

    def measure_difference(
        self, baseline: Sequence[QueryOutcome], candidate: Sequence[QueryOutcome]
    ) -> float:
        """Return the candidate's measurement minus the baseline's, or NaN."""
        return _measure(self.metric, candidate) - _measure(self.metric, baseline)

    def holds(self, difference: float) -> bool:
        """Return whether a measured difference exceeds the number."""
        return _OPERATORS[self.operator](difference, self.limit)

    def fails(self, bounds: LossBounds) -> npt.NDArray[np.bool_]:
        """Return for each comparison of these bounds whether it fails."""
        no_loss = bounds.safe_low > -self.limit + _ROUNDING
        no_gain = bounds.safe_high < self.limit - _ROUNDING
        if self.form == "not as good":
            return np.logical_not(no_loss)
        if self.form == "not equivalent":
            return np.logical_not(no_loss & no_gain)
        return np.logical_and(bounds.high < -self.limit - _ROUNDING, bounds.p < LEVEL)


@dataclass(frozen=True, slots=True)
class GateResult:
    """Whether a gate fails the comparison, and the numbers that decide it.

    ``difference`` is candidate minus baseline. ``low`` and ``high`` are its bounds, each at 5 %,
    and ``p`` that of a loss; ``None`` if the gate does not use them.
    """

    gate: Gate
    failed: bool
    difference: float
    low: float | None = None
    high: float | None = None
    p: float | None = None


def parse_gate(text: str) -> Gate:
    """Read a condition; names in any case, also ``mrr``, ``recall`` and ``hit``.

    Raises :class:`InputError` for another form, an unknown metric or a margin outside 0 to 1. A
    quality metric compared by its measured difference is refused, too; the message names the right
    form.
    """
    measured = _MEASURED.fullmatch(text.strip())
    if measured is not None:
        name, sign, number = measured[1].casefold(), measured[2], measured[3]
        if name in MEASURED:
            return Gate(text, name, "as measured", float(number), sign)
        _require_metric(text, name)
        raise InputError(_refusal(text, name, sign, abs(float(number))))
    shown = _SHOWN.fullmatch(text.strip())
    if shown is None:
        raise InputError(f"--fail-if {text!r} is not a gate such as {FORMS}")
    if shown[1].casefold() in MEASURED:
        raise InputError(f"--fail-if {text!r}: {shown[1]} has no bounds; say '{shown[1]} > 0'")
    metric = _require_metric(text, shown[1])
    number = shown[3] or shown[5]
    if number is not None and not 0 < float(number) < 1:
        raise InputError(
            f"--fail-if {text!r}: the margin must be above 0 and below 1, not {number}"
        )
    words = (shown[2] or shown[4]).casefold()
    form: Form = "worse" if words == "worse" else "not as good"
    if words.endswith("equivalent"):
        form = "not equivalent"
    return Gate(text, metric, form, float(number or 0))


def gate_lines(results: Sequence[GateResult]) -> Iterator[str]:
    """Yield a line for each gate: whether it failed the comparison, and the numbers."""
    if results:
        yield ""
    for result in results:
        yield f"{gate_mark(result)}  {result.gate.text}: {gate_detail(result)}"


def gate_mark(result: GateResult) -> str:
    """Return ``FAILED`` or ``passed``."""
    return "FAILED" if result.failed else "passed"


def gate_detail(result: GateResult) -> str:
    """Return the difference, its bounds and the probability of a loss, which decide."""
    detail = f"difference {result.difference:+.3f}"
    if result.low is not None and result.high is not None:
        detail += f", bounds [{result.low:+.3f}, {result.high:+.3f}], each at 5 %"
    if result.p is not None:
        detail += f", p = {result.p:.4f} of a loss"
    return detail


def gate_dict(result: GateResult) -> dict[str, Any]:
    """Return the same as data."""
    return {
        "metric": result.gate.metric,
        "form": result.gate.form,
        "limit": result.gate.limit,
        **asdict(result),
        "gate": result.gate.text,
    }


def _require_metric(text: str, name: str) -> str:
    metric = find_metric(name)
    if metric is None:
        known = ", ".join([*(one.casefold() for one in QUALITY), *MEASURED])
        raise InputError(f"--fail-if {text!r}: no metric {name!r}; known: {known}")
    return metric


def _refusal(text: str, name: str, sign: str, limit: float) -> str:
    """Name the form to use instead of a measured difference."""
    margin = f"{limit:g}"
    forms = [f"'{name} worse'"]
    if sign[0] == "<" and 0 < limit < 1:
        forms += [f"'{name} worse by {margin}'", f"'{name} not as good within {margin}'"]
    else:
        forms += [f"'{name} not as good within 0.02'"]
    return (
        f"--fail-if {text!r} would fire on noise, because {name} is decided on the bounds of "
        f"its difference. Write {', '.join(forms[:-1])} or {forms[-1]}"
    )


def _measure(name: str, outcomes: Sequence[QueryOutcome]) -> float:
    """Return milliseconds, a share or a count over all queries; NaN if nothing was timed."""
    if name == "failed":
        return float(sum(bool(outcome.error) for outcome in outcomes))
    if name == "empty":
        answered = sum(bool(one.answer is not None and one.answer.hits) for one in outcomes)
        return 1 - answered / len(outcomes)
    times = timing(ms for outcome in outcomes for ms in outcome.ms)
    return math.nan if times is None else times.p50 if name == "p50_ms" else times.p95


REPETITIONS = 1_000
USUAL_GATES = (
    "ndcg@10 worse",
    "ndcg@10 not as good within 0.02",
    "ndcg@10 not as good within 0.05",
    "ndcg@10 not equivalent within 0.05",
)
_RESAMPLES = 2_000  # of each repetition; a decided gate draws 10,000
_ROWS = 50  # repetitions at a time


def count_false_alarms(
    comparison: PipelineComparison,
    gates: Sequence[Gate] = (),
    *,
    repetitions: int = REPETITIONS,
    seed: int = 0,
) -> dict[str, Any]:
    """Count how often each gate fires although neither side is better; by default the usual gates.

    Each repetition draws as many queries as there are, with replacement, and a coin assigns the two
    answers to the two sides. Both sides are then the same search, which gives either answer with
    equal probability, so a gate that fires is a false alarm. This estimates the probability of a
    false alarm for a change that alters as many queries, and as much, as these two runs differ,
    without being better or worse on the whole. With the same search on both sides only its own
    randomness is left. ``differing`` counts queries whose deciding metric differs.

    Raises like :meth:`Gate.decide`. Takes seconds; equal arguments give equal counts.
    """
    differences = comparison.differences(PRIMARY)
    counts = {
        gate.text: _count_fired(comparison, gate, repetitions, seed)
        for gate in gates or map(parse_gate, USUAL_GATES)
    }
    return {
        "repetitions": repetitions,
        "queries": differences.size,
        "differing": int((abs(differences) > TIE).sum()),
        "gates": [
            {"gate": text, "fired": fired, "share": fired / repetitions}
            for text, fired in counts.items()
        ],
    }


def false_alarm_lines(counted: Mapping[str, Any]) -> Iterator[str]:
    """Yield how often each gate fires falsely, and the number of comparisons for the estimate."""
    yield ""
    yield (
        f"A/A: how often each gate fires for nothing, of {counted['repetitions']:,} comparisons in "
        "which neither side is better."
    )
    yield (
        f"Each deals the two answers of a query by a coin; {PRIMARY} differs on "
        f"{counted['differing']} of {counted['queries']} queries."
    )
    for alarm in counted["gates"]:
        yield f"  {alarm['share']:6.1%}  {alarm['gate']}"


def _count_fired(comparison: PipelineComparison, gate: Gate, repetitions: int, seed: int) -> int:
    generator = np.random.default_rng(seed)
    if gate.form == "as measured":
        pairs = [
            (comparison.baseline.outcomes[query.id], comparison.candidate.outcomes[query.id])
            for query in comparison.golden
        ]
        gate.decide(comparison)  # raises if nothing was timed
        return sum(
            gate.holds(gate.measure_difference(*zip(*_deal(pairs, generator), strict=True)))
            for _ in range(repetitions)
        )
    differences = gate.require_differences(comparison)
    n, fired = differences.size, 0
    for start in range(0, repetitions, _ROWS):
        shape = (min(_ROWS, repetitions - start), n)
        coins = 2.0 * generator.integers(0, 2, size=shape) - 1.0
        dealt = coins * differences[generator.integers(0, n, size=shape)]
        bounds = bound_losses(dealt, resamples=_RESAMPLES, seed=seed + start)
        fired += int(gate.fails(bounds).sum())
    return fired


def _deal(pairs: Sequence[Any], generator: np.random.Generator) -> Iterator[Any]:
    chosen = generator.integers(0, len(pairs), size=len(pairs))
    coins = generator.integers(0, 2, size=len(pairs))
    for index, coin in zip(chosen, coins, strict=True):
        yield pairs[index][::-1] if coin else pairs[index]
