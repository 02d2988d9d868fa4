"""The report of a comparison: one HTML file without scripts, for decisions and for doubts."""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from catalog.core.errors import InputError
from catalog.core.settings.loading import flatten
from catalog.core.user_search import RankedHit
from catalog.evaluation.comparison import ALPHA, MetricRow, PipelineComparison, QueryDelta, Stratum
from catalog.evaluation.gates import GateResult, gate_detail, gate_mark
from catalog.evaluation.golden import Expected, GoldenQuery
from catalog.evaluation.metrics import PRIMARY, RunScores, Timing
from catalog.evaluation.report_charts import (
    Axis,
    delta_chart,
    delta_side,
    interval_axis,
    interval_mark,
    latency_chart,
)
from catalog.evaluation.report_text import (
    NO_BREAK,
    NOT_KNOWN,
    View,
    compile_words,
    cut_excerpt,
    format_chance,
    format_count,
    format_difference,
    format_filters,
    format_ms,
    format_p,
    format_score,
    format_share,
    format_value,
    make_anchor,
    render_template,
    shorten,
)
from catalog.evaluation.runs import BackendRun, QueryOutcome
from catalog.evaluation.significance import MIN_QUERIES, TIE, PairedTest

OUTCOME_MARKS = {"better": "▲", "worse": "▼", "no difference": "≈", "too few to tell": "…"}
_MEANINGS = {
    "nDCG": "right documents early, the best first",
    "RR": "how early the first right one is",
    "R": "right documents in the first {k}",
    "Success": "any right one in the first {k}",
    "P": "share of the first {k} that is right",
}


def run_times(run: BackendRun) -> list[float]:
    """Return all measured milliseconds of a run."""
    return [ms for outcome in run.outcomes.values() for ms in outcome.ms]


def key_figures(comparison: PipelineComparison) -> Iterator[tuple[str, str, str]]:
    """Yield the main numbers: label, baseline, candidate."""
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
    """Yield names and values of backends, golden set and dataset."""
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

    Differing ones come first.
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
    """Return a metric's row, with its adjusted p."""
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

    The total time comes first, then the stages that either reports; empty if neither was timed.
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
    """Yield name, meaning, baseline and candidate of the rates that the metrics do not cover."""
    before, after = _rates(comparison.baseline_scores), _rates(comparison.candidate_scores)
    for (name, meaning, old), (_, _, new) in zip(before, after, strict=True):
        yield name, meaning, old, new


def _rates(scores: RunScores) -> Iterable[tuple[str, str, str]]:
    unanswerable = scores.unanswerable
    doubted = unanswerable.doubted
    return [
        ("Failed", "queries that raised an error", format_count(scores.failed)),
        ("Empty", "queries that got no passage", format_share(scores.empty_rate)),
        (
            "Stability",
            "queries with the same ranking when asked again",
            format_share(scores.stability),
        ),
        ("Low confidence", "answers flagged as doubtful", format_share(scores.low_confidence_rate)),
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
            "got passages although no document answers",
            f"{unanswerable.answered} of {unanswerable.n}",
        ),
        (
            "Unanswerable, doubted",
            "of these, flagged as doubtful",
            NOT_KNOWN if doubted is None else f"{doubted} of {unanswerable.answered}",
        ),
    ]


def _format_timing(times: Timing | None) -> tuple[str, str]:
    if times is None:
        return NOT_KNOWN, NOT_KNOWN
    return format_ms(times.p50), format_ms(times.p95)


SHOWN = 10  # documents of a list
_MAX_LABELS = 20
_MAX_EXPLAIN_LINES = 12
_SPAN_CHARS = 160
_UNMOVED = ("none", "", "")


def query_view(
    query: GoldenQuery,
    baseline: BackendRun,
    candidate: BackendRun,
    anchor: str,
    *,
    scores: tuple[float, float] | None = None,
    brief: bool = False,
) -> View:
    """Build a query's view; ``scores`` are the deciding metric's, ``brief`` omits the passages."""
    outcomes = baseline.outcomes[query.id], candidate.outcomes[query.id]
    before, after = (_document_ranks(run, query.id) for run in (baseline, candidate))
    grades = {label.path: label.grade for label in query.expected}
    words = None if brief else compile_words(query.query)
    is_comparable = not any(outcome.error for outcome in outcomes)
    left = [
        _row(path, rank, grades, _departure(path, after) if is_comparable else _UNMOVED)
        for path, rank in _top(before)
    ]
    right = [
        _row(path, rank, grades, _arrival(rank, path, before) if is_comparable else _UNMOVED)
        for path, rank in _top(after)
    ]
    labels = [label for label in query.expected if label.grade > 0]
    old, new = (None, None) if scores is None else scores
    delta = None if old is None or new is None else new - old
    return {
        "anchor": anchor,
        "id": query.id,
        "query": shorten(query.query, 500),
        "tags": [tag for tag in (query.kind, query.difficulty) if tag],
        "note": shorten(query.note, 600),
        "filters": format_filters(query.filters),
        "baseline": "" if old is None else format_score(old),
        "candidate": "" if new is None else format_score(new),
        "delta": "" if delta is None else format_difference(delta),
        "side": "" if delta is None else delta_side(delta),
        "left": _column(baseline.name, outcomes[0], left, words, brief),
        "right": _column(candidate.name, outcomes[1], right, words, brief),
        "lines": _lines(before, after, grades),
        "labels": [_label(label, before, after) for label in labels[:_MAX_LABELS]],
        "unlisted": max(0, len(labels) - _MAX_LABELS),
        "height": max(len(left), len(right)),
    }


