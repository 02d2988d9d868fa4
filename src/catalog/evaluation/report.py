"""The report of a comparison: one HTML file without scripts, for who decides and who doubts."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from catalog.core.errors import InputError
from catalog.evaluation.comparison import PipelineComparison, QueryDelta
from catalog.evaluation.gates import GateResult, gate_detail, gate_mark
from catalog.evaluation.metrics import PRIMARY
from catalog.evaluation.report_charts import TIE, delta_chart, interval_axis, latency_chart
from catalog.evaluation.report_queries import badge, query_view
from catalog.evaluation.report_tables import (
    OUTCOME_MARKS,
    compare_settings,
    facts,
    failure_rows,
    key_figures,
    metric_row,
    rate_rows,
    run_times,
    stage_rows,
    stratum_row,
)
from catalog.evaluation.report_text import (
    NO_BREAK,
    View,
    format_chance,
    format_difference,
    format_score,
    make_anchor,
    make_showable,
    shorten,
)
from catalog.evaluation.significance import MIN_QUERIES

LARGEST = 10  # wins and losses shown in full


def render_report(
    comparison: PipelineComparison, *, created: datetime, gates: Sequence[GateResult] = ()
) -> str:
    """Render the report as one HTML page that needs neither network nor scripts.

    ``gates`` are those that were set, with what was decided.

    Equal comparisons and dates give equal pages. Everything that came from outside is escaped,
    and what could not be shown or encoded is replaced, so the page can always be written as UTF-8.
    """
    return render_template("report.html.j2", build_page(comparison, created, gates))


def render_template(name: str, page: object) -> str:
    """Render a template of this package; what came from outside is escaped and made showable."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("catalog.evaluation", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name).render(page=page)


def write_report(
    comparison: PipelineComparison,
    path: Path,
    *,
    created: datetime,
    gates: Sequence[GateResult] = (),
) -> None:
    """Write the report; raises as :func:`write_page`."""
    write_page(render_report(comparison, created=created, gates=gates), path)


def write_page(page: str, path: Path) -> None:
    """Write a page in one step: a reader sees the old file or the new one, never a part.

    Raises :class:`~catalog.core.errors.InputError` where the file cannot be written.
    """
    unfinished = path.parent / f".{uuid.uuid4().hex}.tmp"
    try:
        unfinished.write_bytes(page.encode())
        unfinished.replace(path)
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        with contextlib.suppress(OSError, ValueError):
            unfinished.unlink(missing_ok=True)
        raise InputError(f"cannot write the report {path}: {error}") from error


def build_page(
    comparison: PipelineComparison, created: datetime, gates: Sequence[GateResult] = ()
) -> View:
    """Build all that the template shows of a comparison."""
    numbered = enumerate(comparison.golden, start=1)
    anchors = {query.id: make_anchor(query.id, number) for number, query in numbered}
    before, after = comparison.baseline, comparison.candidate
    axis = interval_axis(row.test for row in comparison.metrics)
    strata_axis = interval_axis(stratum.test for stratum in comparison.strata)
    losses, wins, others = _largest_changes(comparison.deltas)
    return {
        "baseline": before.name,
        "candidate": after.name,
        "outcome": comparison.outcome,
        "outcome_mark": OUTCOME_MARKS[comparison.outcome],
        "headline": comparison.verdict.rpartition(f": {PRIMARY} ")[0] or comparison.verdict,
        "lead": list(lead_sentences(comparison)),
        "verdict": comparison.verdict,
        "warnings": [shorten(warning, 600) for warning in comparison.warnings],
        "gates": [(one.failed, gate_mark(one), one.gate.text, gate_detail(one)) for one in gates],
        "figures": list(key_figures(comparison)),
        "facts": list(facts(comparison)),
        "created": created.isoformat(sep=" ", timespec="minutes"),
        "settings": compare_settings(before.identity, after.identity),
        "axis": axis,
        "metrics": [metric_row(row, axis) for row in comparison.metrics],
        "strata_axis": strata_axis,
        "strata": [stratum_row(stratum, strata_axis) for stratum in comparison.strata],
        "deltas": delta_chart(comparison.deltas, anchors),
        "latency": latency_chart((before.name, run_times(before)), (after.name, run_times(after))),
        "stages": list(stage_rows(comparison)),
        "badges": [badge(3), badge(0), badge(None)],
        "losses": [_delta_view(delta, comparison, anchors) for delta in losses],
        "wins": [_delta_view(delta, comparison, anchors) for delta in wins],
        "others": [_delta_view(delta, comparison, anchors, brief=True) for delta in others],
        "unanswerable": [
            query_view(query, before, after, anchors[query.id], brief=True)
            for query in comparison.golden.unanswerable
        ],
        "failures": list(failure_rows(comparison, anchors)),
        "rates": list(rate_rows(comparison)),
    }


def lead_sentences(comparison: PipelineComparison) -> Iterator[str]:
    """Yield the verdict in sentences for a reader who knows no metric."""
    test, outcome = comparison.primary, comparison.outcome
    candidate, baseline = comparison.candidate.name, comparison.baseline.name
    numbers = (
        f"{PRIMARY} is {format_score(test.candidate_mean)} "
        f"against {format_score(test.baseline_mean)}"
    )
    difference = format_difference(test.difference)
    low, high = format_difference(test.interval.low), format_difference(test.interval.high)
    range_ = f"between {low} and {high}"
    questions = f"{test.n} question{'s' if test.n != 1 else ''} with known answers"
    if outcome == "too few to tell":
        yield (
            f"There {'is' if test.n == 1 else 'are'} only {questions}; with fewer than "
            f"{MIN_QUERIES} nothing is decided. On these {numbers}, a difference of {difference} "
            f"(95{NO_BREAK}% interval {range_})."
        )
        return
    if outcome == "no difference":
        yield f"On {questions}, {numbers}, where 1 would be the right order every time."
        yield (
            f"The difference of {difference} may be luck: the 95{NO_BREAK}% interval "
            f"runs {range_}, and chance alone would do as much in {format_chance(test.p)}."
        )
        return
    way = "earlier" if outcome == "better" else "later"
    yield (
        f"On {questions}, {candidate} shows the right documents {way} than {baseline}: "
        f"{numbers}, where 1 would be the right order every time."
    )
    yield (
        f"The difference of {difference} is hardly luck: it lies {range_} with "
        f"95{NO_BREAK}% confidence, and chance alone would do as much in {format_chance(test.p)}."
    )


def _finalize(value: object) -> object:
    """Make text from outside showable; leave alone what a template made of it already."""
    if hasattr(value, "__html__") or not isinstance(value, str):
        return value
    return make_showable(value)


def _largest_changes(
    deltas: Iterable[QueryDelta],
) -> tuple[list[QueryDelta], list[QueryDelta], list[QueryDelta]]:
    """Return the largest losses, the largest wins, largest first, and all others."""
    ordered = list(deltas)
    losses = [delta for delta in ordered if delta.delta < -TIE][:LARGEST]
    wins = [delta for delta in reversed(ordered) if delta.delta > TIE][:LARGEST]
    query_ids = {delta.query.id for delta in (*losses, *wins)}
    return losses, wins, [delta for delta in ordered if delta.query.id not in query_ids]


def _delta_view(
    delta: QueryDelta,
    comparison: PipelineComparison,
    anchors: Mapping[str, str],
    *,
    brief: bool = False,
) -> View:
    return query_view(
        delta.query,
        comparison.baseline,
        comparison.candidate,
        anchors[delta.query.id],
        scores=(delta.baseline, delta.candidate),
        brief=brief,
    )
