"""Tables of a report: metrics, strata, settings, times and rates as rows of text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from catalog.evaluation.comparison import ALPHA, MetricRow, PipelineComparison, Stratum
from catalog.evaluation.metrics import RunScores, Timing
from catalog.evaluation.report_charts import Axis, IntervalMark, interval_mark
from catalog.evaluation.report_text import (
    NOT_TOLD,
    count,
    milliseconds,
    p_value,
    score,
    share,
    shortened,
    signed,
    told,
)
from catalog.evaluation.runs import BackendRun
from catalog.evaluation.significance import PairedTest

OUTCOME_MARKS = {"better": "▲", "worse": "▼", "no difference": "≈", "too few to tell": "…"}
_MEANINGS = {
    "nDCG": "right documents early, the best first",
    "RR": "how early the first right one comes",
    "R": "right documents in the first {k}",
    "Success": "any right one in the first {k}",
    "P": "how much of the first {k} is right",
}


@dataclass(frozen=True, slots=True)
class Figure:
    """A key figure in both, for a reader in a hurry."""

    label: str
    baseline: str
    candidate: str


@dataclass(frozen=True, slots=True)
class ScoreLine:
    """A metric or a stratum as a table's row."""

    name: str
    meaning: str
    n: int
    baseline: str
    candidate: str
    difference: str
    interval: str
    p: str
    wins: int
    ties: int
    losses: int
    mark: IntervalMark
    outcome: str = ""
    outcome_mark: str = ""
    mcnemar: str = ""


@dataclass(frozen=True, slots=True)
class Setting:
    """One part of the backends' identities; ``differs`` where they are not equal."""

    name: str
    baseline: str
    candidate: str
    differs: bool


@dataclass(frozen=True, slots=True)
class FailureRow:
    """A query that a search failed on."""

    anchor: str
    id: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Stage:
    """Median and 95th percentile of one part of answering, in both."""

    name: str
    baseline: tuple[str, str]
    candidate: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Rate:
    """Something that metrics of ranking do not see, in both."""

    name: str
    meaning: str
    baseline: str
    candidate: str


def times_of(run: BackendRun) -> list[float]:
    """All milliseconds measured of a run."""
    return [ms for one in run.outcomes.values() for ms in one.ms]


def figures_of(comparison: PipelineComparison) -> Iterable[Figure]:
    """What a reader in a hurry wants to know."""
    before, after = comparison.baseline_scores, comparison.candidate_scores
    for label, name in (
        ("The first document is right", "Success@1"),
        ("A right one is in the first five", "Success@5"),
    ):
        yield Figure(label, share(before.means[name]), share(after.means[name]))
    totals = _timing(before.latency), _timing(after.latency)
    yield Figure("Median time to answer", totals[0][0], totals[1][0])


def facts_of(comparison: PipelineComparison) -> Iterable[tuple[str, str]]:
    """What was compared on what, as names and values."""
    golden, before, after = comparison.golden, comparison.baseline, comparison.candidate
    yield "Dataset", " and ".join(dict.fromkeys((before.dataset, after.dataset)))
    yield "Golden set", f"{golden.name}, digest {golden.digest[:12]}"
    yield "Queries", f"{len(golden)}, {len(golden.answerable)} of them answerable"
    depths = dict.fromkeys((before.top_k, after.top_k))
    yield "Passages asked for", " and ".join(map(str, depths))


def settings_of(
    baseline: Mapping[str, object], candidate: Mapping[str, object]
) -> tuple[Setting, ...]:
    """Both identities, nested ones as dotted names; those that differ first."""
    before, after = (dict(_flat(identity)) for identity in (baseline, candidate))
    names = list(dict.fromkeys([*before, *after]))
    settings = [
        Setting(
            name,
            told(before.get(name)),
            told(after.get(name)),
            (name in before, before.get(name)) != (name in after, after.get(name)),
        )
        for name in names
    ]
    return tuple(sorted(settings, key=lambda one: not one.differs))


def _flat(identity: Mapping[str, object], prefix: str = "") -> Iterable[tuple[str, object]]:
    for key, value in identity.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name}.")
        else:
            yield name, value


