"""Searches that answer from a table, and comparisons made of them."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from catalog.core.user_search import RankedHit, Ranking
from catalog.evaluation.comparison import PipelineComparison, compare_runs
from catalog.evaluation.golden import GoldenQuery, GoldenSet
from catalog.evaluation.runs import run_backends

Found = Sequence[str | RankedHit] | Exception


class TableBackend:
    """Answers each query with what its id has in the table; an exception is raised."""

    def __init__(
        self, name: str, table: Mapping[str, Found], identity: Mapping[str, Any] | None = None
    ) -> None:
        self.name, self._table, self._identity = name, table, dict(identity or {"pipeline": name})
        self.stages: Mapping[str, float] = {}
        self.doubt: bool | None = None

    @property
    def identity(self) -> dict[str, Any]:
        return self._identity

    def prepare(self, dataset: str, progress: object = None) -> None:
        pass

    def search(self, query: GoldenQuery, *, dataset: str, top_k: int) -> Ranking:
        found = self._table.get(query.id, ())
        if isinstance(found, Exception):
            raise found
        hits = [RankedHit(one) if isinstance(one, str) else one for one in found]
        return Ranking(tuple(hits[:top_k]), self.stages, self.doubt)

    def close(self) -> None:
        pass


def ticking(step: float = 0.004) -> Callable[[], float]:
    """A clock that moves by ``step`` seconds whenever it is read."""
    ticks = itertools.count()
    return lambda: next(ticks) * step


def golden(*queries: GoldenQuery, name: str = "stub") -> GoldenSet:
    return GoldenSet(name, queries)


def question(number: int, **fields: Any) -> GoldenQuery:
    """Query ``q<number>``, which ``right.md`` answers unless told otherwise."""
    given: dict[str, Any] = {
        "id": f"q{number}",
        "query": f"question number {number}",
        "difficulty": "easy",
        "kind": "semantic",
        "expected": [{"path": "right.md", "grade": 3}, {"path": "wrong.md", "grade": 0}],
    }
    return GoldenQuery.model_validate(given | fields)


def compared(
    queries: Sequence[GoldenQuery],
    baseline: Mapping[str, Found] | TableBackend,
    candidate: Mapping[str, Found] | TableBackend,
    *,
    repeats: int = 2,
) -> PipelineComparison:
    """A real comparison of two tables, named old and new."""
    backends = [
        given if isinstance(given, TableBackend) else TableBackend(name, given)
        for name, given in (("old", baseline), ("new", candidate))
    ]
    asked = GoldenSet("stub", tuple(queries))
    before, after = run_backends(backends, asked, dataset="books", repeats=repeats, clock=ticking())
    return compare_runs(before, after, asked)
