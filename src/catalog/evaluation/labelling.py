"""Labelling at the terminal: what several pipelines found for a query, graded by a person."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest

from catalog.core.user_search import RankedHit, Ranking
from catalog.evaluation.golden import Expected, GoldenQuery, QueryKind

GRADES = {"0": 0, "1": 1, "2": 2, "3": 3}
POOL = 10


def pool_hits(
    rankings: Iterable[Ranking], judged: Iterable[str], limit: int = POOL
) -> list[RankedHit]:
    """Take each document's best hit, from the rankings in turn, without the judged documents.

    Pooling several pipelines keeps the labels from favouring one of them.
    """
    best_hits = [ranking.best_hits.values() for ranking in rankings]
    seen = set(judged)
    pool: list[RankedHit] = []
    for row in zip_longest(*best_hits):
        for hit in row:
            if hit is not None and hit.path not in seen:
                seen.add(hit.path)
                pool.append(hit)
    return pool[:limit]


def add_grades(
    query: GoldenQuery, grades: Sequence[tuple[RankedHit, int]], kind: QueryKind | None = None
) -> GoldenQuery:
    """Return the query with these documents judged as well; its kind follows when it had none.

    ``kind`` is for one that turns out to be answered. A query of which nothing is judged is not
    called unanswerable.
    """
    added = tuple(Expected(path=hit.path, grade=grade) for hit, grade in grades)
    values = query.model_dump() | {"expected": (*query.expected, *added)}
    is_answered = any(label.grade > 0 for label in values["expected"])
    if query.kind is None and values["expected"] and not is_answered:
        values["kind"] = "unanswerable"
    elif query.kind in (None, "unanswerable") and is_answered:
        values["kind"] = kind
    return GoldenQuery.model_validate(values)


def ask_grades(
    hits: Sequence[RankedHit], ask: Callable[[RankedHit, int, int], str]
) -> list[tuple[RankedHit, int]]:
    """Ask for a grade 0 to 3 of each hit; an empty answer skips one, ``q`` ends the query."""
    grades: list[tuple[RankedHit, int]] = []
    for number, hit in enumerate(hits, start=1):
        while (reply := ask(hit, number, len(hits)).strip().casefold()) not in GRADES:
            if reply in ("", "q"):
                break
        if reply == "q":
            break
        if reply in GRADES:
            grades.append((hit, GRADES[reply]))
    return grades


def next_id(queries: Sequence[GoldenQuery]) -> str:
    """Return the first free id of ``q001`` and so on."""
    ids = {query.id for query in queries}
    number = len(queries) + 1
    while f"q{number:03}" in ids:
        number += 1
    return f"q{number:03}"
