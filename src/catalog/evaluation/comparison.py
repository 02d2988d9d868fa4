"""Compare a candidate with a baseline: differences, their certainty, and a verdict."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
import numpy.typing as npt

from catalog.core.errors import BackendError, BlindComparisonError, InputError
from catalog.evaluation.golden import DIFFICULTIES, KINDS, GoldenQuery, GoldenSet
from catalog.evaluation.losses import GoldenLosses
from catalog.evaluation.metrics import (
    PRIMARY,
    SHOWN_METRICS,
    SHOWN_SPAN_METRICS,
    SPAN_METRICS,
    RunScores,
    has_spans,
    score_run,
)
from catalog.evaluation.runs import DEFAULT_TOP_K, Allowed, BackendRun
from catalog.evaluation.significance import McNemar, PairedTest, holm, mcnemar_exact, paired_test

ALPHA = 0.05
MIN_JUDGED_QUERIES = 0.5  # share of queries with a judged document among the first 10 of either
FEW_JUDGED = 0.25  # share of the first 10 documents
SUCCESSES = ("Success@1", "Success@3", "Success@5")

QueryScores = Mapping[str, Mapping[str, float]]
"""Scores by metric and query."""
Outcome = Literal["better", "worse", "no difference", "too few to tell"]


@dataclass(frozen=True)
class MetricRow:
    """One metric over all answerable queries; ``adjusted_p`` is corrected for several rows."""

    metric: str
    test: PairedTest
    adjusted_p: float
    mcnemar: McNemar | None = None


@dataclass(frozen=True)
class Stratum:
    """The deciding metric over the queries of one kind or difficulty."""

    by: Literal["all", "difficulty", "kind"]
    name: str
    test: PairedTest
    outcome: Outcome


@dataclass(frozen=True)
class QueryDelta:
    """One query's scores in the deciding metric, in both runs."""

    query: GoldenQuery
    baseline: float
    candidate: float

    @property
    def delta(self) -> float:
        """Return candidate minus baseline."""
        return self.candidate - self.baseline


@dataclass(frozen=True)
class PipelineComparison:
    """Two runs over one golden set, scored and tested.

    ``deltas`` go from the candidate's largest loss to its largest win. ``warnings`` say why the
    numbers may mislead. ``lost`` explains the documents that the candidate lost in the queries
    that lost most, if it is a search of this package.
    """

    golden: GoldenSet
    baseline: BackendRun
    candidate: BackendRun
    baseline_scores: RunScores
    candidate_scores: RunScores
    metrics: tuple[MetricRow, ...]
    strata: tuple[Stratum, ...]
    deltas: tuple[QueryDelta, ...]
    outcome: Outcome
    verdict: str
    warnings: tuple[str, ...]
    lost: GoldenLosses | None = None

    @property
    def primary(self) -> PairedTest:
        """Return the test of the deciding metric, :data:`PRIMARY`."""
        return self.metrics[0].test

    def differences(self, metric: str) -> npt.NDArray[np.float64]:
        """Return candidate minus baseline, for each answerable query that has it in both runs."""
        scores = self.baseline_scores.per_query, self.candidate_scores.per_query
        before, after = map(np.array, shared_columns(*scores, metric))
        differences: npt.NDArray[np.float64] = after - before
        return differences


@dataclass(frozen=True)
class Pair:
    """Two of several searches, tested on the deciding metric; p is corrected for all pairs."""

    baseline: str
    candidate: str
    test: PairedTest
    adjusted_p: float

    @property
    def differ(self) -> bool:
        """Return whether a difference is shown at the 5 % level."""
        return self.test.enough and self.adjusted_p < ALPHA


@dataclass(frozen=True)
class SystemsComparison:
    """Three or more runs over one golden set, each pair of them tested on nDCG@10.

    ``comparisons`` are those of each candidate with the baseline. ``scores`` are by name, the
    highest mean first. ``groups`` are the longest rows of neighbours in that order of which no two
    are shown to differ; a search may be in several.
    """

    comparisons: tuple[PipelineComparison, ...]
    scores: Mapping[str, RunScores]
    pairs: tuple[Pair, ...]
    groups: tuple[tuple[str, ...], ...]
    outcome: Literal["best", "tied", "too few to tell"]
    verdict: str
    warnings: tuple[str, ...]

    @property
    def golden(self) -> GoldenSet:
        """Return the labelled queries."""
        return self.comparisons[0].golden


