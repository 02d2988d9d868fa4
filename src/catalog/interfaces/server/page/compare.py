"""Show two searches side by side, open, blind or interleaved, and take grades of documents."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from catalog.core.errors import CatalogError, InputError, NotReadyError
from catalog.core.user_search import RankedHit
from catalog.evaluation.golden import GoldenQuery
from catalog.evaluation.golden_files import pool_hits
from catalog.evaluation.judging import credit_teams, preference_tests, team_draft
from catalog.evaluation.report_text import cut_excerpt, format_ms
from catalog.interfaces.server.http import http_status
from catalog.interfaces.server.page.bench import (
    LEGS,
    TOP,
    Bench,
    Shown,
    find_question,
    new_question,
)
from catalog.interfaces.server.page.state import Form, Pairs, View

MODES = {
    "open": "open: names are shown",
    "blind": "blind: names are hidden",
    "interleaved": "interleaved: one list of both",
}
CHOICES = {"left": "Left", "right": "Right", "equal": "Equal", "neither": "Both bad"}
_QUEUE_SECONDS = 0.5  # spent on questions whose lists nobody asked for yet
_KEPT = ("q", "id", "set", "by", "a", "b", "mode", "dataset")


def compare_view(bench: Bench, pairs: Pairs) -> View:
    """Return the two lists for the question in the address, or for the next one of a set."""
    asked = _read(bench, pairs)
    view: View = {**asked, "specs": bench.specs, "modes": MODES, "sets": bench.sets()}
    view["datasets"] = bench.library.datasets()
    view |= dict.fromkeys(("question", "legs", "sides", "list", "choices"))
    view |= dict.fromkeys(("error", "told", "grade", "since"), "")
    searches = (asked["a"], asked["b"], *LEGS)
    view["waits"] = waits = bench.waits(searches, asked["dataset"])
    try:
        queries = bench.queries(asked["set"])
        left = [one for one in queries if asked["by"] not in _judges(one, asked)]
        left.sort(key=lambda one: bool(_judges(one, asked)))  # first what nobody has judged
        if asked["set"]:
            view["told"] = _progress(queries, left, asked)
        question = find_question(queries, asked["q"], asked["id"])
        if is_new := question is None and bool(asked["q"]):
            question = new_question(asked["q"])
        if question is None and asked["by"]:
            question = next(iter(queue(bench, left, asked)), None)
        if question is not None:
            view |= _shown(bench, question, asked, is_new=is_new)
        view["waits"] = {name: one for name, one in waits.items() if not one.ready.done()}
    except CatalogError as error:
        if not (isinstance(error, NotReadyError) and waits):
            view |= {"error": str(error)[:2000], "status": http_status(error)}
    return view


def save_preference(bench: Bench, form: Form) -> str:
    """Keep a preference, and return the address of what to judge next."""
    shown, preferred = bench.was_shown(form.get("shown", "")), form.get("preferred", "")
    if shown.teams:
        places = [int(one) for one in form.getlist("useful") if one.isdecimal() and len(one) < 4]
        preferred = credit_teams(shown.teams, places)
    name = bench.prefer(shown, preferred)
    return _address("/compare", shown, last=name)


def grade_view(bench: Bench, pairs: Pairs) -> View:
    """Return the documents that either search found, to be graded."""
    asked = _read(bench, pairs)
    question = find_question(bench.queries(asked["set"]), asked["q"], asked["id"])
    is_new = question is None
    if question is None:
        question = new_question(asked["q"])
    rankings = [bench.rank(asked[side], asked["dataset"], question)[0] for side in "ab"]
    is_seen = asked["mode"] == "open" or asked["by"] in _judges(question, asked)
    own = {one.path: one for one in question.judgements if one.by == asked["by"]}
    hits = list(pool_hits(rankings, (), 2 * TOP))
    documents = tuple(hit.path for hit in hits)
    names = (asked["a"], asked["b"])
    shown = Shown(question, *names, *_about(asked), documents=documents, is_new=is_new)
    return {
        **asked,
        "question": question.query,
        "nonce": bench.show(shown),
        "before": _address("/compare", shown, id="" if is_new else question.id),
        "documents": [
            {
                "path": hit.path,
                "excerpt": cut_excerpt(hit.text, question.query),
                "own": own.get(hit.path),
                "known": question.grades.get(hit.path) if is_seen else None,
            }
            for hit in hits
        ],
    }


def save_grades(bench: Bench, form: Form) -> str:
    """Keep the grades of a form, and return the address of what to judge next."""
    shown = bench.was_shown(form.get("shown", ""))
    if not shown.by:
        shown = replace(shown, by=form.get("by", "").strip())
    grades: list[dict[str, Any]] = []
    for name, path in form.items():
        number = name.removeprefix("path.")
        grade = form.get(f"grade.{number}", "")
        span = form.get(f"span.{number}", "").strip()
        if name != number and span and not grade:
            raise InputError(f"give a grade to {path[:200]}, too, whose words you typed")
        if name != number and grade in ("0", "1", "2", "3"):
            if path not in shown.documents:
                raise InputError("grade only the documents that were shown")
            if span:
                span = bench.exact_words(shown.dataset, path, span)
            grades.append({"path": path, "grade": int(grade), "span": span or None})
    return _address("/compare", shown, last=bench.grade(shown, grades))


def _read(bench: Bench, pairs: Pairs) -> dict[str, str]:
    bench.require_owner()
    given = {name: value.strip() for name, value in pairs if name in (*_KEPT, "last")}
    asked = {"a": "v1", "b": "v2", "mode": "open", "last": "", **dict.fromkeys(_KEPT[:4], "")}
    asked |= {name: value for name, value in given.items() if value}
    if "dataset" not in asked:
        asked["dataset"] = bench.dataset_of(bench.queries(asked["set"]))
    if asked["mode"] not in MODES:
        raise InputError(f"{asked['mode'][:60]!r} is no mode; modes: {', '.join(MODES)}")
    return asked


def _about(asked: Mapping[str, str]) -> tuple[str, str, str, str]:
    """Return the fields of :class:`Shown` from ``golden`` to ``by``."""
    return asked["set"], asked["dataset"], asked["mode"], asked["by"]


def _address(path: str, shown: Shown, **more: str) -> str:
    pair = dict(zip("ab", sorted((shown.left, shown.right)), strict=True))
    about = {"set": shown.golden, "by": shown.by, "mode": shown.mode, "dataset": shown.dataset}
    fields = {**about, **pair, **more}
    return f"{path}?{urlencode({name: value for name, value in fields.items() if value})}"


def _judges(query: GoldenQuery, asked: dict[str, str]) -> set[str]:
    """Return who chose between these two searches in this mode."""
    searches = ({asked["a"], asked["b"]}, asked["mode"])
    return {one.by for one in query.preferences if ({one.left, one.right}, one.mode) == searches}


def _progress(
    queries: Sequence[GoldenQuery], left: Sequence[GoldenQuery], asked: dict[str, str]
) -> str:
    """Say how many are judged, and whether that is enough, without a name."""
    searches = ({asked["a"], asked["b"]}, asked["mode"])
    told = f"{len(queries) - len(left)} of {len(queries)} questions judged"
    if others := sum(bool(_judges(one, asked)) for one in left):
        told += f", {others} more by others"
    is_decided = any(
        one.test.decided_after is not None
        for one in preference_tests(queries)
        if ({one.baseline, one.candidate}, one.mode) == searches
    )
    return f"{told}; it is decided, you may stop" if is_decided else told


def queue(
    bench: Bench, left: Sequence[GoldenQuery], asked: dict[str, str]
) -> Iterator[GoldenQuery]:
    """Yield the questions that are left, the most useful first.

    They come in two parts: those that nobody has judged, and the others. In each, first come
    questions whose first ten documents differ, those with the most unjudged documents first. Then
    come those with another order of the same documents, and last those with equal lists; of these,
    the ones where words and meaning agree least on the first ten come first. Lists are asked for
    within half a second, and remembered; the rest come in the order of the file.
    """
    until = time.monotonic() + _QUEUE_SECONDS
    ranked: list[tuple[tuple[bool, int, int], int]] = []
    for number, query in enumerate(left):
        lists, by_legs = (
            [bench.rank(spec, asked["dataset"], query)[0].documents[:TOP] for spec in specs]
            for specs in ((asked["a"], asked["b"]), LEGS)
        )
        either = set(lists[0]) ^ set(lists[1])
        unjudged = len(either - set(query.grades))
        if either and unjudged:
            useful = (0, -unjudged)
        else:
            agreed = set.intersection(*map(set, by_legs))
            useful = (1 if either or lists[0] != lists[1] else 2, len(agreed))
        ranked.append(((bool(_judges(query, asked)), *useful), number))
        if time.monotonic() > until:
            break
    yield from (left[number] for _, number in sorted(ranked))
    yield from left[len(ranked) :]


def _shown(bench: Bench, question: GoldenQuery, asked: dict[str, str], *, is_new: bool) -> View:
    """Return the lists of a question, and the form that judges them."""
    names = [asked["a"], asked["b"]]
    is_hidden = asked["mode"] != "open"
    if is_hidden and secrets.randbelow(2):
        names.reverse()
    found = (bench.rank(name, asked["dataset"], question) for name in names)
    rankings, errors, times = zip(*found, strict=True)
    hits = [list(ranking.best_hits.values())[:TOP] for ranking in rankings]
    has_text = not is_hidden or all(hit.text for side in hits for hit in side)
    view: View = {"question": question.query, "sides": [], "list": [], "since": max(times)}
    teams: tuple[str, ...] = ()
    if asked["mode"] == "interleaved":
        by_path = {hit.path: hit for side in hits for hit in side}
        left, right = ([hit.path for hit in side] for side in hits)
        drafted = team_draft(left, right, lambda: bool(secrets.randbelow(2)))[:TOP]
        teams = tuple(side for _, side in drafted)
        view["list"] = [
            _hit(by_path[path], question.query, with_text=has_text) for path, _ in drafted
        ]
    else:
        for name, ranking, side, error in zip(names, rankings, hits, errors, strict=True):
            stages = [(stage, format_ms(ms)) for stage, ms in ranking.stages_ms.items()]
            told: View = {"name": name, "error": error, "stages": stages}
            if is_hidden:
                told = {"name": "", "error": error and "this search failed", "stages": ()}
            parts = [_hit(hit, question.query, with_text=has_text) for hit in side]
            view["sides"].append({**told, "hits": parts, "paths": [hit.path for hit in side]})
        for leg in () if is_hidden else LEGS:  # the rank of each document by it alone
            documents = bench.rank(leg, asked["dataset"], question)[0].documents
            view.setdefault("legs", {})[leg] = {path: n for n, path in enumerate(documents, 1)}
    shown = Shown(question, names[0], names[1], *_about(asked), teams=teams, is_new=is_new)
    if asked["set"] and asked["by"] and not any((*errors, *times)):
        view["choices"] = [] if teams else list(enumerate(CHOICES.items(), start=1))
        view["nonce"] = bench.show(shown)
        about = {"q": question.query} if is_new else {"id": question.id}
        view["grade"] = _address("/grade", shown, **about)
    return view


def _hit(hit: RankedHit, query: str, *, with_text: bool = True) -> View:
    return {"hit": hit, "excerpt": cut_excerpt(hit.text, query) if with_text else ()}
