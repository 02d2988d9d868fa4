"""The verdict on a run of a suite: criteria, failure patterns, ready or not; also as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, Literal, get_args

from catalog.evaluation.metrics import timing
from catalog.evaluation.report_text import format_ms, format_score, format_share
from catalog.evaluation.significance import Interval, share_interval, wilson_interval
from catalog.evaluation.validation.measurement import QueryMeasurement, SuiteRun
from catalog.evaluation.validation.recommendations import ResearchAnswer, answer_research
from catalog.evaluation.validation.suite import ScoreKind

FailurePattern = Literal[
    "failed",
    "empty",
    "absent",
    "irrelevant",
    "incomplete",
    "low confidence",
    "unwarranted",
    "outside filters",
    "no score",
]
PATTERNS: tuple[FailurePattern, ...] = get_args(FailurePattern)
MEANINGS: dict[FailurePattern, tuple[str, str]] = {
    "failed": (
        "the search, or a stage of it, ended with an error",
        "the error next to the question; `catalog doctor`",
    ),
    "empty": (
        "nothing was found, although it should",
        "filters and threshold of the question; whether the documents are indexed",
    ),
    "absent": (
        "no passage of the dataset is from an expected source",
        "the suite's path, address or section; `catalog index update`",
    ),
    "irrelevant": (
        "passages were found, but none is right",
        (
            "`catalog search QUERY --explain`: which leg found each passage; words that the "
            "documents do not use"
        ),
    ),
    "incomplete": (
        "a right passage was found, but an expected source is missing",
        "a larger top_k (R-01); several passages of one document that crowd out another",
    ),
    "low confidence": (
        "the best right passage scores below the threshold",
        "the threshold (R-02); a calibration of your own: `catalog golden calibrate`",
    ),
    "unwarranted": (
        "nothing answers the question, but a passage has a high score",
        "a higher threshold (R-02)",
    ),
    "outside filters": (
        "a passage was found that the filters forbid",
        "this is a defect of the search: report it with the question",
    ),
    "no score": (
        "nothing answers the question, and no score shows how near the passages are",
        '`catalog golden calibrate`, or `score = "cosine"` with the threshold of R-02',
    ),
}


def find_patterns(measurement: QueryMeasurement, score: ScoreKind) -> tuple[FailurePattern, ...]:
    """Return the failure patterns of a question; empty if it did not fail."""
    return tuple(_patterns(measurement, score))


def _patterns(measured: QueryMeasurement, score: ScoreKind) -> Iterator[FailurePattern]:
    if measured.failures:
        yield "failed"
    if any(passage.is_outside for passage in measured.passages):
        yield "outside filters"
    if not measured.query.is_answerable:
        yield from _unanswerable(measured, score)
        return
    if measured.absent:
        yield "absent"
    right = [passage for passage in measured.passages if passage.is_right]
    if not measured.passages:
        if not measured.failures:
            yield "empty"
    elif not right:
        yield "irrelevant"
    else:
        found = frozenset[int]().union(*(passage.sources for passage in right))
        if len(found | set(measured.absent)) < len(measured.query.sources):
            yield "incomplete"
        strengths = [passage.strength(score) for passage in right]
        known = [strength for strength in strengths if strength is not None]
        if known and max(known) < measured.threshold:
            yield "low confidence"


def _unanswerable(measured: QueryMeasurement, score: ScoreKind) -> Iterator[FailurePattern]:
    strengths = [passage.strength(score) for passage in measured.passages]
    if any(strength is not None and strength >= measured.threshold for strength in strengths):
        yield "unwarranted"
    elif strengths and all(strength is None for strength in strengths):
        yield "no score"


@dataclass(frozen=True, slots=True)
class Criterion:
    """One condition; ``value`` is ``None`` without a measurement.

    ``unit`` is a share or mean from 0 to 1, or milliseconds. A share or mean must reach the limit;
    milliseconds must not exceed it. ``n`` is the number of items measured.
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
        """Return whether the value keeps the limit; a missing value does if none is required."""
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
        """Return the interval as text, "" without one."""
        if self.interval is None:
            return ""
        return f"{self._text(self.interval.low)} to {self._text(self.interval.high)}"

    def _text(self, value: float) -> str:
        form = {"ms": format_ms, "share": format_share}.get(self.unit, format_score)
        return form(value)


