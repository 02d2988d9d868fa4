"""The report of a comparison: one HTML file without scripts, for decisions and for doubts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import islice

from catalog.core.settings.loading import flatten
from catalog.core.user_search import RankedHit
from catalog.evaluation.comparison import ALPHA, PipelineComparison, SystemsComparison
from catalog.evaluation.gates import GateResult, gate_detail, gate_mark
from catalog.evaluation.golden import GoldenQuery
from catalog.evaluation.losses import STEPS
from catalog.evaluation.metrics import PRIMARY, SHOWN
from catalog.evaluation.report_charts import (
    delta_chart,
    delta_side,
    interval_axis,
    interval_mark,
    mean_mark,
    trade_chart,
)
from catalog.evaluation.report_text import (
    View,
    cut_excerpt,
    format_value,
    make_anchor,
    render_template,
    shorten,
)
from catalog.evaluation.runs import BackendRun, QueryOutcome
from catalog.evaluation.significance import TIE, mean_interval
from catalog.evaluation.summary import group_letters

LARGEST = 10  # wins and losses shown in full
_MAX_LABELS = 20
_UNMOVED = ("none", "", "")


def render_report(
    comparison: PipelineComparison,
    *,
    created: datetime,
    gates: Sequence[GateResult] = (),
    trade: Sequence[tuple[str, float, float]] = (),
) -> str:
    """Render the report as one HTML page that needs neither network access nor scripts.

    ``gates`` are the gates that were set, with their decisions. ``trade`` are settings that were
    tried, with quality and milliseconds. Equal comparisons and dates give equal pages. All text
    from outside is escaped; characters that cannot be shown or encoded are replaced, so the page
    can always be written as UTF-8.
    """
    page = build_page(comparison, created, gates)
    return render_template("report.html.j2", page | {"trade": trade and trade_chart(trade)})


def render_systems(systems: SystemsComparison, *, created: datetime) -> str:
    """Render the report of several searches: means with intervals, groups, and each pair."""
    first = systems.comparisons[0]
    means = {name: one.means[PRIMARY] for name, one in systems.scores.items()}
    spans = {
        name: mean_interval([*one.per_query[PRIMARY].values()])
        for name, one in systems.scores.items()
    }
    axis = interval_axis(spans.values(), sign="")
    pair_axis = interval_axis(pair.test.interval for pair in systems.pairs)
    page = {
        "systems": systems,
        "first": first,
        "headline": systems.verdict.partition(f": {PRIMARY} ")[0],
        "created": created.isoformat(sep=" ", timespec="minutes"),
        "metrics": [row.metric for row in first.metrics],
        "letters": {name: group_letters(systems, name) for name in systems.scores},
        "axis": axis,
        "points": [
            (name, means[name], spans[name], mean_mark(means[name], spans[name], axis))
            for name in systems.scores
        ],
        "groups": [
            (chr(ord("a") + number), axis.at(means[group[-1]]), axis.at(means[group[0]]), group)
            for number, group in enumerate(systems.groups)
        ],
        "pair_axis": pair_axis,
        "pairs": [
            (pair, interval_mark(pair.test, pair_axis, pair.differ)) for pair in systems.pairs
        ],
    }
    return render_template("systems.html.j2", page)


def build_page(
    comparison: PipelineComparison, created: datetime, gates: Sequence[GateResult] = ()
) -> View:
    """Build the template's values: the comparison, and texts made from it."""
    numbered = enumerate(comparison.golden, start=1)
    anchors = {query.id: make_anchor(query.id, number) for number, query in numbered}
    before, after = comparison.baseline, comparison.candidate
    runs = (before, after)
    axis = interval_axis(row.test.interval for row in comparison.metrics)
    strata_axis = interval_axis(stratum.test.interval for stratum in comparison.strata)
    losses = [delta for delta in comparison.deltas if delta.delta < -TIE][:LARGEST]
    wins = [delta for delta in reversed(comparison.deltas) if delta.delta > TIE][:LARGEST]
    shown = {delta.query.id for delta in (*losses, *wins)}
    others = [delta for delta in comparison.deltas if delta.query.id not in shown]
    scores = {one.query.id: (one.baseline, one.candidate) for one in comparison.deltas}

    def views(queries: Sequence[GoldenQuery], *, brief: bool = False) -> list[View]:
        return [
            query_view(
                *(query, before, after, anchors[query.id]), scores=scores.get(query.id), brief=brief
            )
            for query in queries
        ]

    return {
        "comparison": comparison,
        "headline": comparison.verdict.rpartition(f": {PRIMARY} ")[0] or comparison.verdict,
        "gates": [(one.failed, gate_mark(one), one.gate.text, gate_detail(one)) for one in gates],
        "created": created.isoformat(sep=" ", timespec="minutes"),
        "settings": compare_settings(before.identity, after.identity),
        "axis": axis,
        "metrics": [
            (row, interval_mark(row.test, axis, row.test.enough and row.adjusted_p < ALPHA))
            for row in comparison.metrics
        ],
        "strata_axis": strata_axis,
        "strata": [
            (row, interval_mark(row.test, strata_axis, row.outcome in ("better", "worse")))
            for row in comparison.strata
        ],
        "deltas": delta_chart(comparison.deltas, anchors),
        "badges": [badge(3), badge(0), badge(None)],
        "anchors": anchors,
        "steps": STEPS,
        "losses": views([delta.query for delta in losses]),
        "wins": views([delta.query for delta in wins]),
        "others": views([delta.query for delta in others], brief=True),
        "unanswerable": views(comparison.golden.unanswerable, brief=True),
        "failures": [
            (anchors[query.id], query.id, run.name, run.outcomes[query.id].error)
            for query in comparison.golden
            for run in runs
            if run.outcomes[query.id].error
        ],
    }


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
    before, after = baseline.ranks(query.id), candidate.ranks(query.id)
    grades = {label.path: label.grade for label in query.expected}
    is_comparable = not any(outcome.error for outcome in outcomes)
    left = [
        _row(path, rank, grades, _departure(path, after) if is_comparable else _UNMOVED)
        for path, rank in islice(before.items(), SHOWN)
    ]
    right = [
        _row(path, rank, grades, _arrival(rank, path, before) if is_comparable else _UNMOVED)
        for path, rank in islice(after.items(), SHOWN)
    ]
    labels = [label for label in query.expected if label.grade > 0]
    delta = None if scores is None else scores[1] - scores[0]
    return {
        "anchor": anchor,
        "query": query,
        "scores": scores,
        "delta": delta,
        "side": "" if delta is None else delta_side(delta),
        "before": before,
        "after": after,
        "left": _column(baseline.name, outcomes[0], left, None if brief else query.query),
        "right": _column(candidate.name, outcomes[1], right, None if brief else query.query),
        "lines": _lines(before, after, grades),
        "labels": labels[:_MAX_LABELS],
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
    for path, new in islice(after.items(), SHOWN):
        old = before.get(path)
        if old is not None and old <= SHOWN:
            way = "same" if old == new else "up" if old > new else "down"
            relevant = grades.get(path, 0) > 0
            lines.append({"start": old - 1, "end": new - 1, "way": way, "relevant": relevant})
    return sorted(lines, key=lambda line: bool(line["relevant"]))


def _column(name: str, outcome: QueryOutcome, rows: Sequence[View], query: str | None) -> View:
    """Return a list, with each hit and its excerpt if there is a ``query`` to cut it by."""
    hits: list[tuple[View, RankedHit, object]] = []
    if outcome.answer is not None and query is not None:
        best = [outcome.answer.best_hits[row["path"]] for row in rows]
        pairs = zip(rows, best, strict=True)
        hits = [(row, hit, cut_excerpt(hit.text, query)) for row, hit in pairs]
    return {"name": name, "error": outcome.error, "rows": rows, "hits": hits}
