"""Geometry of a report's charts: pure numbers, which the templates draw as SVG.

Positions are per cent of a chart's width or height, from the left and from the top.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from catalog.evaluation.comparison import QueryDelta
from catalog.evaluation.metrics import timing
from catalog.evaluation.report_text import milliseconds, score, shortened, signed
from catalog.evaluation.significance import PairedTest

TIE = 1e-9  # differences up to this are ties, as in the significance tests
_BINS = 48
_LEAST_MS = 0.01
_MOST_TICKS = 5


@dataclass(frozen=True, slots=True)
class Tick:
    """A labelled position on an axis, in per cent of its length."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Axis:
    """A linear range that holds zero, with round ticks."""

    low: float
    high: float

    def at(self, value: float) -> float:
        """Where a value lies, in per cent of the length; values outside are put at the ends."""
        part = (value - self.low) / (self.high - self.low)
        return round(100 * min(max(part, 0.0), 1.0), 2)

    @property
    def zero(self) -> float:
        """Where zero lies."""
        return self.at(0.0)

    @property
    def ticks(self) -> tuple[Tick, ...]:
        """At most five steps of 1, 2 or 5 times a power of ten, zero among them."""
        step = _step((self.high - self.low) / _MOST_TICKS)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        digits = max(0, -math.floor(math.log10(step)))
        return tuple(
            Tick(self.at(n * step), f"{n * step:+.{digits}f}".replace("-", "−") if n else "0")
            for n in range(first, last + 1)
        )


@dataclass(frozen=True, slots=True)
class IntervalMark:
    """One line of a forest plot: the interval's ends and the difference between them."""

    low: float
    high: float
    point: float
    side: str  # better, worse or unclear
    said: str


@dataclass(frozen=True, slots=True)
class Bar:
    """One query's difference; ``side`` is win, loss or tie."""

    anchor: str
    x: float
    y: float
    height: float
    side: str
    said: str


@dataclass(frozen=True, slots=True)
class DeltaChart:
    """Bars from the largest loss to the largest win, ``width`` each, and where zero lies."""

    bars: tuple[Bar, ...]
    width: float
    zero: float
    top: str
    bottom: str
    losses: int
    ties: int
    wins: int


@dataclass(frozen=True, slots=True)
class Histogram:
    """Shares of queries by time: ``bins`` are (x, width, height), all in per cent."""

    name: str
    is_candidate: bool
    bins: tuple[tuple[float, float, float], ...]
    p50: float
    p95: float
    said: str


@dataclass(frozen=True, slots=True)
class LatencyChart:
    """Histograms on one logarithmic axis."""

    rows: tuple[Histogram, ...]
    ticks: tuple[Tick, ...]


def interval_axis(tests: Iterable[PairedTest]) -> Axis:
    """An axis wide enough for all intervals and for zero."""
    ends = [0.0, *(end for one in tests for end in (one.interval.low, one.interval.high))]
    room = 0.06 * (max(ends) - min(ends)) or 0.01
    return Axis(min(ends) - room, max(ends) + room)


def interval_mark(test: PairedTest, axis: Axis, *, sure: bool) -> IntervalMark:
    """A test's interval on the axis; ``sure`` says whether the difference is told from none."""
    low, high = test.interval.low, test.interval.high
    side = "unclear" if not sure else "better" if test.difference > 0 else "worse"
    said = f"{signed(test.difference)}, from {signed(low)} to {signed(high)}"
    return IntervalMark(axis.at(low), axis.at(high), axis.at(test.difference), side, said)


