"""Tables of a report: metrics, strata, settings, times and rates as rows of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from catalog.core.settings import flatten
from catalog.evaluation.comparison import ALPHA, MetricRow, PipelineComparison, Stratum
from catalog.evaluation.metrics import RunScores, Timing
from catalog.evaluation.report_charts import Axis, interval_mark
from catalog.evaluation.report_text import (
    NOT_TOLD,
    View,
    format_count,
    format_difference,
    format_ms,
    format_p,
    format_score,
    format_share,
    format_value,
    shorten,
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


def run_times(run: BackendRun) -> list[float]:
    """Return all milliseconds measured of a run."""
    return [ms for outcome in run.outcomes.values() for ms in outcome.ms]


def key_figures(comparison: PipelineComparison) -> Iterator[tuple[str, str, str]]:
    """Yield what a reader in a hurry wants to know: label, baseline, candidate."""
    before, after = comparison.baseline_scores, comparison.candidate_scores
    for label, metric in (
        ("The first document is right", "Success@1"),
        ("A right one is in the first five", "Success@5"),
    ):
        yield label, format_share(before.means[metric]), format_share(after.means[metric])
    yield (
        "Median time to answer",
        _format_timing(before.latency)[0],
        _format_timing(after.latency)[0],
    )


def facts(comparison: PipelineComparison) -> Iterator[tuple[str, str]]:
    """Yield names and values of what was compared on what."""
    golden, before, after = comparison.golden, comparison.baseline, comparison.candidate
    yield "Dataset", " and ".join(dict.fromkeys((before.dataset, after.dataset)))
    yield "Golden set", f"{golden.name}, digest {golden.digest[:12]}"
    yield "Queries", f"{len(golden)}, {len(golden.answerable)} of them answerable"
    depths = dict.fromkeys((before.top_k, after.top_k))
    yield "Passages asked for", " and ".join(map(str, depths))


def compare_settings(
    baseline: Mapping[str, object], candidate: Mapping[str, object]
) -> list[tuple[str, str, str, bool]]:
    """Return both identities as dotted name, baseline, candidate, and whether they differ.

    Those that differ come first.
    """
    before, after = dict(flatten(baseline)), dict(flatten(candidate))
    rows = [
        (
            name,
            format_value(before.get(name)),
            format_value(after.get(name)),
            (name in before, before.get(name)) != (name in after, after.get(name)),
        )
        for name in dict.fromkeys([*before, *after])
    ]
    return sorted(rows, key=lambda row: not row[3])


def metric_row(row: MetricRow, axis: Axis) -> View:
    """Return a metric's row; its p is the adjusted one."""
    family, _, depth = row.metric.partition("@")
    is_sure = row.test.enough and row.adjusted_p < ALPHA
    mcnemar = ""
    if row.mcnemar is not None:
        p = format_p(row.mcnemar.p)
        relation = p if p.startswith("<") else f"= {p}"
        mcnemar = f"+{row.mcnemar.gained} −{row.mcnemar.lost}, p {relation}"
    return _test_row(row.metric, row.test, axis, is_sure) | {
        "meaning": _MEANINGS.get(family, "").format(k="one" if depth == "1" else depth),
        "p": format_p(row.adjusted_p),
        "mcnemar": mcnemar,
    }


def stratum_row(stratum: Stratum, axis: Axis) -> View:
    """Return a stratum's row of the deciding metric."""
    name = "all queries" if stratum.by == "all" else stratum.name
    return _test_row(name, stratum.test, axis, stratum.outcome in ("better", "worse")) | {
        "meaning": stratum.by,
        "outcome": stratum.outcome,
        "outcome_mark": OUTCOME_MARKS[stratum.outcome],
    }


def _test_row(name: str, test: PairedTest, axis: Axis, is_sure: bool) -> View:
    counts = test.wins_ties_losses
    interval = test.interval
    return {
        "name": name,
        "n": test.n,
        "baseline": format_score(test.baseline_mean),
        "candidate": format_score(test.candidate_mean),
        "difference": format_difference(test.difference),
        "interval": f"{format_difference(interval.low)} to {format_difference(interval.high)}",
        "p": format_p(test.p),
        "wins": counts.wins,
        "ties": counts.ties,
        "losses": counts.losses,
        "mark": interval_mark(test, axis, is_sure=is_sure),
    }


def stage_rows(comparison: PipelineComparison) -> Iterator[tuple[str, ...]]:
    """Yield stages with median and 95th percentile of the baseline, then of the candidate.

    The whole time comes first, then the stages that either reports; none where neither was timed.
    """
    if not any(run_times(run) for run in (comparison.baseline, comparison.candidate)):
        return
    before, after = comparison.baseline_scores, comparison.candidate_scores
    yield "whole answer", *_format_timing(before.latency), *_format_timing(after.latency)
    for name in dict.fromkeys([*before.stages, *after.stages]):
        old, new = before.stages.get(name), after.stages.get(name)
        yield name, *_format_timing(old), *_format_timing(new)


def failure_rows(
    comparison: PipelineComparison, anchors: Mapping[str, str]
) -> Iterator[tuple[str, str, str, str]]:
    """Yield anchor, query id, search and reason of every failure, in the golden set's order."""
    for query in comparison.golden:
        for run in (comparison.baseline, comparison.candidate):
            reason = run.outcomes[query.id].error
            if reason:
                yield anchors[query.id], query.id, run.name, shorten(reason)


def rate_rows(comparison: PipelineComparison) -> Iterator[tuple[str, str, str, str]]:
    """Yield name, meaning, baseline and candidate of what the metrics do not see."""
    before, after = _rates(comparison.baseline_scores), _rates(comparison.candidate_scores)
    for (name, meaning, old), (_, _, new) in zip(before, after, strict=True):
        yield name, meaning, old, new


def _rates(scores: RunScores) -> Iterable[tuple[str, str, str]]:
    unanswerable = scores.unanswerable
    doubted = unanswerable.doubted
    return [
        ("Failed", "queries that raised an error", format_count(scores.failed)),
        ("Empty", "queries that got no passage", format_share(scores.empty_rate)),
        ("Stability", "queries ranked alike when asked again", format_share(scores.stability)),
        ("Low confidence", "answers it doubted itself", format_share(scores.low_confidence_rate)),
        ("Scope violations", "passages that filters forbid", format_count(scores.scope_violations)),
        ("Exact recall", "recall@10 of queries of kind exact", format_share(scores.exact_recall)),
        (
            "Temporal recall",
            "labelled moments found in the first 5",
            format_share(scores.temporal_recall),
        ),
        (
            "Different documents",
            "among the first 10 passages, on average",
            f"{scores.distinct_documents:.1f}",
        ),
        ("Judged", "of the first 10 documents", format_share(scores.means.get("Judged@10"))),
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


def _format_timing(times: Timing | None) -> tuple[str, str]:
    if times is None:
        return NOT_TOLD, NOT_TOLD
    return format_ms(times.p50), format_ms(times.p95)
