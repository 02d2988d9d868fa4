"""Geometry of a report's charts: numbers that the templates draw as SVG.

Positions are per cent of a chart's width or height, from the left and from the top.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from catalog.evaluation.comparison import QueryDelta
from catalog.evaluation.report_text import View, format_difference, format_ms, format_score, shorten
from catalog.evaluation.significance import TIE, Interval, PairedTest

_MAX_TICKS = 5


@dataclass(frozen=True, slots=True)
class Axis:
    """A linear range with round ticks; with ``sign`` "+" they have a sign."""

    low: float
    high: float
    sign: str = "+"

    def at(self, value: float) -> float:
        """Return a value's position in per cent; values outside are moved to the ends."""
        return _position(value, self.low, self.high)

    @property
    def zero(self) -> float:
        """Return the position of zero."""
        return self.at(0.0)

    @property
    def ticks(self) -> tuple[tuple[float, str], ...]:
        """Return positions and labels of round ticks.

        There are at most five steps, each 1, 2 or 5 times a power of ten.
        """
        step = _round_step((self.high - self.low) / _MAX_TICKS)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        digits = max(0, -math.floor(math.log10(step)))
        return tuple(
            (self.at(n * step), f"{n * step:{self.sign}.{digits}f}".replace("-", "−") if n else "0")
            for n in range(first, last + 1)
        )


def interval_axis(intervals: Iterable[Interval], sign: str = "+") -> Axis:
    """Return an axis wide enough for all intervals, and with a sign for zero."""
    ends = [0.0] if sign == "+" else []
    ends += [end for one in intervals for end in (one.low, one.high)]
    margin = 0.06 * (max(ends) - min(ends)) or 0.01
    return Axis(min(ends) - margin, max(ends) + margin, sign)


def interval_mark(test: PairedTest, axis: Axis, is_sure: bool) -> View:
    """Return a test's interval on the axis; ``is_sure`` if it does not contain 0."""
    low, high = test.interval.low, test.interval.high
    return {
        "low": axis.at(low),
        "high": axis.at(high),
        "point": axis.at(test.difference),
        "side": "unclear" if not is_sure else "better" if test.difference > 0 else "worse",
        "description": (
            f"{format_difference(test.difference)}, "
            f"from {format_difference(low)} to {format_difference(high)}"
        ),
    }


def mean_mark(mean: float, interval: Interval, axis: Axis) -> View:
    """Return a mean with its interval on the axis."""
    low, high = axis.at(interval.low), axis.at(interval.high)
    told = (
        f"{format_score(mean)}, from {format_score(interval.low)} to {format_score(interval.high)}"
    )
    return {"low": low, "high": high, "point": axis.at(mean), "side": "", "description": told}


def delta_chart(deltas: Sequence[QueryDelta], anchors: Mapping[str, str]) -> View:
    """Return one bar for each query, in the given order; ``anchors`` are links by query id."""
    values = [delta.delta for delta in deltas]
    highest, lowest = max(0.05, *values), min(-0.05, *values)
    axis = Axis(lowest, highest)
    width = 100 / len(deltas)
    sides = [delta_side(value) for value in values]
    return {
        "bars": [
            _bar(delta, anchors[delta.query.id], axis, number * width)
            for number, delta in enumerate(deltas)
        ],
        "width": width,
        "zero": round(100 - axis.zero, 2),
        "top": format_difference(highest),
        "bottom": format_difference(lowest),
        "losses": sides.count("loss"),
        "ties": sides.count("tie"),
        "wins": sides.count("win"),
    }


def delta_side(delta: float) -> str:
    """Return win, loss or tie."""
    return "tie" if abs(delta) <= TIE else "win" if delta > 0 else "loss"


def _bar(delta: QueryDelta, anchor: str, axis: Axis, x: float) -> View:
    top, bottom = sorted((100 - axis.zero, 100 - axis.at(delta.delta)))
    return {
        "anchor": anchor,
        "x": round(x, 4),
        "y": round(top, 2),
        "height": round(bottom - top, 2),
        "side": delta_side(delta.delta),
        "description": (
            f"{delta.query.id}: {shorten(delta.query.query, 120)} "
            f"({format_score(delta.baseline)} → {format_score(delta.candidate)}, "
            f"{format_difference(delta.delta)})"
        ),
    }


def trade_chart(points: Sequence[tuple[str, float, float]]) -> View:
    """Return names with scores and milliseconds as points: time to the right, quality upwards.

    The first is the present setting, the second the chosen one.
    """
    _, means, times = zip(*points, strict=True)
    low, high = math.log10(min(times)) - 0.05, math.log10(max(times)) + 0.05
    least, most = min(means) - 0.01, max(means) + 0.01
    round_ms = [factor * 10.0**power for power in range(-2, 6) for factor in (1, 2, 5)]
    ticks = [ms for ms in round_ms if low <= math.log10(ms) <= high]
    return {
        "points": [
            {
                "x": _position(math.log10(ms), low, high),
                "y": round(100 - _position(mean, least, most), 2),
                "side": ("zero", "better", "unclear")[min(place, 2)],
                "mark": (" (now)", " (chosen)", "")[min(place, 2)],
                "description": f"{name}: {format_score(mean)}, p95 {format_ms(ms)}",
            }
            for place, (name, mean, ms) in sorted(enumerate(points), key=lambda one: one[1][2])
        ],
        "ticks": [(_position(math.log10(ms), low, high), format_ms(ms)) for ms in ticks],
        "top": format_score(most),
        "bottom": format_score(least),
    }


def _position(value: float, low: float, high: float) -> float:
    return round(100 * min(max((value - low) / (high - low), 0.0), 1.0), 2)


def _round_step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least * 0.999)
