"""The report of a comparison: one HTML file without scripts, for who decides and who doubts."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from catalog.core.errors import InputError
from catalog.evaluation.comparison import PipelineComparison, QueryDelta
from catalog.evaluation.metrics import PRIMARY
from catalog.evaluation.report_charts import (
    TIE,
    Axis,
    DeltaChart,
    LatencyChart,
    delta_chart,
    interval_axis,
    latency_chart,
)
from catalog.evaluation.report_queries import Badge, QueryView, badge, query_view
from catalog.evaluation.report_tables import (
    OUTCOME_MARKS,
    FailureRow,
    Figure,
    Rate,
    ScoreLine,
    Setting,
    Stage,
    facts_of,
    failures_of,
    figures_of,
    metric_line,
    rates_of,
    settings_of,
    stages_of,
    stratum_line,
    times_of,
)
from catalog.evaluation.report_text import (
    NO_BREAK,
    anchor,
    chance,
    score,
    shortened,
    showable,
    signed,
)
from catalog.evaluation.significance import MIN_QUERIES

LARGEST = 10  # wins and losses shown in full


@dataclass(frozen=True, slots=True)
class ReportPage:
    """All that the template shows, in the order it does."""

    baseline: str
    candidate: str
    outcome: str
    outcome_mark: str
    headline: str
    lead: tuple[str, ...]
    verdict: str
    warnings: tuple[str, ...]
    figures: tuple[Figure, ...]
    facts: tuple[tuple[str, str], ...]
    created: str
    settings: tuple[Setting, ...]
    axis: Axis
    metrics: tuple[ScoreLine, ...]
    strata_axis: Axis
    strata: tuple[ScoreLine, ...]
    deltas: DeltaChart
    latency: LatencyChart | None
    stages: tuple[Stage, ...]
    badges: tuple[Badge, ...]
    losses: tuple[QueryView, ...]
    wins: tuple[QueryView, ...]
    others: tuple[QueryView, ...]
    unanswerable: tuple[QueryView, ...]
    failures: tuple[FailureRow, ...]
    rates: tuple[Rate, ...]


def render_report(comparison: PipelineComparison, *, created: datetime) -> str:
    """The report as one HTML page that needs neither network nor scripts.

    Equal comparisons and dates give equal pages. Everything that came from outside is escaped,
    and what could not be shown or encoded is replaced, so the page can always be written as UTF-8.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("catalog.evaluation", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2").render(page=build_page(comparison, created))


def write_report(comparison: PipelineComparison, path: Path, *, created: datetime) -> None:
    """Write the page in one step: a reader sees the old file or the new one, never a part.

    Raises :class:`~catalog.core.errors.InputError` where the file cannot be written.
    """
    page = render_report(comparison, created=created).encode()
    unfinished = path.parent / f".{uuid.uuid4().hex}.tmp"
    try:
        unfinished.write_bytes(page)
        unfinished.replace(path)
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        with contextlib.suppress(OSError, ValueError):
            unfinished.unlink(missing_ok=True)
        raise InputError(f"cannot write the report {path}: {error}") from error


def build_page(comparison: PipelineComparison, created: datetime) -> ReportPage:
    """What the template shows of a comparison."""
    numbered = enumerate(comparison.golden, start=1)
    anchors = {query.id: anchor(query.id, number) for number, query in numbered}
    before, after = comparison.baseline, comparison.candidate
    axis = interval_axis(row.test for row in comparison.metrics)
    strata_axis = interval_axis(one.test for one in comparison.strata)
    losses, wins, others = _parted(comparison.deltas)
    return ReportPage(
        baseline=before.name,
        candidate=after.name,
        outcome=comparison.outcome,
        outcome_mark=OUTCOME_MARKS[comparison.outcome],
        headline=comparison.verdict.rpartition(f": {PRIMARY} ")[0] or comparison.verdict,
        lead=tuple(lead_of(comparison)),
        verdict=comparison.verdict,
        warnings=tuple(shortened(warning, 600) for warning in comparison.warnings),
        figures=tuple(figures_of(comparison)),
        facts=tuple(facts_of(comparison)),
        created=created.isoformat(sep=" ", timespec="minutes"),
        settings=settings_of(before.identity, after.identity),
        axis=axis,
        metrics=tuple(metric_line(row, axis) for row in comparison.metrics),
        strata_axis=strata_axis,
        strata=tuple(stratum_line(one, strata_axis) for one in comparison.strata),
        deltas=delta_chart(comparison.deltas, anchors),
        latency=latency_chart((before.name, times_of(before)), (after.name, times_of(after))),
        stages=tuple(stages_of(comparison)),
        badges=(badge(3), badge(0), badge(None)),
        losses=tuple(_scored(one, comparison, anchors) for one in losses),
        wins=tuple(_scored(one, comparison, anchors) for one in wins),
        others=tuple(_scored(one, comparison, anchors, brief=True) for one in others),
        unanswerable=tuple(
            query_view(query, before, after, anchors[query.id], brief=True)
            for query in comparison.golden.unanswerable
        ),
        failures=tuple(failures_of(comparison, anchors)),
        rates=tuple(rates_of(comparison)),
    )


def lead_of(comparison: PipelineComparison) -> Iterable[str]:
    """The verdict in sentences for a reader who knows no metric."""
    test, outcome = comparison.primary, comparison.outcome
    candidate, baseline = comparison.candidate.name, comparison.baseline.name
    numbers = f"{PRIMARY} is {score(test.candidate_mean)} against {score(test.baseline_mean)}"
    range_ = f"between {signed(test.interval.low)} and {signed(test.interval.high)}"
    asked = f"{test.n} question{'s' if test.n != 1 else ''} with known answers"
    if outcome == "too few to tell":
        yield (
            f"There {'is' if test.n == 1 else 'are'} only {asked}; with fewer than {MIN_QUERIES} "
            f"nothing is decided. On these {numbers}, a difference of {signed(test.difference)} "
            f"(95{NO_BREAK}% interval {range_})."
        )
        return
    if outcome == "no difference":
        yield f"On {asked}, {numbers}, where 1 would be the right order every time."
        yield (
            f"The difference of {signed(test.difference)} may be luck: the 95{NO_BREAK}% interval "
            f"runs {range_}, and chance alone would do as much in {chance(test.p)}."
        )
        return
    way = "earlier" if outcome == "better" else "later"
    yield (
        f"On {asked}, {candidate} shows the right documents {way} than {baseline}: "
        f"{numbers}, where 1 would be the right order every time."
    )
    yield (
        f"The difference of {signed(test.difference)} is hardly luck: it lies {range_} with "
        f"95{NO_BREAK}% confidence, and chance alone would do as much in {chance(test.p)}."
    )


def _finalize(value: object) -> object:
    """Shows what came from outside safely; what a template made of it already is left alone."""
    return value if hasattr(value, "__html__") or not isinstance(value, str) else showable(value)


def _parted(
    deltas: Iterable[QueryDelta],
) -> tuple[list[QueryDelta], list[QueryDelta], list[QueryDelta]]:
    """The largest losses, the largest wins, largest first, and all others."""
    every = list(deltas)
    losses = [one for one in every if one.delta < -TIE][:LARGEST]
    wins = [one for one in reversed(every) if one.delta > TIE][:LARGEST]
    shown = {one.query.id for one in (*losses, *wins)}
    return losses, wins, [one for one in every if one.query.id not in shown]


def _scored(
    one: QueryDelta,
    comparison: PipelineComparison,
    anchors: Mapping[str, str],
    *,
    brief: bool = False,
) -> QueryView:
    return query_view(
        one.query,
        comparison.baseline,
        comparison.candidate,
        anchors[one.query.id],
        scores=(one.baseline, one.candidate),
        brief=brief,
    )
