"""The verdict on a run of a suite: criteria, failure patterns and what to change.

Three research questions get a table and one plain recommendation. R-01: how many passages to ask
for. R-02: which threshold separates questions with and without an answer. R-03: whether to embed
queries in batches and to cache their vectors. A recommendation names its evidence, because a few
questions can show a problem but hardly the absence of one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from statistics import fmean
from typing import Any, Literal

from catalog.evaluation.metrics import timing
from catalog.evaluation.report_text import format_ms, format_score, format_share, render_template
from catalog.evaluation.significance import MIN_QUERIES, Interval, share_interval, wilson_interval
from catalog.evaluation.suites import (
    DEPTHS,
    PATTERNS,
    QueryMeasurement,
    ScoreKind,
    ShownPassage,
    SuiteRun,
)

Unit = Literal["share", "mean", "ms"]
THRESHOLDS: Mapping[ScoreKind, tuple[float, ...]] = {
    "relevance": (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8),
    "cosine": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8),
}
_STABLE = "questions with the same ids and scores each time"
_ROUNDING = 1e-9
_CLEARLY_FASTER = 0.8  # of the time for single queries: a smaller saving is not worth batching


@dataclass(frozen=True, slots=True)
class Criterion:
    """One condition; ``value`` is ``None`` without a measurement.

    ``unit`` is a share or mean from 0 to 1, which must reach the limit, or ms, which must not
    exceed it. ``n`` is the number of items measured.
    """

    id: str
    name: str
    value: float | None
    limit: float
    unit: Unit
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
    def texts(self) -> tuple[str, str, str]:
        """Return value, interval and limit as a person reads them."""
        form = {"ms": format_ms, "share": format_share, "mean": format_score}[self.unit]
        interval = self.interval
        return (
            "nothing measured" if self.value is None else form(self.value),
            "" if interval is None else f"{form(interval.low)} to {form(interval.high)}",
            f"{'at most' if self.unit == 'ms' else 'at least'} {form(self.limit)}",
        )


@dataclass(frozen=True, slots=True)
class ResearchAnswer:
    """A question, the table that answers it (``head`` has the column names), and what to do."""

    id: str
    question: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    recommendation: str
    support: str = ""


@dataclass(frozen=True)
class Validation:
    """A run of a suite with all decisions from it."""

    run: SuiteRun

    @cached_property
    def patterns(self) -> dict[str, tuple[str, ...]]:
        """Return the ways in which each question failed, by its id."""
        return {
            one.query.id: tuple(one.patterns(self.run.suite.score)) for one in self.run.measurements
        }

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of questions for each failure pattern that occurred."""
        counts = Counter(pattern for patterns in self.patterns.values() for pattern in patterns)
        return {pattern: counts[pattern] for pattern in PATTERNS if counts[pattern]}

    @cached_property
    def criteria(self) -> tuple[Criterion, ...]:
        """Return every criterion with its value; SC-001 has four parts and SC-002 two.

        SC-001 is relevance, SC-002 metadata and filters by it, SC-003 the time to embed a query,
        SC-004 the time to search with its vector, SC-005 equal answers to equal questions. A share
        has Wilson's 95 % interval, a mean that of ``share_interval``, valid for few questions.
        """
        return _criteria(self.run, self.patterns)

    @cached_property
    def research(self) -> tuple[ResearchAnswer, ...]:
        """Return the answers to R-01, R-02 and R-03."""
        return _top_k(self.run), _threshold(self.run), _caching(self.run)

    @property
    def is_ready(self) -> bool:
        """Return whether every criterion is met."""
        return all(criterion.holds for criterion in self.criteria)

    @property
    def reasons(self) -> list[str]:
        """Return why the dataset is not ready: the failed criteria with their values."""
        return [
            f"{one.id}: {one.name} is {one.texts[0]}, the limit is {one.texts[2]}"
            for one in self.criteria
            if not one.holds
        ]

    @property
    def broken(self) -> list[tuple[str, str]]:
        """Return path and problem of the passages that fail to lead back to their source."""
        shown = (passage for one in self.run.measurements for passage in one.passages)
        return list(dict.fromkeys((one.path, problem) for one in shown for problem in one.problems))

    @property
    def times(self) -> dict[str, dict[str, float]]:
        """Return p50 and p95 of each kind of time in milliseconds, and how many were taken."""
        told = {}
        for name in ("embedding", "search", "whole"):
            values = [ms for one in self.run.measurements for ms in getattr(one, f"{name}_ms")]
            if (times := timing(values)) is not None:
                told[name] = asdict(times) | {"n": len(values)}
        return told


