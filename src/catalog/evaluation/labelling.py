"""Labelling at the terminal: what several pipelines found for a query, graded by a person."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path

from catalog.core.errors import GoldenSetError
from catalog.core.user_search import RankedHit, Ranking
from catalog.evaluation.golden import Expected, GoldenQuery, Kind, parse_golden, read_lines

GRADES = {"0": 0, "1": 1, "2": 2, "3": 3}
POOL = 10


def pooled(answers: Iterable[Ranking], judged: Iterable[str], limit: int = POOL) -> list[RankedHit]:
    """Each document's best passage, the pipelines' lists in turn, without the judged documents.

    Pooling several pipelines keeps the labels from favouring one of them.
    """
    lists = [_best_passages(answer) for answer in answers]
    seen = set(judged)
    pool: list[RankedHit] = []
    for row in zip_longest(*lists):
        for passage in row:
            if passage is not None and passage.path not in seen:
                seen.add(passage.path)
                pool.append(passage)
    return pool[:limit]


def _best_passages(answer: Ranking) -> list[RankedHit]:
    best: dict[str, RankedHit] = {}
    for passage in answer.passages:
        best.setdefault(passage.path, passage)
    return list(best.values())


def with_grades(
    query: GoldenQuery, grades: Sequence[tuple[RankedHit, int]], kind: Kind | None = None
) -> GoldenQuery:
    """The query with these documents judged as well; its kind follows when it had none.

    ``kind`` is for one that turns out to be answered. A query of which nothing is judged is not
    called unanswerable.
    """
    added = tuple(Expected(path=passage.path, grade=grade) for passage, grade in grades)
    values = query.model_dump() | {"expected": (*query.expected, *added)}
    answered = any(one.grade > 0 for one in values["expected"])
    if query.kind is None and values["expected"] and not answered:
        values["kind"] = "unanswerable"
    elif query.kind in (None, "unanswerable") and answered:
        values["kind"] = kind
    return GoldenQuery.model_validate(values)


def ask_grades(
    passages: Sequence[RankedHit], ask: Callable[[RankedHit, int, int], str]
) -> list[tuple[RankedHit, int]]:
    """Ask for a grade 0 to 3 of each; an empty answer passes one over, ``q`` ends the query."""
    grades: list[tuple[RankedHit, int]] = []
    for number, passage in enumerate(passages, start=1):
        while (said := ask(passage, number, len(passages)).strip().casefold()) not in GRADES:
            if said in ("", "q"):
                break
        if said == "q":
            break
        if said in GRADES:
            grades.append((passage, GRADES[said]))
    return grades


def load_or_new(path: Path) -> list[GoldenQuery]:
    """The queries of a file, none if it does not exist; raises :class:`GoldenSetError`."""
    if not path.exists():
        return []
    queries, problems = parse_golden(read_lines(path))
    if problems:
        raise GoldenSetError(f"{path} {problems[0]}; mend it first ('catalog golden check')")
    return queries


def save(path: Path, queries: Sequence[GoldenQuery]) -> None:
    """Write them all, or leave the file as it was."""
    lines = [query.model_dump_json(exclude_defaults=True) + "\n" for query in queries]
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text("".join(lines), encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise GoldenSetError(f"cannot write {path}: {error.strerror}") from error


def next_id(queries: Sequence[GoldenQuery]) -> str:
    """``q001`` and so on, the first that is free."""
    taken = {query.id for query in queries}
    number = len(queries) + 1
    while f"q{number:03}" in taken:
        number += 1
    return f"q{number:03}"