def compare_systems(
    runs: Sequence[BackendRun],
    golden: GoldenSet,
    allowed: Allowed | None = None,
    *,
    metrics: Sequence[str] = SHOWN_METRICS,
    warnings: Sequence[str] = (),
) -> SystemsComparison:
    """Score three or more runs, the baseline first, and test each pair on nDCG@10.

    p is the paired randomisation test's, corrected by Holm for the number of pairs. Raises as
    :func:`compare_runs`, and :class:`InputError` if two runs have the same name.
    """
    names = [run.name for run in runs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(
            f"two of the searches are named {twice[0]!r}: they could not be told apart"
        )
    several = tuple(
        compare_runs(runs[0], run, golden, allowed, metrics=metrics) for run in runs[1:]
    )
    scores = [several[0].baseline_scores, *(one.candidate_scores for one in several)]
    by = {one.name: one.per_query for one in scores}
    tests = {
        (a, b): paired_test(*shared_columns(by[a], by[b], PRIMARY)) for a, b in combinations(by, 2)
    }
    adjusted = holm({str(pair): test.p for pair, test in tests.items()})
    pairs = tuple(Pair(*pair, test, adjusted[str(pair)]) for pair, test in tests.items())
    ranked = {one.name: one for one in sorted(scores, key=lambda one: -one.means[PRIMARY])}
    apart = {frozenset((pair.baseline, pair.candidate)) for pair in pairs if pair.differ}
    best, *others = ranked
    tied = [name for name in others if frozenset((best, name)) not in apart]
    n = len(golden.answerable)
    outcome: Literal["best", "tied", "too few to tell"]
    if not pairs[0].test.enough:
        outcome, told = "too few to tell", f"Too few queries to tell {len(runs)} searches apart"
    elif tied:
        outcome, told = "tied", f"No best search is shown: {best} and {', '.join(tied)}"
    else:
        outcome, told = "best", f"{best} is better than each of the other {len(others)}"
    means = ", ".join(f"{name} {one.means[PRIMARY]:.3f}" for name, one in ranked.items())
    notes = dict.fromkeys((*warnings, *(note for one in several for note in one.warnings)))
    return SystemsComparison(
        comparisons=several,
        scores=ranked,
        pairs=pairs,
        groups=tuple(_find_groups([*ranked], apart)),
        outcome=outcome,
        verdict=f"{told}: {PRIMARY} {means}, {len(pairs)} pairs (Holm), n = {n}.",
        warnings=tuple(notes),
    )


def _find_groups(
    ranked: Sequence[str], apart: Collection[frozenset[str]]
) -> Iterator[tuple[str, ...]]:
    """Yield the longest rows of neighbours of which no two are apart, best first."""
    reached = 0
    for start in range(len(ranked)):
        end = start + 1
        while end < len(ranked) and not any(
            frozenset((name, ranked[end])) in apart for name in ranked[start:end]
        ):
            end += 1
        if end > reached:
            yield tuple(ranked[start:end])
        reached = max(reached, end)


def require_known_names(run: BackendRun, golden: GoldenSet, documents: Collection[str]) -> None:
    """Raise :class:`BackendError` if dataset and labels name less than half of a run's results.

    Such a search is not bad but misread, so there is no verdict.
    """
    known = {*documents, *(label.path for query in golden for label in query.expected)}
    shown = [path for query in golden for path in run.documents(query.id)]
    other = [path for path in shown if path not in known]
    if 2 * len(other) > len(shown):
        raise BackendError(
            f"of {len(shown)} results of {run.name} the dataset has {len(shown) - len(other)}: it "
            f"shows {other[0]!r}, the dataset has {min(known)!r}; return paths relative to the "
            "dataset's folder"
        )


def compare_runs(
    baseline: BackendRun,
    candidate: BackendRun,
    golden: GoldenSet,
    allowed: Allowed | None = None,
    *,
    metrics: Sequence[str] = SHOWN_METRICS,
    warnings: Sequence[str] = (),
) -> PipelineComparison:
    """Score both runs and test the difference on nDCG@10, which decides, and on ``metrics``.

    Labels with spans add the span metrics that both runs tell; their p are corrected apart.
    ``warnings`` about the labels come first in the comparison's. Raises
    :class:`BlindComparisonError` if no difference could show, and :class:`InputError` for runs of
    other queries.
    """
    for run in (baseline, candidate):
        if set(run.outcomes) != {query.id for query in golden}:
            raise InputError(f"{run.name} was asked other queries than those of the golden set")
    for run in (baseline, candidate):
        if len(run.errors) == len(golden):
            reason = next(iter(run.errors.values()))
            raise BlindComparisonError(f"{run.name} failed on every query: {reason}")
    before, after = (score_run(run, golden, allowed) for run in (baseline, candidate))
    try:
        _require_judged((before, after), golden)
    except BlindComparisonError as error:
        raise BlindComparisonError("; ".join((str(error), *warnings))) from None
    rows = _metric_rows(before, after, dict.fromkeys((PRIMARY, *metrics, *SHOWN_SPAN_METRICS)))
    deltas = [
        QueryDelta(
            query,
            before.per_query[PRIMARY][query.id],
            after.per_query[PRIMARY][query.id],
        )
        for query in golden.answerable
    ]
    outcome = decide_outcome(rows[0].test)
    return PipelineComparison(
        golden=golden,
        baseline=baseline,
        candidate=candidate,
        baseline_scores=before,
        candidate_scores=after,
        metrics=rows,
        strata=tuple(_strata(before, after, golden)),
        deltas=tuple(sorted(deltas, key=lambda delta: (delta.delta, delta.query.id))),
        outcome=outcome,
        verdict=_verdict(outcome, rows[0].test, candidate.name, baseline.name),
        warnings=(*warnings, *_warnings(before, after, baseline, candidate, golden)),
    )


def decide_outcome(test: PairedTest) -> Outcome:
    """Return the verdict that a test supports at the 5 % level."""
    if not test.enough:
        return "too few to tell"
    return "no difference" if test.p >= ALPHA else "better" if test.difference > 0 else "worse"


def _require_judged(scores: tuple[RunScores, RunScores], golden: GoldenSet) -> None:
    answerable = len(golden.answerable)
    if answerable == 0:
        raise BlindComparisonError("no query of the golden set has an answer")
    if all(value == 0 for run in scores for value in run.per_query[PRIMARY].values()):
        raise BlindComparisonError(
            f"both score 0 on all {answerable} queries: the labels name no document that either "
            "finds. Do the paths in the golden set match the dataset's ('catalog golden check')?"
        )
    seen = sum(
        any(run.per_query["Judged@10"][query.id] > 0 for run in scores)
        for query in golden.answerable
    )
    if seen < MIN_JUDGED_QUERIES * answerable:
        raise BlindComparisonError(
            f"for {answerable - seen} of {answerable} queries neither has a judged document "
            "among its first 10: too few are judged to compare them"
        )


def _metric_rows(
    baseline: RunScores, candidate: RunScores, metrics: Iterable[str]
) -> tuple[MetricRow, ...]:
    scores = baseline.per_query, candidate.per_query
    columns = {name: shared_columns(*scores, name) for name in metrics}
    tests = {name: paired_test(*both) for name, both in columns.items() if both[0]}
    adjusted: dict[str, float] = {}
    for is_of_spans in (False, True):
        p = {name: it.p for name, it in tests.items() if (name in SPAN_METRICS) == is_of_spans}
        adjusted |= holm(p)
    return tuple(
        MetricRow(
            metric=name,
            test=test,
            adjusted_p=adjusted[name],
            mcnemar=mcnemar_exact(
                [value > 0 for value in _column(baseline, name)],
                [value > 0 for value in _column(candidate, name)],
            )
            if name in SUCCESSES
            else None,
        )
        for name, test in tests.items()
    )


def _strata(baseline: RunScores, candidate: RunScores, golden: GoldenSet) -> Iterator[Stratum]:
    asked = golden.answerable
    groups: list[tuple[Literal["all", "difficulty", "kind"], str, list[str]]] = [
        ("all", "all", [query.id for query in asked]),
        *(("difficulty", it, [q.id for q in asked if q.difficulty == it]) for it in DIFFICULTIES),
        *(("kind", it, [q.id for q in asked if q.kind == it]) for it in KINDS),
    ]
    for by, name, queries in groups:
        if queries:
            columns = (_column(scores, PRIMARY, queries) for scores in (baseline, candidate))
            test = paired_test(*columns)
            yield Stratum(by, name, test, decide_outcome(test))


def _column(scores: RunScores, metric: str, queries: Iterable[str] | None = None) -> list[float]:
    values = scores.per_query[metric]
    return [values[query] for query in (values if queries is None else queries)]


def shared_columns(
    baseline: QueryScores, candidate: QueryScores, metric: str
) -> tuple[list[float], list[float]]:
    """Return the scores in a metric of the queries that both have."""
    before, after = (scores.get(metric, {}) for scores in (baseline, candidate))
    shared = [query for query in before if query in after]
    return [before[query] for query in shared], [after[query] for query in shared]


def _verdict(outcome: Outcome, test: PairedTest, candidate: str, baseline: str) -> str:
    size = (
        f"{PRIMARY} {test.candidate_mean:.3f} against {test.baseline_mean:.3f}, "
        f"{test.difference:+.3f} [{test.interval.low:+.3f}, {test.interval.high:+.3f}], "
        f"{_p(test.p)}, n = {test.n}"
    )
    outcomes = {
        "better": f"{candidate} is better than {baseline}",
        "worse": f"{candidate} is worse than {baseline}",
        "no difference": f"No difference between {candidate} and {baseline} is shown",
        "too few to tell": f"Too few queries to tell {candidate} from {baseline}",
    }
    return f"{outcomes[outcome]}: {size}."


def _p(p: float) -> str:
    return "p < .001" if p < 0.001 else f"p = {p:.3f}"


def _warnings(
    baseline: RunScores,
    candidate: RunScores,
    baseline_run: BackendRun,
    candidate_run: BackendRun,
    golden: GoldenSet,
) -> Iterator[str]:
    for run in (baseline_run, candidate_run):
        if run.errors:
            query, reason = next(iter(run.errors.items()))
            yield (
                f"{run.name} failed on {len(run.errors)} of {len(golden)} queries, which score 0; "
                f"first {query}: {reason}"
            )
    for run, scores in ((baseline_run, baseline), (candidate_run, candidate)):
        yield from run.notes
        if not any(scores.per_query[PRIMARY].values()):
            yield _no_match(run, golden)
        if any(map(has_spans, golden.answerable)) and SPAN_METRICS[0] not in scores.per_query:
            yield (
                f"{run.name} gives no text or times with its hits, so these are not measured: "
                f"{', '.join(SPAN_METRICS)}"
            )
    if candidate_run.top_k < DEFAULT_TOP_K:
        yield f"Only {candidate_run.top_k} passages were requested, so deeper metrics see no more"
    shares = baseline.means["Judged@10"], candidate.means["Judged@10"]
    if max(shares) < FEW_JUDGED:
        yield (
            f"Only {shares[0]:.0%} ({baseline.name}) and {shares[1]:.0%} ({candidate.name}) "
            "of the first 10 documents are judged; the rest count as wrong, which hides "
            "differences unless each query has one right document. Judge more: "
            "'catalog serve', Golden sets"
        )
    if abs(shares[0] - shares[1]) > 0.1:
        less = baseline if shares[0] < shares[1] else candidate
        yield (
            f"Of the first 10 documents {shares[0]:.0%} ({baseline.name}) and {shares[1]:.0%} "
            f"({candidate.name}) are judged; unjudged ones count as wrong, against {less.name}"
        )
    for scores in (baseline, candidate):
        if scores.stability is not None and scores.stability < 1:
            changed = f"{1 - scores.stability:.0%}"
            yield f"{scores.name} answered {changed} of the queries differently the second time"
        if scores.scope_violations:
            filtered = sum(query.filters is not None for query in golden)
            yield (
                f"{scores.name} showed {scores.scope_violations} passages that the filters "
                f"forbid; the {filtered} filtered queries count in the verdict"
            )


def _no_match(run: BackendRun, golden: GoldenSet) -> str:
    """Describe a run's names: a search that finds no labels usually names documents differently."""
    document = next(
        (run.documents(q.id)[0] for q in golden.answerable if run.documents(q.id)), None
    )
    labelled = next(iter(golden.answerable[0].relevant))
    return (
        f"{run.name} found no labelled document for any query: its documents have names like "
        f"{document!r}, the labels like {labelled!r}"
    )
