"""Show golden sets with what people judged, and recorded runs over time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from catalog.core.errors import CatalogError, InputError
from catalog.core.lru_cache import LRUCache
from catalog.evaluation.backends import RecordedBackend, require_run
from catalog.evaluation.comparison import compare_runs
from catalog.evaluation.golden import (
    DIFFICULTIES,
    KINDS,
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
from catalog.interfaces.server.page.bench import Bench, find_question
from catalog.interfaces.server.page.state import Form, Pairs, View
from catalog.store.eval_runs import EvalRun, list_runs

_RUNS = 50
_RESAMPLES = 1000  # enough to draw an interval
_INTERVALS: LRUCache[tuple[str, str], Interval] = LRUCache(2000)  # by run, which never changes


def sets_view(bench: Bench, pairs: Pairs) -> View:
    """Return the golden sets, or one of them with its questions, judgements and problems."""
    bench.require_owner()
    asked = dict(pairs)
    name, by = asked.get("set", ""), asked.get("by", "")
    datasets = bench.library.datasets()
    dataset = asked.get("dataset", next(iter(datasets), ""))
    view: View = {
        "set": name,
        "by": by,
        "dataset": dataset,
        "datasets": datasets,
        "error": "",
        "kinds": KINDS,
        "difficulties": DIFFICULTIES,
        "questions": [],
        "problems": [],
        "tests": [],
        "agreements": [],
        "conflicts": [],
        "edited": None,
        "sets": [(one, len(bench.queries(one))) for one in bench.sets()] if not name else [],
    }
    try:
        golden = GoldenSet(name, tuple(bench.queries(name)))
        view["questions"] = golden.queries
        view["edited"] = find_question(golden.queries, "", asked.get("id", ""))
        view["tests"] = [
            (one, one.test, _axis(one.test.interval)) for one in preference_tests(golden)
        ]
        view["agreements"] = measure_agreement(golden.queries)
        view["conflicts"] = list(find_conflicts(golden))
        if "check" in asked:
            twice = [f"asked twice: {text!r}" for text in find_duplicate_queries(golden)]
            found = find_dataset_problems(golden, bench.library.database, dataset)
            view["problems"] = [*twice, *found] or ["no problem was found"]
    except CatalogError as error:
        view |= {"error": str(error)[:2000], "status": http_status(error)}
    return view


def save_question(bench: Bench, form: Form) -> str:
    """Settle a conflict, keep or remove a question, and return the address of the set."""
    name, by = form.get("set", ""), form.get("by", "").strip()
    if "path" in form:
        if not by:
            raise InputError("give your name, to settle what people graded differently")
        bench.settle(name, form.get("id", ""), form["path"], form.get("grade", ""), by)
    elif "remove" in form:
        bench.remove(name, form.get("id", ""))
    else:
        texts = {key: form.get(key, "").strip() for key in ("id", "query", "note")}
        chosen = {key: form.get(key) or None for key in ("kind", "difficulty")}
        bench.edit(name, {**texts, **chosen})
    return f"/sets?{urlencode({'set': name, 'by': by})}"


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
                "when": datetime.fromtimestamp(run.created_at, UTC).strftime("%Y-%m-%d %H:%M"),
                "about": (run.golden, run.dataset, run.backend),
                "values": [run.summary["metrics"].get(metric) for metric in SHOWN_METRICS],
            }
            for run in runs
        ],
        "charts": list(_charts(runs[::-1])),
    }


def _charts(runs: Sequence[EvalRun]) -> Iterator[View]:
    """Yield a chart for each series of runs and each metric, oldest run first."""
    series: dict[tuple[str, str, str], list[EvalRun]] = defaultdict(list)
    for run in runs:
        series[run.golden, run.dataset, run.backend].append(run)
    for about, same in series.items():
        for metric in SHOWN_METRICS if len(same) > 1 else ():
            scored = [run for run in same if run.scores.get(metric)]
            step = 100 / max(1, len(scored) - 1)
            points = []
            for at, run in enumerate(scored):
                values = list(run.scores[metric].values())
                mean, interval = sum(values) / len(values), _interval(run.id, metric, values)
                x, ends = round(at * step, 2), (interval.low, interval.high)
                high, y, low = (round(40 * (1 - one), 2) for one in (ends[1], mean, ends[0]))
                text = f"{run.id}: {mean:.3f} [{ends[0]:.3f}, {ends[1]:.3f}]"
                points.append({"x": x, "y": y, "low": low, "high": high, "text": text})
            yield {"title": " · ".join((metric, *about)), "points": points}


def _interval(run: str, metric: str, values: Sequence[float]) -> Interval:
    known = _INTERVALS.get((run, metric))
    if known is None:
        known = mean_interval(values, resamples=_RESAMPLES)
        _INTERVALS.put((run, metric), known)
    return known


def runs_report(bench: Bench, before: str, after: str) -> str:
    """Return the report of two recorded runs as HTML."""
    bench.require_owner()
    runs = [require_run(bench.library.database, one) for one in (before, after)]
    labels, dataset = runs[0].labels, runs[0].dataset
    sets = (GoldenSet(name, tuple(bench.queries(name))) for name in bench.sets())
    golden = next((one for one in sets if one.digest == labels), None)
    if golden is None:
        raise InputError(f"no golden set here has the labels of run {runs[0].id}")
    backends = [
        RecordedBackend(f"{run.backend} ({run.id})", run.lists, dict(run.identity), run)
        for run in runs
    ]
    depth, database = min(run.top_k for run in runs), bench.library.database

    def allowed(query: Any) -> frozenset[str] | None:
        return find_allowed_documents(database, dataset, query)

    done = run_backends(backends, golden, dataset=dataset, top_k=depth, repeats=0, allowed=allowed)
    comparison = compare_runs(done[0], done[1], golden, allowed)
    return render_report(comparison, created=datetime.now(UTC))


def _axis(interval: Interval) -> tuple[float, float]:
    """Return the place and width of an interval of shares, of 100."""
    return round(100 * interval.low, 2), round(100 * (interval.high - interval.low), 2)