def metric_line(row: MetricRow, axis: Axis) -> ScoreLine:
    """A metric's row; its p is the adjusted one."""
    family, _, depth = row.metric.partition("@")
    meaning = _MEANINGS.get(family, "").format(k="one" if depth == "1" else depth)
    sure = row.test.enough and row.adjusted_p < ALPHA
    line = replace(_line(row.metric, row.test, axis, sure), meaning=meaning)
    line = replace(line, p=p_value(row.adjusted_p))
    if row.mcnemar is None:
        return line
    told_p = p_value(row.mcnemar.p)
    return replace(
        line, mcnemar=f"+{row.mcnemar.gained} −{row.mcnemar.lost}, p {_relation(told_p)}"
    )


def stratum_line(stratum: Stratum, axis: Axis) -> ScoreLine:
    """A stratum's row of the deciding metric."""
    name = "all queries" if stratum.by == "all" else stratum.name
    return replace(
        _line(name, stratum.test, axis, stratum.outcome in ("better", "worse")),
        meaning=stratum.by,
        outcome=stratum.outcome,
        outcome_mark=OUTCOME_MARKS[stratum.outcome],
    )


def stages_of(comparison: PipelineComparison) -> Iterable[Stage]:
    """The whole time first, then the stages that either tells of; none where nobody was timed."""
    pairs = (
        (comparison.baseline, comparison.baseline_scores),
        (comparison.candidate, comparison.candidate_scores),
    )
    if not any(times_of(run) for run, _ in pairs):
        return
    one, two = (_timing(scores.latency) for _, scores in pairs)
    yield Stage("whole answer", one, two)
    before, after = (scores.stages for _, scores in pairs)
    for name in dict.fromkeys([*before, *after]):
        yield Stage(name, _timing(before.get(name)), _timing(after.get(name)))


def failures_of(comparison: PipelineComparison, anchors: Mapping[str, str]) -> Iterable[FailureRow]:
    """Every failure of either, in the golden set's order."""
    for query in comparison.golden:
        for run in (comparison.baseline, comparison.candidate):
            reason = run.outcomes[query.id].error
            if reason:
                yield FailureRow(anchors[query.id], query.id, run.name, shortened(reason))


def rates_of(comparison: PipelineComparison) -> Iterable[Rate]:
    """What the metrics do not see, each in both."""
    one, two = (
        _rates(scores) for scores in (comparison.baseline_scores, comparison.candidate_scores)
    )
    for (name, meaning, before), (_, _, after) in zip(one, two, strict=True):
        yield Rate(name, meaning, before, after)


def _rates(scores: RunScores) -> list[tuple[str, str, str]]:
    unanswerable = scores.unanswerable
    doubted = unanswerable.doubted
    return [
        ("Failed", "queries that raised an error", count(scores.failed)),
        ("Empty", "queries that got no passage", share(scores.empty_rate)),
        ("Stability", "queries ranked alike when asked again", share(scores.stability)),
        ("Low confidence", "answers it doubted itself", share(scores.low_confidence_rate)),
        ("Scope violations", "passages that filters forbid", count(scores.scope_violations)),
        ("Exact recall", "recall@10 of queries of kind exact", share(scores.exact_recall)),
        ("Temporal recall", "labelled moments found in the first 5", share(scores.temporal_recall)),
        (
            "Different documents",
            "among the first 10 passages, on average",
            f"{scores.distinct_documents:.1f}",
        ),
        ("Judged", "of the first 10 documents", share(scores.means.get("Judged@10"))),
        (
            "Unanswerable, answered",
            "got passages though no document answers",
            f"{unanswerable.answered} of {unanswerable.n}",
        ),
        (
            "Unanswerable, doubted",
            "of those, it said it was not sure",
            NOT_TOLD if doubted is None else f"{doubted} of {unanswerable.answered}",
        ),
    ]


def _line(name: str, test: PairedTest, axis: Axis, sure: bool) -> ScoreLine:
    wins = test.wins_ties_losses
    return ScoreLine(
        name=name,
        meaning="",
        n=test.n,
        baseline=score(test.baseline_mean),
        candidate=score(test.candidate_mean),
        difference=signed(test.difference),
        interval=f"{signed(test.interval.low)} to {signed(test.interval.high)}",
        p=p_value(test.p),
        wins=wins.wins,
        ties=wins.ties,
        losses=wins.losses,
        mark=interval_mark(test, axis, sure=sure),
    )


def _relation(p: str) -> str:
    return p if p.startswith("<") else f"= {p}"


def _timing(times: Timing | None) -> tuple[str, str]:
    if times is None:
        return NOT_TOLD, NOT_TOLD
    return milliseconds(times.p50), milliseconds(times.p95)
