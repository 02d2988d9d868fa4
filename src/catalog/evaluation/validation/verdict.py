"""What is decided from a run of a suite: criteria, failure patterns, ready or not; also as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from catalog.evaluation.metrics import timing
from catalog.evaluation.validation.criteria import Criterion, decide_criteria
from catalog.evaluation.validation.failure_patterns import PATTERNS, FailurePattern, find_patterns
from catalog.evaluation.validation.measurement import QueryMeasurement, SuiteRun
from catalog.evaluation.validation.recommendations import ResearchAnswer, answer_research


@dataclass(frozen=True, slots=True)
class Validation:
    """A run of a suite with everything decided from it."""

    run: SuiteRun
    criteria: tuple[Criterion, ...]
    research: tuple[ResearchAnswer, ...]

    @classmethod
    def of(cls, run: SuiteRun) -> Validation:
        """Decide everything from what was measured."""
        return cls(run, decide_criteria(run), answer_research(run))

    @property
    def is_ready(self) -> bool:
        """Return whether every criterion holds."""
        return all(criterion.holds for criterion in self.criteria)

    @property
    def patterns(self) -> dict[str, tuple[FailurePattern, ...]]:
        """Return the ways in which each question failed, by its id."""
        score = self.run.suite.score
        return {one.query.id: find_patterns(one, score) for one in self.run.measurements}

    @property
    def counts(self) -> dict[FailurePattern, int]:
        """Return how many questions failed in each way, of those that any did."""
        counts = Counter(pattern for patterns in self.patterns.values() for pattern in patterns)
        return {pattern: counts[pattern] for pattern in PATTERNS if counts[pattern]}

    @property
    def reasons(self) -> list[str]:
        """Return why the dataset is not ready: the criteria that do not hold, and their numbers."""
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
