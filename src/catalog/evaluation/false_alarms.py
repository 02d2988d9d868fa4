"""How often a gate fires for nothing, estimated by A/A comparisons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from catalog.evaluation.comparison import PipelineComparison
from catalog.evaluation.gates import Gate, parse_gate
from catalog.evaluation.loss_bounds import bound_losses
from catalog.evaluation.metrics import PRIMARY

REPETITIONS = 1_000
USUAL_GATES = (
    "ndcg@10 worse",
    "ndcg@10 not as good within 0.02",
    "ndcg@10 not as good within 0.05",
    "ndcg@10 not equivalent within 0.05",
)
_RESAMPLES = 2_000  # of each repetition; a decided gate draws 10,000
_ROWS = 50  # repetitions at a time


@dataclass(frozen=True, slots=True)
class FalseAlarms:
    """``fired`` of ``repetitions`` A/A comparisons in which a gate failed."""

    gate: str
    fired: int
    repetitions: int

    @property
    def share(self) -> float:
        """Return the estimated chance of a false alarm."""
        return self.fired / self.repetitions


def count_false_alarms(
    comparison: PipelineComparison,
    gates: Sequence[Gate] = (),
    *,
    repetitions: int = REPETITIONS,
    seed: int = 0,
) -> list[FalseAlarms]:
    """Count how often each gate fires when neither side is better; the usual gates if none.

    Each repetition draws as many queries as there are, with replacement, and deals the two answers
    to each to the two sides by a coin. Both sides are then one search, that answers as either of
    the two does, so whatever fires does so for nothing. Hence this estimates the chance of a false
    alarm for a change that alters as many queries, as much, as lie between these two, and is worth
    nothing on the whole. With one search on both sides only its own unsteadiness is left.

    Raises as :meth:`Gate.decide` does. Costs seconds; equal arguments give equal counts.
    """
    chosen = gates or [parse_gate(text) for text in USUAL_GATES]
    return [
        FalseAlarms(gate.text, _count_fired(comparison, gate, repetitions, seed), repetitions)
        for gate in chosen
    ]


def false_alarm_lines(
    comparison: PipelineComparison, alarms: Sequence[FalseAlarms]
) -> Iterator[str]:
    """Yield how often each gate fires for nothing, and what that was estimated from."""
    told = false_alarm_dict(comparison, alarms)
    yield ""
    yield (
        f"A/A: how often each gate fires for nothing, of {told['repetitions']:,} comparisons in "
        "which neither side is better."
    )
    yield (
        f"Each deals the two answers of a query by a coin; {PRIMARY} differs on "
        f"{told['differing']} of {told['queries']} queries."
    )
    for alarm in alarms:
        yield f"  {alarm.share:6.1%}  {alarm.gate}"


def false_alarm_dict(
    comparison: PipelineComparison, alarms: Sequence[FalseAlarms]
) -> dict[str, Any]:
    """Return the same as data; ``differing`` counts queries whose deciding metric differs."""
    differences = comparison.differences(PRIMARY)
    return {
        "repetitions": alarms[0].repetitions,
        "queries": differences.size,
        "differing": int((abs(differences) > 1e-9).sum()),
        "gates": [{"gate": one.gate, "fired": one.fired, "share": one.share} for one in alarms],
    }


def _count_fired(comparison: PipelineComparison, gate: Gate, repetitions: int, seed: int) -> int:
    generator = np.random.default_rng(seed)
    if gate.form == "as measured":
        pairs = [
            (comparison.baseline.outcomes[query.id], comparison.candidate.outcomes[query.id])
            for query in comparison.golden
        ]
        gate.decide(comparison)  # raises where nothing was timed
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
