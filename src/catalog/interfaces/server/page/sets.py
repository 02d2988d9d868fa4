"""Show golden sets with what people judged, and recorded runs over time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache, partial
from itertools import islice
from urllib.parse import urlencode

from catalog.core.dates import format_timestamp
from catalog.core.errors import CatalogError, InputError
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
from catalog.evaluation.significance import mean_interval
from catalog.interfaces.server.http import http_status
from catalog.interfaces.server.page.bench import Bench
from catalog.interfaces.server.page.state import Form, Pairs, View
from catalog.store.eval_runs import EvalRun, list_runs

_RUNS = 50
_QUESTIONS = 200  # on a page, and of conflicts and problems
_interval = lru_cache(2000)(partial(mean_interval, resamples=1000))  # enough to draw one


def sets_view(bench: Bench, pairs: Pairs) -> View:
    """Return the golden sets, or one of them with its questions, judgements and problems."""
    bench.require_owner()
    asked = dict(pairs)
    name = asked.get("set", "")
    view = {"set": name, "by": asked.get("by", ""), "dataset": asked.get("dataset", "")}
    if not name:
        return {**view, "sets": [(one, _describe(bench, one)) for one in bench.sets()]}
    try:
        golden = GoldenSet(name, tuple(bench.queries(name)))
        view["dataset"] = view["dataset"] or bench.dataset_of(golden.queries)
        return {
            **view,
            **_turn(golden, view, asked.get("from", "")),
            "datasets": bench.library.datasets(),
            "tests": preference_tests(golden),
            "agreements": measure_agreement(golden.queries),
            "conflicts": list(islice(find_conflicts(golden), _QUESTIONS)),
            "problems": _check(bench, golden, view["dataset"]) if "check" in asked else (),
        }
    except CatalogError as error:
        return {**view, "error": str(error)[:2000], "status": http_status(error)}


def _check(bench: Bench, golden: GoldenSet, dataset: str) -> list[str]:
    problems = [f"asked twice: {text!r}" for text in find_duplicate_queries(golden)]
    problems += find_dataset_problems(golden, bench.library.database, dataset)
    if (more := len(problems) - _QUESTIONS) > 0:
        problems[_QUESTIONS:] = [f"and {more} more: see catalog golden check"]
    return problems or ["no problem was found"]


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
    charts = list(_charts(runs[::-1]))
    return {"metrics": SHOWN_METRICS, "runs": runs, "charts": charts, "when": format_timestamp}


def _charts(runs: Sequence[EvalRun]) -> Iterator[tuple[str, list[View]]]:
    """Yield a title and points for each series of runs and each metric, oldest run first."""
    series: dict[tuple[str, str, str, str], list[EvalRun]] = defaultdict(list)
    for run in runs:  # with other labels the numbers cannot be compared
        series[run.golden, run.dataset, run.backend, run.labels].append(run)
    for (*about, _), same in series.items():
        for metric in SHOWN_METRICS:
            points = [
                {"run": run, "mean": sum(values) / len(values), "ends": _interval(values)}
                for run in same
                if (values := tuple(run.scores.get(metric, {}).values()))
            ]
            if len(points) > 1:
                yield " · ".join((metric, *about)), points


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
    backends = []
    for run in runs:
        same = run if run.labels == golden.digest else None  # which requires the same labels
        name = f"{run.backend} ({run.id})"
        backends.append(RecordedBackend(name, run.lists, dict(run.identity), same))
    depth, database = min(run.top_k for run in runs), bench.library.database
    allowed = partial(find_allowed_documents, database, dataset)
    done = run_backends(backends, golden, dataset=dataset, top_k=depth, repeats=0, allowed=allowed)
    comparison = compare_runs(done[0], done[1], golden, allowed)
    return render_report(comparison, created=datetime.now(UTC))