def delta_chart(deltas: Sequence[QueryDelta], anchors: Mapping[str, str]) -> DeltaChart:
    """One bar a query, in the order given; ``anchors`` are the links by query id."""
    values = [one.delta for one in deltas]
    highest, lowest = max(0.05, *values), min(-0.05, *values)
    axis = Axis(lowest, highest)
    width = 100 / len(deltas)
    return DeltaChart(
        bars=tuple(
            _bar(one, anchors[one.query.id], axis, number * width)
            for number, one in enumerate(deltas)
        ),
        width=width,
        zero=round(100 - axis.zero, 2),
        top=signed(highest),
        bottom=signed(lowest),
        losses=sum(value < -TIE for value in values),
        ties=sum(abs(value) <= TIE for value in values),
        wins=sum(value > TIE for value in values),
    )


def side_of(delta: float) -> str:
    """win, loss or tie."""
    if abs(delta) <= TIE:
        return "tie"
    return "win" if delta > 0 else "loss"


def _bar(one: QueryDelta, link: str, axis: Axis, x: float) -> Bar:
    ends = sorted((100 - axis.zero, 100 - axis.at(one.delta)))
    said = (
        f"{one.query.id}: {shortened(one.query.query, 120)} "
        f"({score(one.baseline)} → {score(one.candidate)}, {signed(one.delta)})"
    )
    height = round(ends[1] - ends[0], 2)
    return Bar(link, round(x, 4), round(ends[0], 2), height, side_of(one.delta), said)


def latency_chart(
    baseline: tuple[str, Sequence[float]], candidate: tuple[str, Sequence[float]]
) -> LatencyChart | None:
    """Histograms of named milliseconds, of equal scale; ``None`` where nobody was timed."""
    timed = [(*baseline, False), (*candidate, True)]
    timed = [one for one in timed if one[1]]
    every = [max(ms, _LEAST_MS) for _, values, _ in timed for ms in values]
    if not every:
        return None
    ends = math.log10(min(every)) - 0.05, math.log10(max(every)) + 0.05
    shares = [_shares(values, *ends) for _, values, _ in timed]
    tallest = max(map(max, shares))
    return LatencyChart(
        rows=tuple(
            _histogram(name, is_candidate, values, parts, tallest, ends)
            for (name, values, is_candidate), parts in zip(timed, shares, strict=True)
        ),
        ticks=_log_ticks(*ends),
    )


def _shares(values: Sequence[float], low: float, high: float) -> list[float]:
    counts = [0] * _BINS
    for ms in values:
        part = (math.log10(max(ms, _LEAST_MS)) - low) / (high - low)
        counts[min(int(part * _BINS), _BINS - 1)] += 1
    return [number / len(values) for number in counts]


def _histogram(
    name: str,
    is_candidate: bool,
    values: Sequence[float],
    shares: Sequence[float],
    tallest: float,
    ends: tuple[float, float],
) -> Histogram:
    width = 100 / _BINS
    times = timing(values)
    assert times is not None
    half, most = milliseconds(times.p50), milliseconds(times.p95)
    return Histogram(
        name=name,
        is_candidate=is_candidate,
        bins=tuple(
            (round(number * width, 3), round(width, 3), round(100 * part / tallest, 2))
            for number, part in enumerate(shares)
            if part
        ),
        p50=_log_at(times.p50, *ends),
        p95=_log_at(times.p95, *ends),
        said=f"{name}: half within {half}, 95 % within {most}",
    )


def _log_at(ms: float, low: float, high: float) -> float:
    part = (math.log10(max(ms, _LEAST_MS)) - low) / (high - low)
    return round(100 * min(max(part, 0.0), 1.0), 2)


def _log_ticks(low: float, high: float) -> tuple[Tick, ...]:
    factors = (1, 2, 5) if high - low < 2 else (1,)
    values = [
        factor * 10.0**power
        for power in range(math.floor(low), math.ceil(high) + 1)
        for factor in factors
    ]
    inside = [value for value in values if low <= math.log10(value) <= high]
    return tuple(Tick(_log_at(value, low, high), _round_time(value)) for value in inside)


def _round_time(ms: float) -> str:
    return f"{ms / 1000:g} s" if ms >= 1000 else f"{ms:g} ms"


def _step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least * 0.999)