def _criteria(run: SuiteRun, patterns: Mapping[str, Sequence[str]]) -> tuple[Criterion, ...]:
    limits, asked, k = run.suite.limits, run.measurements, run.top_k
    shown = [(one.query, passage) for one in asked for passage in one.passages]
    good = [not failed for failed in patterns.values()]
    foreign = [not patterns[one.query.id] for one in asked if not one.query.is_answerable]
    precision = [one.precision(one.passages) for one in run.answerable]
    recall = [one.recall(one.passages) for one in run.answerable]
    complete = [not passage.problems for _, passage in shown]
    inside = [not passage.is_outside for query, passage in shown if query.filters]
    embeds = run.suite.mode != "lexical"
    embedding = [ms for one in asked for ms in one.embedding_ms if embeds]
    search = [ms for one in asked for ms in one.search_ms]
    stable = [one.is_stable for one in asked]
    rows: tuple[tuple[str, str, Unit, Sequence[float], float, bool], ...] = (
        ("SC-001", "questions without a failure", "share", good, limits.queries, True),
        ("SC-001", "non-existent ones without a failure", "share", foreign, limits.queries, False),
        ("SC-001", f"precision@{k}", "mean", precision, limits.precision, False),
        ("SC-001", f"recall@{k} of expected sources", "mean", recall, limits.recall, False),
        ("SC-002", "passages with complete metadata", "share", complete, limits.metadata, True),
        ("SC-002", "passages within the question's filters", "share", inside, 1.0, False),
        ("SC-003", "embedding a query, p95", "ms", embedding, limits.embedding_p95_ms, embeds),
        ("SC-004", "searching with its vector, p95", "ms", search, limits.search_p95_ms, True),
        ("SC-005", _STABLE, "share", stable, limits.stable, True),
    )
    return tuple(_criterion(*row) for row in rows)


def _criterion(
    id_: str, name: str, unit: Unit, values: Sequence[float], limit: float, is_needed: bool
) -> Criterion:
    if not values:
        return Criterion(id_, name, None, limit, unit, 0, is_needed=is_needed)
    n, value, interval = len(values), fmean(values), None
    if unit == "share":
        interval = Interval(*wilson_interval(int(sum(values)), n))
    elif unit == "mean":
        interval = share_interval(values)
    elif (times := timing(values)) is not None:
        value = times.p95
    return Criterion(id_, name, value, limit, unit, n, interval)


