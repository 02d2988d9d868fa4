"""Comparisons, tables and runs as lines for a terminal and as JSON objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from catalog.core.settings.loading import flatten
from catalog.core.text import counted
from catalog.evaluation.comparison import PipelineComparison, SystemsComparison, decide_outcome
from catalog.evaluation.golden import DIFFICULTIES, KINDS, GoldenSet
from catalog.evaluation.losses import STEPS, golden_loss_dict
from catalog.evaluation.metrics import PRIMARY, SHOWN_METRICS, SHOWN_SPAN_METRICS, RunScores
from catalog.evaluation.report_text import aligned, shorten
from catalog.evaluation.run_records import RunDifference, summarize_scores
from catalog.evaluation.significance import (
    Interval,
    PairedTest,
    Power,
    mean_interval,
    paired_test,
    power_of,
)
from catalog.store.eval_runs import EvalRun

_NAME = 24  # characters of a search's name over a column


def comparison_lines(comparison: PipelineComparison) -> Iterator[str]:
    """Yield the verdict, then metrics, strata, cost, and the largest wins and losses."""
    yield comparison.verdict
    if comparison.outcome in ("no difference", "too few to tell"):
        yield power_line(power_of(comparison.differences(PRIMARY)))
    for warning in comparison.warnings:
        yield f"! {warning}"
    before, after = comparison.baseline_scores, comparison.candidate_scores
    yield ""
    is_short = max(len(before.name), len(after.name)) <= _NAME
    heads = (before.name, after.name) if is_short else ("baseline", "candidate")
    rows = [("metric", *heads, *_TEST, "p / Holm", "")]
    for row in comparison.metrics:
        test = row.mcnemar
        more = "" if test is None else f"McNemar {test.gained}:{test.lost} {_p(test.p)}"
        more = f"n = {row.test.n}" if row.test.n < comparison.primary.n else more
        p = f"{_p(row.test.p)}/{_p(row.adjusted_p)}"
        rows.append((row.metric, *_means(row.test), *_test(row.test), p, more))
    yield from aligned(rows)
    yield ""
    yield from aligned(
        [
            (PRIMARY, *heads, *_TEST, "n", ""),
            *(
                (one.name, *_means(one.test), *_test(one.test), str(one.test.n), one.outcome)
                for one in comparison.strata
            ),
        ]
    )
    yield ""
    for scores in (before, after):
        yield _cost_line(scores)
    losses = [delta for delta in comparison.deltas[:3] if delta.delta < 0]
    wins = [delta for delta in reversed(comparison.deltas[-3:]) if delta.delta > 0]
    for title, deltas in (("Largest wins", wins), ("Largest losses", losses)):
        if deltas:
            yield f"{title}:"
        for delta in deltas:
            yield f"  {delta.delta:+.3f}  {delta.query.id}  {delta.query.query}"
    if (lost := comparison.lost) is not None:
        of = counted(sum(delta.delta < 0 for delta in comparison.deltas), "question")
        told = f"of {counted(lost.documents, 'document')} {lost.found:.0%} are in the first ten"
        yield f"Why {lost.queries} of {of} lost; {told}:"
        yield from (f"  {one.share:4.0%}  {STEPS[one.step]}" for one in lost.shares)


def power_line(power: Power) -> str:
    """Return what these questions can show, and how many it takes for other differences."""
    if not power.deviation:
        return "Both rank alike for every question, so no number of questions shows a difference."
    takes = (f"{found[0]:,} for {wanted:.2g}" for wanted, found in power.needed.items())
    return (
        f"{counted(power.n, 'question')} would show a difference of {power.detectable:.3f} in 4 of "
        f"5 cases; it takes {', '.join(takes)}."
    )


def power_lines(power: Power) -> Iterator[str]:
    """Yield the same, with the intervals of the numbers."""
    yield power_line(power)
    if not power.deviation:
        return
    yield f"Deviation of the paired differences: {power.deviation:.3f}"
    for wanted, (needed, low, high) in power.needed.items():
        yield f"  {wanted:.2g}: {needed:,} questions (95 % interval {low:,} to {high:,})"


def systems_lines(systems: SystemsComparison) -> Iterator[str]:
    """Yield the verdict, one line for each search, best first, then each pair, then cost."""
    yield systems.verdict
    for warning in systems.warnings:
        yield f"! {warning}"
    shown = [row.metric for row in systems.comparisons[0].metrics if row.metric != PRIMARY]
    rows = [("", PRIMARY, "95 % interval", "group", *shown)]
    for name, scores in systems.scores.items():
        interval = _interval(mean_interval([*scores.per_query[PRIMARY].values()]))
        cells = _cells(scores.means, (PRIMARY, *shown))
        rows.append((name, cells[0], interval, group_letters(systems, name), *cells[1:]))
    yield ""
    yield from aligned(rows)
    yield "Searches that share a letter cannot be told apart."
    fewer = {one.test.n: one for one in systems.comparisons[0].metrics if one.metric in shown}
    if (row := fewer[min(fewer)]).test.n < systems.comparisons[0].primary.n:
        yield f"{row.metric} and the like are of {counted(row.test.n, 'query')} with labelled spans"
    yield ""
    rows = [("", *_TEST, "p / Holm", "")]
    for pair in systems.pairs:
        names, p = f"{pair.candidate} − {pair.baseline}", f"{_p(pair.test.p)}/{_p(pair.adjusted_p)}"
        rows.append((names, *_test(pair.test), p, "" if pair.differ else "not told apart"))
    yield from aligned(rows)
    yield ""
    yield from map(_cost_line, systems.scores.values())


def group_letters(systems: SystemsComparison, name: str) -> str:
    """Return a letter for each group that a search is in: ``a`` has the highest mean."""
    return "".join(
        chr(ord("a") + number) for number, group in enumerate(systems.groups) if name in group
    )


def systems_dict(systems: SystemsComparison) -> dict[str, Any]:
    """Return all numbers of a comparison of several searches."""
    return {
        "outcome": systems.outcome,
        "verdict": systems.verdict,
        "warnings": list(systems.warnings),
        "golden": systems.golden.name,
        "systems": [
            {"interval": asdict(mean_interval([*one.per_query[PRIMARY].values()]))}
            | {"groups": group_letters(systems, name)}
            | summarize_scores(one)
            for name, one in systems.scores.items()
        ],
        "pairs": [
            {"metric": PRIMARY, "baseline": one.baseline, "candidate": one.candidate}
            | asdict(one.test)
            | {"adjusted_p": one.adjusted_p, "differ": one.differ}
            for one in systems.pairs
        ],
        "groups": [list(group) for group in systems.groups],
        "comparisons": [*map(comparison_dict, systems.comparisons)],
    }


def comparison_dict(comparison: PipelineComparison) -> dict[str, Any]:
    """Return all numbers of a comparison."""
    return {
        "outcome": comparison.outcome,
        "verdict": comparison.verdict,
        "warnings": list(comparison.warnings),
        "power": asdict(power_of(comparison.differences(PRIMARY))),
        "golden": comparison.golden.name,
        "dataset": comparison.candidate.dataset,
        "top_k": comparison.candidate.top_k,
        "baseline": comparison.baseline.name,
        "candidate": comparison.candidate.name,
        "metrics": [
            {
                "metric": row.metric,
                **asdict(row.test),
                "adjusted_p": row.adjusted_p,
                "mcnemar": None if row.mcnemar is None else asdict(row.mcnemar),
            }
            for row in comparison.metrics
        ],
        "strata": [
            {"by": row.by, "name": row.name, "outcome": row.outcome, **asdict(row.test)}
            for row in comparison.strata
        ],
        "queries": [
            {
                "id": delta.query.id,
                "query": delta.query.query,
                "baseline": delta.baseline,
                "candidate": delta.candidate,
            }
            for delta in comparison.deltas
        ],
        "runs": {
            "baseline": summarize_scores(comparison.baseline_scores),
            "candidate": summarize_scores(comparison.candidate_scores),
        },
        "lost": None if comparison.lost is None else golden_loss_dict(comparison.lost),
        "failures": {
            "baseline": comparison.baseline.errors,
            "candidate": comparison.candidate.errors,
        },
    }


def table_lines(runs: Sequence[EvalRun], warnings: Sequence[str] = ()) -> Iterator[str]:
    """Yield one line for each run with intervals, then the last run against each other one."""
    first = runs[0]
    queries = counted(first.queries, "query")
    yield f"{first.golden} on {first.dataset}: {queries}, {first.top_k} deep"
    spans = [one for one in SHOWN_SPAN_METRICS if any(one in run.scores for run in runs)]
    shown = [*SHOWN_METRICS[1:], *spans]
    rows = [("", PRIMARY, "95 % interval", *shown, "p95 ms")]
    for run in runs:
        cells = _cells(run.summary["metrics"], (PRIMARY, *shown))
        latency = run.summary["latency"]
        p95 = "–" if latency is None else f"{latency['p95']:.1f}"
        ends = _interval(_mean_interval(run)) if run.scores[PRIMARY] else "no answerable query"
        rows.append((run.backend, cells[0], ends, *cells[1:], p95))
    yield from aligned(rows)
    for other, test in _against_last(runs):
        yield (
            f"{runs[-1].backend} − {other.backend}: {PRIMARY} {test.difference:+.4f} "
            f"[{test.interval.low:+.4f}, {test.interval.high:+.4f}], p = {test.p:.4f}, "
            f"n = {test.n}: {decide_outcome(test)}"
        )
    if spans:
        asked = counted(max(len(run.scores.get(spans[0], ())) for run in runs), "query")
        yield f"{' and '.join(spans)} over {asked} with labelled spans; –: not measured"
    for run in runs:
        if run.summary["failed"]:
            yield f"! {run.backend} failed on {run.summary['failed']} queries, which score 0"
    for warning in warnings:
        yield f"! {warning}"


def table_dict(runs: Sequence[EvalRun], warnings: Sequence[str] = ()) -> dict[str, Any]:
    """Return the table as numbers."""
    return {
        "golden": runs[0].golden,
        "dataset": runs[0].dataset,
        "queries": runs[0].queries,
        "top_k": runs[0].top_k,
        "runs": [run_dict(run) | {"interval": asdict(_mean_interval(run))} for run in runs],
        "against_last": [
            {"backend": other.backend, "metric": PRIMARY, **asdict(test)}
            for other, test in _against_last(runs)
        ],
        "warnings": list(warnings),
    }


def _against_last(runs: Sequence[EvalRun]) -> Iterator[tuple[EvalRun, PairedTest]]:
    """Test the last run against each other one, on the deciding metric."""
    last = runs[-1].scores[PRIMARY]
    for other in runs[:-1]:
        values = other.scores[PRIMARY]
        if last:
            yield other, paired_test([values[query] for query in last], list(last.values()))


def golden_lines(golden: GoldenSet) -> Iterator[str]:
    """Yield the number of queries of each difficulty and kind."""
    yield (
        f"{golden.name}: {counted(len(golden), 'query')}, "
        f"{len(golden.unanswerable)} of them unanswerable, "
        f"{counted(sum(len(query.relevant) for query in golden), 'answer')}, "
        f"{sum(len(query.expected) for query in golden)} judged documents"
    )
    difficulties = Counter(query.difficulty for query in golden)
    kinds = Counter(query.kind for query in golden)
    yield "  difficulty: " + ", ".join(f"{difficulties[name]} {name}" for name in DIFFICULTIES)
    yield "  kind: " + ", ".join(f"{kinds[name]} {name}" for name in KINDS)


def run_lines(runs: Sequence[EvalRun]) -> Iterator[str]:
    """Yield a line for each run."""
    if not runs:
        yield "No run is recorded yet; 'catalog eval' and 'catalog compare' record runs."
    for run in runs:
        score = run.summary["metrics"].get(PRIMARY)
        value = f"{PRIMARY} {score:.4f}" if score is not None else "no answerable query"
        yield f"{run.id}  {_when(run)}  {run.dataset}  {run.golden}  {run.backend}  {value}"


def run_detail_lines(run: EvalRun) -> Iterator[str]:
    """Yield one run in full."""
    yield from run_lines([run])
    yield f"  {counted(run.queries, 'query')}, {run.top_k} deep; key {run.key[:16]}"
    for name, value in run.summary["metrics"].items():
        yield f"  {name:12}{value:8.4f}"
    for name, value in flatten(_without(run.summary, "metrics", "stages", "name")):
        yield f"  {name}: {value}"
    for name, value in flatten(run.identity):
        yield f"  {name} = {value}"


def run_dict(run: EvalRun) -> dict[str, Any]:
    """Return one run without its scores per query."""
    return {
        "id": run.id,
        "key": run.key,
        "created_at": _when(run),
        "dataset": run.dataset,
        "golden": run.golden,
        "backend": run.backend,
        "queries": run.queries,
        "top_k": run.top_k,
        **_without(run.summary, "name"),
    }


def diff_lines(difference: RunDifference) -> Iterator[str]:
    """Yield the changes, then their effect."""
    before, after = difference.before, difference.after
    yield f"{before.id} {before.backend}, {_when(before)}"
    yield f"→ {after.id} {after.backend}, {_when(after)}"
    if before.key == after.key:
        yield "same configuration, corpus, queries and code"
    elif not difference.changed:
        yield "same configuration and code; the corpus or the depth changed"
    for name, (old, new) in difference.changed.items():
        yield f"  {name}: {shorten(str(old), 40)} → {shorten(str(new), 40)}"
    rows = [("metric", "before", "after", *_TEST, "p (Holm)")]
    for metric, test in difference.tests.items():
        rows.append((metric, *_means(test), *_test(test), _p(difference.adjusted[metric])))
    yield from aligned(rows)


def diff_dict(difference: RunDifference) -> dict[str, Any]:
    """Return the difference as data."""
    return {
        "before": run_dict(difference.before),
        "after": run_dict(difference.after),
        "changed": {
            name: {"before": old, "after": new} for name, (old, new) in difference.changed.items()
        },
        "metrics": {
            metric: asdict(test) | {"adjusted_p": difference.adjusted[metric]}
            for metric, test in difference.tests.items()
        },
    }


def _cost_line(scores: RunScores) -> str:
    latency = scores.latency
    parts = [f"p50 {latency.p50:.1f} ms, p95 {latency.p95:.1f} ms" if latency else "not timed"]
    if scores.failed:
        parts.append(f"failed on {scores.failed}")
    parts.append(f"{scores.distinct_documents:.1f} documents among 10 passages")
    if SHOWN_SPAN_METRICS[0] in scores.per_query and scores.characters is not None:
        parts[-1] += f" with {scores.characters:,.0f} characters"
    if scores.scope_violations is not None:
        parts.append(f"{counted(scores.scope_violations, 'passage')} outside filters")
    if scores.unanswerable.n:
        doubted = scores.unanswerable.doubted
        parts.append(
            f"answered {scores.unanswerable.answered} of {scores.unanswerable.n} unanswerable"
            + ("" if doubted is None else f", {doubted} in doubt")
        )
    return f"{scores.name}: " + "; ".join(parts)


_TEST = ("difference", "95 % interval", "w/t/l")


def _means(test: PairedTest) -> tuple[str, str]:
    return f"{test.baseline_mean:.3f}", f"{test.candidate_mean:.3f}"


def _test(test: PairedTest) -> tuple[str, str, str]:
    """Return the cells of :data:`_TEST`."""
    count = test.wins_ties_losses
    ends = f"[{test.interval.low:+.3f}, {test.interval.high:+.3f}]"
    return f"{test.difference:+.3f}", ends, f"{count.wins}/{count.ties}/{count.losses}"


def _cells(means: Mapping[str, float], metrics: Sequence[str]) -> list[str]:
    return [f"{means[one]:.3f}" if one in means else "–" for one in metrics]


def _interval(of: Interval) -> str:
    return f"[{of.low:.3f}, {of.high:.3f}]"


def _mean_interval(run: EvalRun) -> Interval:
    values = list(run.scores[PRIMARY].values())
    return mean_interval(values) if values else Interval(0.0, 0.0)


def _p(p: float) -> str:
    return "<.001" if p < 0.001 else f"{p:.3f}"


def _without(values: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def _when(run: EvalRun) -> str:
    return datetime.fromtimestamp(run.created_at, UTC).strftime("%Y-%m-%d %H:%M:%S")
