"""The success criteria SC-001 to SC-005: a number, its limit, and whether it holds.

SC-001 relevance, SC-002 metadata and filters by it, SC-003 time to embed a query, SC-004 time to
search with it, SC-005 equal answers to equal questions. All numbers are measured on the suite; a
share has Wilson's 95 % interval, a mean that of ``share_interval``, which few questions suffice
for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from catalog.evaluation.metrics import timing
from catalog.evaluation.report_text import format_ms, format_score, format_share
from catalog.evaluation.significance import Interval, share_interval, wilson_interval
from catalog.evaluation.validation.failure_patterns import find_patterns
from catalog.evaluation.validation.measurement import SuiteRun


@dataclass(frozen=True, slots=True)
class Criterion:
    """One condition. ``value`` is ``None`` where nothing was measured that it is about.

    ``unit`` is a share or mean from 0 to 1, or milliseconds. A share or mean has to be at least
    the limit, milliseconds at most. ``n`` counts what the number is of.
    """

    id: str
    name: str
    value: float | None
    limit: float
    unit: str
    n: int
    interval: Interval | None = None
    is_needed: bool = True

    @property
    def holds(self) -> bool:
        """Return whether the number keeps the limit; one that is not there does if none is due."""
        if self.value is None:
            return not self.is_needed
        return self.value <= self.limit if self.unit == "ms" else self.value >= self.limit

    @property
    def value_text(self) -> str:
        """Return the number as a person reads it."""
        return "nothing measured" if self.value is None else self._text(self.value)

    @property
    def limit_text(self) -> str:
        """Return the limit with its direction."""
        return f"{'at most' if self.unit == 'ms' else 'at least'} {self._text(self.limit)}"

    @property
    def interval_text(self) -> str:
        """Return the interval, empty if there is none."""
        if self.interval is None:
            return ""
        return f"{self._text(self.interval.low)} to {self._text(self.interval.high)}"

    def _text(self, value: float) -> str:
        form = {"ms": format_ms, "share": format_share}.get(self.unit, format_score)
        return form(value)


def decide_criteria(run: SuiteRun) -> tuple[Criterion, ...]:
    """Return every criterion with its number; SC-001 has three parts and SC-002 two."""
    return tuple(_criteria(run))


def _criteria(run: SuiteRun) -> Iterator[Criterion]:
    limits, suite = run.suite.limits, run.suite
    good = [not find_patterns(one, suite.score) for one in run.measurements]
    yield _share("SC-001", "questions that went as they should", good, limits.queries)
    precisions = [one.precision(one.passages) for one in run.answerable]
    yield _mean("SC-001", f"precision@{run.top_k}", precisions, limits.precision)
    recalls = [one.recall(one.passages) for one in run.answerable]
    yield _mean("SC-001", f"recall@{run.top_k} of expected sources", recalls, limits.recall)
    complete = [not passage.problems for one in run.measurements for passage in one.passages]
    yield _share("SC-002", "passages with complete metadata", complete, limits.metadata)
    inside = [
        not passage.is_outside
        for one in run.measurements
        for passage in one.passages
        if one.query.filters
    ]
    yield _share("SC-002", "passages within the question's filters", inside, 1.0, is_needed=False)
    embedding = [ms for one in run.measurements for ms in one.embedding_ms]
    if suite.mode == "lexical":
        embedding = []
    name, is_needed = "embedding a query, p95", suite.mode != "lexical"
    yield _time("SC-003", name, embedding, limits.embedding_p95_ms, is_needed=is_needed)
    searching = [ms for one in run.measurements for ms in one.search_ms]
    yield _time("SC-004", "searching with its vector, p95", searching, limits.search_p95_ms)
    stable = [one.is_stable for one in run.measurements]
    yield _share("SC-005", "questions with equal ids and scores each time", stable, limits.stable)


def _share(
    id_: str, name: str, values: Sequence[bool], limit: float, *, is_needed: bool = True
) -> Criterion:
    if not values:
        return Criterion(id_, name, None, limit, "share", 0, is_needed=is_needed)
    right, total = sum(values), len(values)
    interval = Interval(*wilson_interval(right, total))
    return Criterion(id_, name, right / total, limit, "share", total, interval)


def _mean(id_: str, name: str, values: Sequence[float], limit: float) -> Criterion:
    if not values:
        return Criterion(id_, name, None, limit, "mean", 0, is_needed=False)
    interval = share_interval(values)
    return Criterion(id_, name, fmean(values), limit, "mean", len(values), interval)


def _time(
    id_: str, name: str, values: Sequence[float], limit: float, *, is_needed: bool = True
) -> Criterion:
    times = timing(values)
    p95 = None if times is None else times.p95
    return Criterion(id_, name, p95, limit, "ms", len(values), is_needed=is_needed)
