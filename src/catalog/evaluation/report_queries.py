"""One query's part of a report: both ranked lists, what moved, and what the labels say."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from catalog.core.user_search import RankedHit
from catalog.evaluation.golden import Expected, GoldenQuery
from catalog.evaluation.report_charts import delta_side
from catalog.evaluation.report_text import (
    View,
    compile_words,
    cut_excerpt,
    format_difference,
    format_filters,
    format_score,
    format_value,
    shorten,
)
from catalog.evaluation.runs import BackendRun, QueryOutcome

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
    """Build a query's view; ``scores`` are of the deciding metric, ``brief`` omits the passages."""
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
    """Return the badge of a grade; ``None`` means that nobody judged the document."""
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
    """Return a document in a list; ``move`` is its way, a mark, and the mark in words."""
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
    """Return how a document of the candidate's list got there: way, mark, in words."""
    old = before.get(path)
    if old is None:
        return "up", "new", "not found by the baseline"
    if old == rank:
        return "same", "=", ""
    way, sign = ("up", "▲") if old > rank else ("down", "▼")
    unseen = f"rank {old} in the baseline" if old > SHOWN else ""  # else the line shows it
    return way, f"{sign}{abs(old - rank)}", unseen


def _departure(path: str, after: Mapping[str, int]) -> tuple[str, str, str]:
    """Return what became of a document of the baseline's list, where that is not in sight."""
    new = after.get(path)
    if new is None:
        return "down", "gone", "not found by the candidate"
    if new > SHOWN:
        return "down", f"to {new}", f"rank {new} in the candidate"
    return _UNMOVED


def _lines(
    before: Mapping[str, int], after: Mapping[str, int], grades: Mapping[str, int]
) -> list[View]:
    """Return lines between the first ten of both, from row 0 on; relevant documents' lie on top."""
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