def _top_k(run: SuiteRun) -> ResearchAnswer:
    question = "How many passages should be asked for (top-k)?"
    head = ("k", "recall@k", "precision@k", "passages", "right ones found", "search")
    asked = [one for one in run.answerable if one.by_depth]
    if not asked:
        advice = "None can be named: no question that has an answer was searched for."
        return ResearchAnswer("R-01", question, head, (), advice)
    recalls, precisions, rows = {}, {}, []
    for depth in DEPTHS:
        lists = [one.by_depth[depth] for one in asked if one.by_depth]
        recalls[depth] = [one.recall(list_) for one, (list_, _) in zip(asked, lists, strict=True)]
        precisions[depth] = [QueryMeasurement.precision(list_) for list_, _ in lists]
        right = sum(passage.is_right for list_, _ in lists for passage in list_)
        rows.append(
            (
                str(depth),
                _mean_and_interval(recalls[depth]),
                _mean_and_interval(precisions[depth]),
                f"{fmean(len(list_) for list_, _ in lists):.1f}",
                f"{right} of {sum(one.available for one in asked)}",
                format_ms(fmean(ms for _, ms in lists)),
            )
        )
    best = max(map(fmean, recalls.values()))
    least = next(depth for depth in DEPTHS if fmean(recalls[depth]) >= best - _ROUNDING)
    limit = run.suite.limits.precision
    most = max((k for k in DEPTHS if k >= least and fmean(precisions[k]) >= limit), default=least)
    advice = (
        f"Ask for {least if most == least else f'{least} to {most}'}: from {least} on recall is "
        f"the best there is ({format_score(best)}), and "
        + (
            f"up to {most} at least {format_share(limit)} of the passages are right (the limit)."
            if fmean(precisions[least]) >= limit
            else f"precision is under its limit ({format_share(limit)}): better ranking is needed."
        )
    )
    gained = sum(more > at_1 for more, at_1 in zip(recalls[least], recalls[1], strict=True))
    support = f"{gained} of {len(asked)} questions need more than 1. {_few(len(asked))}"
    return ResearchAnswer("R-01", question, head, tuple(rows), advice, support)


def _threshold(run: SuiteRun) -> ResearchAnswer:
    """Separate questions with an answer from those without by the scores of their first passages.

    A passage found only by its words has no cosine and counts as far. If passages have no
    relevance, the cosine is taken.
    """
    asked = [
        (one, one.unfiltered[: run.top_k])
        for one in run.measurements
        if (one.unfiltered if one.query.is_answerable else not one.failures)
    ]
    passages = [passage for _, first in asked for passage in first]
    score: ScoreKind | None = "cosine" if any(one.cosine is not None for one in passages) else None
    if run.suite.score == "relevance" and all(one.relevance is not None for one in passages):
        score = "relevance"
    question = f"Which threshold of {score or run.suite.score} tells passages that answer?"
    head = ("threshold", "recall", "precision", "answered left empty", "non-existent not empty")
    if score is None:
        advice = f"None can be set: passages of this search have no {run.suite.score}."
        support = "Fit a calibration of your own with `catalog golden calibrate`."
        return ResearchAnswer("R-02", question, head, (), advice, support)

    def strength(passage: ShownPassage) -> float:
        return passage.strength(score) or 0.0

    answered = [(one, first) for one, first in asked if one.query.is_answerable]
    others = [first for one, first in asked if not one.query.is_answerable]
    rows = []
    for limit in THRESHOLDS[score]:
        kept = [[one for one in first if strength(one) >= limit] for _, first in answered]
        shown = [passage for passages in kept for passage in passages]
        recalls = [one.recall(list_) for (one, _), list_ in zip(answered, kept, strict=True)]
        told = sum(any(strength(one) >= limit for one in first) for first in others)
        rows.append(
            (
                f"{limit:.2f}",
                _mean_and_interval(recalls),
                f"{sum(passage.is_right for passage in shown)} of {len(shown)}",
                f"{sum(not passages for passages in kept)} of {len(kept)}",
                f"{told} of {len(others)}",
            )
        )
    if not answered or not others:
        lacking = "non-existent" if answered else "answerable"
        advice = f"None: the suite has no {lacking} question to tell one by."
        return ResearchAnswer("R-02", question, head, tuple(rows), advice)
    high = min(
        max((strength(one) for one in first if one.is_right), default=0.0) for _, first in answered
    )
    best_others = [max(map(strength, first), default=0.0) for first in others]
    low, held, total = (max(best_others), sum(one < high for one in best_others), len(others))
    bounds = " to ".join(map(format_share, wilson_interval(held, total)))
    support = (
        f"The best right passage scores {high:.2f} at least over {len(answered)} answerable "
        f"questions, the best passage {low:.2f} at most over {total} non-existent. {held} of "
        f"{total} non-existent questions score below every answerable one (95 % interval "
        f"{bounds}). {_few(total)}"
    )
    middle = f"{(low + high) / 2:.2f}"
    if low >= high:
        advice = (
            f"No threshold of {score} tells them apart here: leave similarity_threshold at 0 and "
            "let answers be checked (`catalog ask` abstains)."
        )
    elif score == "cosine":
        advice = (
            f'Hold an answer as doubtful below a cosine of {middle} (`score = "cosine"` and '
            f"`threshold = {middle}` in the suite), the middle between the two kinds of questions."
        )
    else:
        advice = (
            f"Hold an answer as doubtful below {middle} (low_confidence_below), the middle between "
            "the two kinds of questions; leave out passages (similarity_threshold) only where the "
            "table shows no loss of recall."
        )
    return ResearchAnswer("R-02", question, head, tuple(rows), advice, support)