def decide_criteria(run: SuiteRun) -> tuple[Criterion, ...]:
    """Return every criterion with its value; SC-001 has three parts and SC-002 two.

    SC-001 is relevance, SC-002 metadata and filters by it, SC-003 the time to embed a query, SC-004
    the time to search with its vector, SC-005 equal answers to equal questions. A share has
    Wilson's 95 % interval, a mean that of ``share_interval``, which is valid for few questions.
    """
    return tuple(_criteria(run))


def _criteria(run: SuiteRun) -> Iterator[Criterion]:
    limits, suite = run.suite.limits, run.suite
    good = [not find_patterns(one, suite.score) for one in run.measurements]
    yield _share("SC-001", "questions without a failure", good, limits.queries)
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
    yield _share(
        "SC-005", "questions with the same ids and scores each time", stable, limits.stable
    )


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


@dataclass(frozen=True, slots=True)
class Validation:
    """A run of a suite with all decisions from it."""

    run: SuiteRun
    criteria: tuple[Criterion, ...]
    research: tuple[ResearchAnswer, ...]

    @classmethod
    def of(cls, run: SuiteRun) -> Validation:
        """Decide everything from the measurements."""
        return cls(run, decide_criteria(run), answer_research(run))

    @property
    def is_ready(self) -> bool:
        """Return whether every criterion is met."""
        return all(criterion.holds for criterion in self.criteria)

    @property
    def patterns(self) -> dict[str, tuple[FailurePattern, ...]]:
        """Return the ways in which each question failed, by its id."""
        score = self.run.suite.score
        return {one.query.id: find_patterns(one, score) for one in self.run.measurements}

    @property
    def counts(self) -> dict[FailurePattern, int]:
        """Return the number of questions for each failure pattern that occurred."""
        counts = Counter(pattern for patterns in self.patterns.values() for pattern in patterns)
        return {pattern: counts[pattern] for pattern in PATTERNS if counts[pattern]}

    @property
    def reasons(self) -> list[str]:
        """Return why the dataset is not ready: the failed criteria with their values."""
        return [
            f"{one.id}: {one.name} is {one.value_text}, the limit is {one.limit_text}"
            for one in self.criteria
            if not one.holds
        ]


def validation_dict(validation: Validation) -> dict[str, Any]:
    """Return the same as one object, ready for JSON."""
    run, patterns = validation.run, validation.patterns
    return {
        "ready": validation.is_ready,
        "reasons": validation.reasons,
        "dataset": run.dataset,
        "suite": run.suite.name,
        "queries": len(run.measurements),
        "top_k": run.top_k,
        "repeats": run.suite.repeats,
        "about": dict(run.about),
        "criteria": [asdict(one) | {"holds": one.holds} for one in validation.criteria],
        "failure_patterns": validation.counts,
        "questions": [_question_dict(one, patterns[one.query.id]) for one in run.measurements],
        "latency_ms": measured_times(run),
        "incomplete_documents": dict(run.incomplete),
        "research": [asdict(answer) for answer in validation.research],
    }


def measured_times(run: SuiteRun) -> dict[str, dict[str, float]]:
    """Return p50 and p95 of each kind of time, in milliseconds, and how many times were taken."""
    measured = {
        "embedding": [ms for one in run.measurements for ms in one.embedding_ms],
        "search": [ms for one in run.measurements for ms in one.search_ms],
        "whole": [ms for one in run.measurements for ms in one.whole_ms],
    }
    told = {}
    for name, values in measured.items():
        times = timing(values)
        if times is not None:
            told[name] = {"p50": times.p50, "p95": times.p95, "n": len(values)}
    return told


def _question_dict(
    measured: QueryMeasurement, patterns: Sequence[FailurePattern]
) -> dict[str, Any]:
    query = measured.query
    told: dict[str, Any] = {
        "id": query.id,
        "kind": query.kind,
        "query": query.query,
        "filters": query.filters,
        "expected": list(query.expected),
        "passed": not patterns,
        "patterns": list(patterns),
        "failures": list(measured.failures),
        "threshold": measured.threshold,
        "stable": measured.is_stable,
        "passages": [
            asdict(passage) | {"sources": sorted(passage.sources)} for passage in measured.passages
        ],
    }
    if query.is_answerable:
        told["precision"] = measured.precision(measured.passages)
        told["recall"] = measured.recall(measured.passages)
        told["right_passages"] = measured.available
        told["absent"] = [query.expected[place] for place in measured.absent]
    return told
