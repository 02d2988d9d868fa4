"""Show golden sets with what people judged, and recorded runs over time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from typing import Any
from urllib.parse import urlencode

from catalog.core.errors import CatalogError, InputError
from catalog.core.lru_cache import LRUCache
from catalog.core.text import counted
from catalog.evaluation.backends import RecordedBackend, require_run
from catalog.evaluation.comparison import compare_runs
from catalog.evaluation.golden import (
    GoldenSet,
    find_allowed_documents,
    find_dataset_problems,
    find_duplicate_queries,
)
from catalog.evaluation.judging import find_conflicts, measure_agreement, preference_tests
from catalog.evaluation.metrics import SHOWN_METRICS
from catalog.evaluation.report import render_report
from catalog.evaluation.runs import run_backends
from catalog.evaluation.significance import Interval, mean_interval
from catalog.interfaces.server.http_errors import http_status
from catalog.interfaces.server.page.bench import Bench
from catalog.interfaces.server.page.state import Form, Pairs, View
from catalog.store.eval_runs import EvalRun, list_runs

_RUNS = 50
_QUESTIONS = 200  # on a page, and of conflicts and problems
_RESAMPLES = 1000  # enough to draw an interval
_INTERVALS: LRUCache[tuple[str, str], Interval] = LRUCache(2000)  # by run, which never changes


def sets_view(bench: Bench, pairs: Pairs) -> View:
    """Return the golden sets, or one of them with its questions, judgements and problems."""
    bench.require_owner()
    asked = dict(pairs)
    name, by = asked.get("set", ""), asked.get("by", "")
    view: View = {"set": name, "by": by, "dataset": asked.get("dataset", ""), "error": ""}
    if not name:
        return {**view, "sets": [(one, _describe(bench, one)) for one in bench.sets()]}
    lists = ("questions", "turned", "problems", "tests", "agreements", "conflicts")
    view |= {"datasets": bench.library.datasets(), "total": 0, **dict.fromkeys(lists, ())}
    try:
        golden = GoldenSet(name, tuple(bench.queries(name)))
        view["dataset"] = dataset = view["dataset"] or bench.dataset_of(golden.queries)
        view |= _turn(golden, {"set": name, "by": by, "dataset": dataset}, asked.get("from", ""))
        view["tests"] = [
            (test, test.test, (round(100 * ends.low, 2), round(100 * (ends.high - ends.low), 2)))
            for test in preference_tests(golden)
            for ends in [test.test.interval]
        ]
        view["agreements"] = measure_agreement(golden.queries)
        view["conflicts"] = list(islice(find_conflicts(golden), _QUESTIONS))
        if "check" in asked:
            twice = [f"asked twice: {text!r}" for text in find_duplicate_queries(golden)]
            found = find_dataset_problems(golden, bench.library.database, dataset)
            view["problems"] = [*twice, *found][:_QUESTIONS] or ["no problem was found"]
            if (more := len(twice) + len(found) - _QUESTIONS) > 0:
                view["problems"].append(f"and {more} more: see catalog golden check")
    except CatalogError as error:
        view |= {"error": str(error)[:2000], "status": http_status(error)}
    return view


def _describe(bench: Bench, name: str) -> str:
    try:
        return counted(len(bench.queries(name)), "question")
    except CatalogError as error:
        return str(error)[:500]


def _turn(golden: GoldenSet, asked: Mapping[str, str], place: str) -> View:
    """Return the questions from a place on, with the addresses of those before and after."""
    total = len(golden.queries)
    first = int(place) if place.isdecimal() and len(place) < 8 else 0
    first = min(first, max(0, total - 1) // _QUESTIONS * _QUESTIONS)
    places = [("Previous", max(0, first - _QUESTIONS))] if first else []
    places += [("Next", first + _QUESTIONS)] if first + _QUESTIONS < total else []
    return {
        "questions": golden.queries[first : first + _QUESTIONS],
        "total": total,
        "first": first,
        "turned": [(label, f"/sets?{urlencode({**asked, 'from': at})}") for label, at in places],
    }


def save_question(bench: Bench, form: Form) -> str:
    """Settle a conflict, and return the address of the set."""
    name, by = form.get("set", ""), form.get("by", "").strip()
    if not by:
        raise InputError("give your name, to settle what people graded differently")
    bench.settle(name, form.get("id", ""), form.get("path", ""), form.get("grade", ""), by)
    about = {"set": name, "by": by, "dataset": form.get("dataset", "")}
    return f"/sets?{urlencode({key: value for key, value in about.items() if value})}"


def runs_view(bench: Bench, _: Pairs) -> View:
    """Return the recorded runs, newest first, and each metric over time."""
    bench.require_owner()
    with bench.library.database.read() as connection:
        runs = list_runs(connection, _RUNS)
    return {
        "metrics": SHOWN_METRICS,
        "runs": [
            {
                "id": run.id,
                "when": _time(run),
                "about": (run.golden, run.dataset, run.backend),
                "values": [run.summary["metrics"].get(metric) for metric in SHOWN_METRICS],
            }
            for run in runs
        ],
        "charts": list(_charts(runs[::-1])),
    }


def _charts(runs: Sequence[EvalRun]) -> Iterator[View]:
    """Yield a chart for each series of runs and each metric, oldest run first."""
    series: dict[tuple[str, str, str, str], list[EvalRun]] = defaultdict(list)
    for run in runs:  # with other labels the numbers cannot be compared
        series[run.golden, run.dataset, run.backend, run.labels].append(run)
    for (*about, _), same in series.items():
        for metric in SHOWN_METRICS:
            scored = [
                (run, [*run.scores[metric].values()]) for run in same if run.scores.get(metric)
            ]
            if len(scored) < 2:
                continue
            means = [sum(values) / len(values) for _, values in scored]
            ends = [_interval(run.id, metric, values) for run, values in scored]
            days = [_time(run)[:10] for run, _ in scored]
            least, most = min(end.low for end in ends), max(end.high for end in ends)
            height = (most - least) or 1.0
            points = []
            for at, ((run, _), day, mean, end) in enumerate(
                zip(scored, days, means, ends, strict=True)
            ):
                places = (40 * (most - one) / height for one in (mean, end.low, end.high))
                y, bottom, top = (round(place, 2) for place in places)
                point = {"x": round(100 * at / (len(scored) - 1), 2), "y": y}
                text = f"{day} {run.id}: {mean:.3f} [{end.low:.3f}, {end.high:.3f}]"
                points.append({**point, "low": bottom, "high": top, "text": text})
            yield {
                "title": " · ".join((metric, *about)),
                "points": points,
                "from": f"{days[0]} {means[0]:.3f}",
                "to": f"{days[-1]} {means[-1]:.3f}",
                "least": f"{least:.3f}",
                "most": f"{most:.3f}",
            }


def _time(run: EvalRun) -> str:
    return datetime.fromtimestamp(run.created_at, UTC).strftime("%Y-%m-%d %H:%M")


def _interval(run: str, metric: str, values: Sequence[float]) -> Interval:
    known = _INTERVALS.get((run, metric))
    if known is None:
        known = mean_interval(values, resamples=_RESAMPLES)
        _INTERVALS.put((run, metric), known)
    return known


def runs_report(bench: Bench, before: str, after: str) -> str:
    """Return the report of two recorded runs as HTML.

    If labels were added since, both lists are scored with the present ones.
    """
    bench.require_owner()
    runs = [require_run(bench.library.database, one) for one in (before, after)]
    dataset, golden = runs[0].dataset, None
    for name in bench.sets():
        with suppress(CatalogError):
            one = GoldenSet(name, tuple(bench.queries(name)))
            asked = {query.id for query in one}
            if one.digest == runs[0].labels:
                golden = one
                break
            if name == runs[0].golden and all(asked.issuperset(run.lists) for run in runs):
                golden = one
    if golden is None:
        raise InputError(f"no golden set here has the questions of run {runs[0].id}")
    backends = [
        RecordedBackend(
            f"{run.backend} ({run.id})",
            run.lists,
            dict(run.identity),
            run if run.labels == golden.digest else None,  # which requires the same labels
        )
        for run in runs
    ]
    depth, database = min(run.top_k for run in runs), bench.library.database

    def allowed(query: Any) -> frozenset[str] | None:
        return find_allowed_documents(database, dataset, query)

    done = run_backends(backends, golden, dataset=dataset, top_k=depth, repeats=0, allowed=allowed)
    comparison = compare_runs(done[0], done[1], golden, allowed)
    return render_report(comparison, created=datetime.now(UTC))