def _caching(run: SuiteRun) -> ResearchAnswer:
    question = "Should queries be embedded in batches, and their vectors be kept?"
    head = ("a query's vector", "time for each", "beside alone")
    if not run.embedding:
        advice = "Neither matters: nothing is embedded in this mode."
        return ResearchAnswer("R-03", question, head, (), advice)
    alone, batched, cached = (run.embedding[name] for name in ("alone", "batched", "cached"))
    count = len({query.query for query in run.suite.query})
    named = {
        "embedded alone": alone,
        f"embedded in a batch of {count}": batched,
        "from the cache": cached,
    }
    rows = tuple(
        (name, format_ms(ms), f"{ms / alone:.2f}" if alone else "–") for name, ms in named.items()
    )
    batches = (
        f"embed queries that are there at once in a batch (saves {format_ms(alone - batched)} for "
        "each)"
        if batched < _CLEARLY_FASTER * alone
        else "do not gather queries into batches (it saves little or nothing here)"
    )
    saved = format_ms(max(0.0, alone - cached))
    advice = (
        "Keep vectors of questions (query_cache_size above 0: a repeated question saves "
        f"{saved}); {batches}."
    )
    support = (
        f"Medians over {count} different queries on this machine. How often users repeat a "
        "question is not measured here (see `catalog logs stats`)."
    )
    return ResearchAnswer("R-03", question, head, rows, advice, support)


def _mean_and_interval(values: Sequence[float]) -> str:
    if not values:
        return "–"
    interval = share_interval(values)
    return f"{fmean(values):.2f} [{interval.low:.2f}, {interval.high:.2f}]"


def _few(count: int) -> str:
    """Say of fewer questions than decide anything that they are few."""
    if count >= MIN_QUERIES:
        return ""
    return f"{count} {'is' if count == 1 else 'are'} few: a hint, to be tried on {MIN_QUERIES}."


def validation_report(validation: Validation) -> str:
    """Return the report in Markdown, for people who decide."""
    return render_template("suite.md.j2", validation)


def validation_dict(validation: Validation) -> dict[str, Any]:
    """Return the same as one object, ready for JSON."""
    run, suite = validation.run, validation.run.suite
    return {
        "ready": validation.is_ready,
        "reasons": validation.reasons,
        "dataset": run.dataset,
        "suite": suite.name,
        "queries": len(run.measurements),
        "top_k": run.top_k,
        "repeats": suite.repeats,
        "about": dict(run.about),
        "criteria": [asdict(one) | {"holds": one.holds} for one in validation.criteria],
        "failure_patterns": validation.counts,
        "questions": [
            _question_dict(one, validation.patterns[one.query.id]) for one in run.measurements
        ],
        "latency_ms": validation.times,
        "incomplete_documents": dict(run.incomplete),
        "research": [asdict(answer) for answer in validation.research],
    }


def _question_dict(measured: QueryMeasurement, patterns: Sequence[str]) -> dict[str, Any]:
    query, passages = measured.query, measured.passages
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
        "passages": [asdict(one) | {"sources": sorted(one.sources)} for one in passages],
    }
    if query.is_answerable:
        told["precision"] = measured.precision(passages)
        told["recall"] = measured.recall(passages)
        told["right_passages"] = measured.available
        told["absent"] = [query.expected[place] for place in measured.absent]
    return told
