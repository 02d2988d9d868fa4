"""A bound on unsupported sentences: the threshold that labels of one's own say is safe.

A sentence is shown if its score reaches the threshold. Two bounds can be had:

- *with confidence* (the default): of the sentences shown, at most ``most`` are unsupported, in at
  least ``confidence`` of all calibrations. Thresholds are tried from the strictest on; each must be
  safe by the binomial test, and the first that is not ends the search, so that the chance of any
  mistake is that of one test (fixed sequence testing, Angelopoulos et al. 2021, Learn then Test).
- *on average*: conformal risk control (Angelopoulos et al. 2022). Of all sentences, shown or not,
  the expected share of those shown and unsupported is at most ``most``:
  ``(unsupported shown + 1) / (n + 1) <= most``.

Both need labels that are drawn as the questions to come will be, with the same model, index and
settings: see :func:`explain_void`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from catalog.core.errors import InputError

CONFIDENCE = 0.95
_STEPS = 20  # thresholds tried, evenly by the share of labels that they show
_SPARE = 1  # unsupported sentences that the strictest threshold tried has room for


@dataclass(frozen=True, slots=True)
class RiskBound:
    """What is promised: from ``threshold`` on, at most ``most`` of the sentences are unsupported.

    ``confidence`` is ``None`` for a bound on average. ``shown`` is the share of the labels that
    still get shown and ``unsupported`` that of the shown ones labelled so; all are 0 to 1.
    ``made_for`` names the model, index and settings that it holds for.
    """

    threshold: float
    most: float
    confidence: float | None
    labels: int
    shown: float
    unsupported: float
    made_for: Mapping[str, str] = field(default_factory=dict)

    def describe(self) -> str:
        """Return the promise in one sentence."""
        how = "on average" if self.confidence is None else f"with {self.confidence:.0%} confidence"
        of = "all sentences are shown and" if self.confidence is None else "the sentences shown are"
        return (
            f"at most {self.most:.1%} of {of} unsupported, {how}: "
            f"from a score of {self.threshold:.3f} on, which {self.shown:.0%} of "
            f"{self.labels} labels reach ({self.unsupported:.1%} of these unsupported)"
        )


def bound_risk(
    scores: Sequence[float],
    supported: Sequence[bool],
    *,
    most: float,
    confidence: float | None = CONFIDENCE,
    made_for: Mapping[str, str] | None = None,
) -> RiskBound:
    """Return the lowest threshold whose bound holds, from labelled sentences with their scores.

    Raises :class:`InputError` if there are too few labels, saying how many more are needed, or if
    no threshold keeps the bound.
    """
    _check_shares(most, confidence)
    if len(scores) != len(supported):
        raise InputError(f"there are {len(scores)} scores and {len(supported)} labels")
    _require_labels(len(scores), most, confidence)
    ordered = sorted(zip(scores, supported, strict=True), key=lambda pair: -pair[0])
    ends = [
        at
        for at in range(1, len(ordered) + 1)
        if at == len(ordered) or ordered[at][0] < ordered[at - 1][0]
    ]
    wrong = [0]
    for _, is_supported in ordered:
        wrong.append(wrong[-1] + (not is_supported))
    if confidence is None:
        safe = [at for at in ends if (wrong[at] + 1) / (len(ordered) + 1) <= most]
    else:
        safe = _safe_with_confidence(ends, wrong, most, confidence)
    if not safe:
        raise InputError(
            f"no threshold is sure to keep unsupported sentences to {most:.1%} by these labels, "
            f"{wrong[-1]} of {len(ordered)} of which are unsupported: label more, or allow more"
        )
    at = safe[-1]
    return RiskBound(
        threshold=ordered[at - 1][0],
        most=most,
        confidence=confidence,
        labels=len(ordered),
        shown=at / len(ordered),
        unsupported=wrong[at] / at,
        made_for=dict(made_for or {}),
    )


def labels_needed(most: float, confidence: float | None = CONFIDENCE, *, wrong: int = 0) -> int:
    """Return how many labels a bound needs at least if so many of them are unsupported.

    Raises :class:`InputError` for a share or a confidence that is not within 0 and 1.
    """
    _check_shares(most, confidence)
    if confidence is None:
        return math.ceil((wrong + 1) / most) - 1
    n = wrong + 1
    while _binomial_tail(n, wrong, most) > 1 - confidence:
        n += 1
    return n


def explain_void(bound: RiskBound, now: Mapping[str, str]) -> str:
    """Say why a bound does not hold any more, in one sentence; empty if it does.

    ``now`` names the model, index and settings of today, as ``made_for`` those of the labels.
    """
    changed = [
        name
        for name in sorted({*bound.made_for, *now})
        if bound.made_for.get(name) != now.get(name)
    ]
    if not changed:
        return ""
    return (
        f"the bound of {bound.most:.1%} unsupported sentences does not hold any more: "
        f"changed since it was made: {', '.join(changed)}; label anew and calibrate again"
    )


def _check_shares(most: float, confidence: float | None) -> None:
    if not 0 < most < 1 or not (confidence is None or 0 < confidence < 1):
        raise InputError("the share of unsupported sentences and the confidence are within 0 and 1")


def _require_labels(n: int, most: float, confidence: float | None) -> None:
    needed = labels_needed(most, confidence)
    if n < needed:
        raise InputError(
            f"at most {most:.1%} unsupported needs {needed} labelled sentences at least, "
            f"and there are {n}: label {needed - n} more"
        )


def _safe_with_confidence(
    ends: Sequence[int], wrong: Sequence[int], most: float, confidence: float
) -> list[int]:
    """Return how many sentences may be shown, from the strictest threshold to the first unsafe."""
    total = ends[-1]
    start = min(labels_needed(most, confidence, wrong=_SPARE), total)
    levels = [start + (total - start) * step / _STEPS for step in range(_STEPS + 1)]
    tried = dict.fromkeys(next(end for end in ends if end >= level) for level in levels)
    safe = []
    for at in tried:
        if _binomial_tail(at, wrong[at], most) > 1 - confidence:
            break
        safe.append(at)
    return safe


def _binomial_tail(n: int, k: int, chance: float) -> float:
    """Return the chance of at most ``k`` of ``n``, each with that chance."""
    log_chance, log_other = math.log(chance), math.log1p(-chance)
    return min(
        1.0,
        math.fsum(
            math.exp(
                math.lgamma(n + 1)
                - math.lgamma(i + 1)
                - math.lgamma(n - i + 1)
                + i * log_chance
                + (n - i) * log_other
            )
            for i in range(k + 1)
        ),
    )