def badge(grade: int | None) -> View:
    """Return the badge of a grade; ``None`` is an unjudged document."""
    if grade is None:
        return {"kind": "unjudged", "text": "?", "description": "not judged"}
    if grade == 0:
        return {"kind": "wrong", "text": "0", "description": "judged: does not answer"}
    description = f"judged: answers, grade {grade}"
    return {"kind": "relevant", "text": str(grade), "description": description}


def _document_ranks(run: BackendRun, query: str) -> dict[str, int]:
    return {path: rank for rank, path in enumerate(run.documents(query), start=1)}


def _top(ranks: Mapping[str, int]) -> list[tuple[str, int]]:
    return list(ranks.items())[:SHOWN]


def _row(path: str, rank: int, grades: Mapping[str, int], move: tuple[str, str, str]) -> View:
    """Return a document of a list; ``move`` has the direction, a mark, and the mark in words."""
    folder, slash, name = path.rpartition("/")
    if not name:  # a path that ends in a slash, or is one
        folder, slash, name = "", "", path
    way, mark, description = move
    return {
        "rank": rank,
        "folder": shorten(folder + slash),
        "name": shorten(name),
        "path": path,
        "badge": badge(grades.get(path)),
        "way": way,
        "move": mark,
        "description": description,
    }


def _arrival(rank: int, path: str, before: Mapping[str, int]) -> tuple[str, str, str]:
    """Return how a document moved to its place in the candidate's list: direction, mark, words."""
    old = before.get(path)
    if old is None:
        return "up", "new", "not found by the baseline"
    if old == rank:
        return "same", "=", ""
    way, sign = ("up", "▲") if old > rank else ("down", "▼")
    unseen = f"rank {old} in the baseline" if old > SHOWN else ""  # else the line shows it
    return way, f"{sign}{abs(old - rank)}", unseen


def _departure(path: str, after: Mapping[str, int]) -> tuple[str, str, str]:
    """Return where a document of the baseline's list went, if the lines do not show it."""
    new = after.get(path)
    if new is None:
        return "down", "gone", "not found by the candidate"
    if new > SHOWN:
        return "down", f"to {new}", f"rank {new} in the candidate"
    return _UNMOVED


def _lines(
    before: Mapping[str, int], after: Mapping[str, int], grades: Mapping[str, int]
) -> list[View]:
    """Return lines between the first ten documents of both lists, relevant documents on top."""
    lines = []
    for path, new in _top(after):
        old = before.get(path)
        if old is not None and old <= SHOWN:
            way = "same" if old == new else "up" if old > new else "down"
            relevant = grades.get(path, 0) > 0
            lines.append({"start": old - 1, "end": new - 1, "way": way, "relevant": relevant})
    return sorted(lines, key=lambda line: bool(line["relevant"]))


def _column(
    name: str,
    outcome: QueryOutcome,
    rows: Sequence[View],
    words: re.Pattern[str] | None,
    brief: bool,
) -> View:
    hits: list[View] = []
    if outcome.answer is not None and not brief:
        best = outcome.answer.best_hits
        hits = [_hit(row, best[row["path"]], words) for row in rows]
    return {"name": name, "error": shorten(outcome.error), "rows": rows, "hits": hits}


def _hit(row: View, hit: RankedHit, words: re.Pattern[str] | None) -> View:
    times = "" if hit.times is None else "{:g}–{:g} s".format(*hit.times)
    return {
        "rank": row["rank"],
        "path": shorten(hit.path),
        "location": shorten(", ".join(filter(None, (hit.location, times))), 100),
        "score": "" if hit.score is None else f"{hit.score:.4g}",
        "badge": row["badge"],
        "excerpt": cut_excerpt(hit.text, words),
        "explain": [shorten(line, 200) for line in hit.explain[:_MAX_EXPLAIN_LINES]],
    }


def _label(label: Expected, before: Mapping[str, int], after: Mapping[str, int]) -> View:
    return {
        "path": shorten(label.path),
        "grade": label.grade,
        "words": shorten((label.span and label.span.text) or "", _SPAN_CHARS),
        "baseline": format_value(before.get(label.path)),
        "candidate": format_value(after.get(label.path)),
        "is_found": label.path in before or label.path in after,
    }


LARGEST = 10  # wins and losses shown in full


def render_report(
    comparison: PipelineComparison, *, created: datetime, gates: Sequence[GateResult] = ()
) -> str:
    """Render the report as one HTML page that needs neither network access nor scripts.

    ``gates`` are the gates that were set, with their decisions. Equal comparisons and dates give
    equal pages. All text from outside is escaped; characters that cannot be shown or encoded are
    replaced, so the page can always be written as UTF-8.
    """
    return render_template("report.html.j2", build_page(comparison, created, gates))


def write_report(
    comparison: PipelineComparison,
    path: Path,
    *,
    created: datetime,
    gates: Sequence[GateResult] = (),
) -> None:
    """Write the report; raises like :func:`write_page`."""
    write_page(render_report(comparison, created=created, gates=gates), path)


def write_page(page: str, path: Path) -> None:
    """Write a page in one step: readers see the old file or the new one, never a part.

    Raises :class:`~catalog.core.errors.InputError` if the file cannot be written.
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
    """Build everything that the template shows of a comparison."""
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
        f"{PRIMARY} is {format_score(test.candidate_mean)} against "
        f"{format_score(test.baseline_mean)}"
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


def _largest_changes(
    deltas: Iterable[QueryDelta],
) -> tuple[list[QueryDelta], list[QueryDelta], list[QueryDelta]]:
    """Return the largest losses and the largest wins, each largest first, and the rest."""
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
