"""From nearest points to live, allowed chunks; filters in Qdrant's language.

A :class:`Dialect` names the six things needed. ``True`` and ``False`` stand for a condition
that always or never holds; they are worked out here, because to Qdrant an empty list of
alternatives means everything.

An index may hold stale points, several points per chunk, and a filter read a moment ago.
So more points are fetched than asked for, every chunk is checked against the truth before it
counts, and the fetch grows until there are enough.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from sqlalchemy import Connection, select

from catalog.core.documents import MetadataScalar
from catalog.core.errors import InputError
from catalog.core.filters import (
    And,
    Condition,
    Filter,
    Not,
    Op,
    Or,
    comparable_number,
    matches,
    value_kind,
)
from catalog.core.ids import point_id, source_doc_id
from catalog.core.scope import Scope
from catalog.store.database import Database
from catalog.store.engine_types import Hit, Restriction, best_first
from catalog.store.filter_sql import among, matching_values
from catalog.store.schema import chunk_windows, chunks
from catalog.store.vectors.points import DOC, PAGE, TOKENS, presence_token, value_token

C = TypeVar("C")

Values = Callable[[Condition], Iterable[MetadataScalar]]
"""The field's values in the dataset on which a comparison or text match holds."""

_ALWAYS_THERE = frozenset({"dataset", "source_doc_id", "path"})
_LARGEST = sys.float_info.max  # JSON knows no infinity


class Dialect(Protocol[C]):
    """How an engine writes conditions on points."""

    def has_any(self, key: str, values: Sequence[str]) -> C:
        """Some value under ``key`` is one of these."""
        ...

    def within(self, key: str, op: Op, bound: float) -> C:
        """A number under ``key`` compares so with ``bound``: EQ, GT, GTE, LT or LTE."""
        ...

    def has_id(self, point_ids: Sequence[str]) -> C:
        """The point is one of these."""
        ...

    def every(self, parts: Sequence[C]) -> C:
        """All parts hold; there is at least one."""
        ...

    def some(self, parts: Sequence[C]) -> C:
        """A part holds; there is at least one."""
        ...

    def none(self, parts: Sequence[C]) -> C:
        """No part holds; there is at least one."""
        ...


class FilterCompiler(Generic[C]):
    """Turns a scope and a filter into one condition on the points of ``dataset``."""

    def __init__(self, dialect: Dialect[C], dataset: str, values: Values) -> None:
        self._dialect = dialect
        self._dataset = dataset
        self._values = values

    def restriction(self, scope: Scope, tree: Filter | None) -> C | bool:
        """The condition under which a point's document is in scope and satisfies the filter."""
        in_scope = True if scope.ids is None else self._documents(sorted(scope.ids))
        return self._every([in_scope, True if tree is None else self.compile(tree)])

    def compile(self, tree: Filter) -> C | bool:
        """The filter as a condition on points, meaning what ``core.filters.matches`` says."""
        match tree:
            case And():
                return self._every([self.compile(part) for part in tree.parts])
            case Or():
                return self._some([self.compile(part) for part in tree.parts])
            case Not():
                return self._not(self.compile(tree.part))
            case Condition():
                return self._condition(tree)

    def _condition(self, asked: Condition) -> C | bool:
        listed = asked.value if isinstance(asked.value, tuple) else (asked.value,)
        values = [item for item in listed if item is not None]
        match asked.op:
            case Op.EQ | Op.CONTAINS | Op.IN | Op.ANY:
                return self._equals(asked.field, values)
            case Op.NE | Op.NIN:
                return self._not(self._equals(asked.field, values))
            case Op.ALL:
                return self._every([self._equals(asked.field, [value]) for value in values])
            case Op.IS_EMPTY:
                return self._not(self._present(asked.field))
            case _:
                return self._compares(asked, values[0])

    def _equals(self, field: str, values: Sequence[MetadataScalar]) -> C | bool:
        """Some value of the field is one of these."""
        texts = [value for value in values if isinstance(value, str)]
        if field == "dataset":
            return self._dataset in texts
        if field == "source_doc_id":
            return self._documents(texts)
        if field == "path":
            return self._documents([source_doc_id(self._dataset, text) for text in texts])
        if field == "page":
            numbers = [value for value in values if value_kind(value) == "n"]
            return self._some([self._page(Op.EQ, value) for value in numbers])
        return self._any_of(TOKENS, [value_token(field, value) for value in values])

    def _present(self, field: str) -> C | bool:
        if field in _ALWAYS_THERE:
            return True
        if field == "page":
            return self._page(Op.GTE, -_LARGEST)
        return self._any_of(TOKENS, [presence_token(field)])

    def _compares(self, asked: Condition, bound: MetadataScalar) -> C | bool:
        if asked.field == "dataset":
            return matches(asked, lambda _field: (self._dataset,))
        if asked.field == "page":
            return self._page(asked.op, bound) if value_kind(bound) == "n" else False
        return self._equals(asked.field, list(self._values(asked)))

    def _page(self, op: Op, bound: MetadataScalar) -> C:
        finite = max(-_LARGEST, min(_LARGEST, comparable_number(float(bound))))
        return self._dialect.within(PAGE, op, finite)

    def _documents(self, ids: Sequence[str]) -> C | bool:
        return self._any_of(DOC, ids)

    def _any_of(self, key: str, values: Sequence[str]) -> C | bool:
        return self._dialect.has_any(key, values) if len(values) > 0 else False

    def _every(self, parts: Sequence[C | bool]) -> C | bool:
        if any(part is False for part in parts):
            return False
        open_parts = [part for part in parts if not isinstance(part, bool)]
        if len(open_parts) < 2:
            return open_parts[0] if open_parts else True
        return self._dialect.every(open_parts)

    def _some(self, parts: Sequence[C | bool]) -> C | bool:
        if any(part is True for part in parts):
            return True
        open_parts = [part for part in parts if not isinstance(part, bool)]
        if len(open_parts) < 2:
            return open_parts[0] if open_parts else False
        return self._dialect.some(open_parts)

    def _not(self, part: C | bool) -> C | bool:
        return not part if isinstance(part, bool) else self._dialect.none([part])


FEW = 2_000  # chunks that are better named one by one than searched for
_MOST_TIES = 4_096  # points fetched to order equal scores by row number
_SCORE_DIGITS = 6  # what float32 arithmetic in any order agrees on


class PointHit(NamedTuple):
    """A point's chunk and its raw score."""

    chunk_id: str
    score: float


def round_score(cosine: float) -> float:
    """A cosine as engines report it: in [-1, 1], six decimals, so that equal texts tie."""
    return round(min(1.0, max(-1.0, cosine)), _SCORE_DIGITS) + 0.0


def check_dataset(restriction: Restriction, dataset: str) -> None:
    """Raise :class:`InputError` when a restriction is on another dataset than the index."""
    if restriction.dataset != dataset:
        raise InputError(f"this index holds {dataset!r}, not {restriction.dataset!r}")


def point_condition(
    connection: Connection, dialect: Dialect[C], restriction: Restriction
) -> C | bool:
    """The condition every allowed point meets; ``True`` when all may, ``False`` when none.

    Phrases to contain or leave out are known to SQL alone: where few chunks remain, those are
    named; otherwise the condition leaves the phrases to the check of :func:`nearest_chunks`.
    """
    if restriction.without or restriction.containing:
        query = select(chunks.c.seq).where(restriction.clause()).limit(FEW + 1)
        seqs = list(connection.scalars(query))
        if len(seqs) <= FEW:
            points = _point_ids(connection, seqs)
            return dialect.has_id(points) if points else False

    compiler = FilterCompiler(
        dialect,
        restriction.dataset,
        lambda asked: matching_values(connection, restriction.dataset, asked),
    )
    return compiler.restriction(restriction.scope, restriction.filter)


def nearest_chunks(
    database: Database,
    restriction: Restriction,
    k: int,
    fetch: Callable[[int], Sequence[PointHit]],
) -> list[Hit]:
    """The ``k`` best live chunks that the restriction allows, each by its best window.

    ``fetch(limit)`` gives the nearest points, best first, fewer than ``limit`` only when there
    are no more.
    """
    limit = 2 * k + 8
    known: dict[str, int | None] = {}
    while True:
        points = fetch(limit)
        best: dict[str, float] = {}
        for chunk_id, score in points:
            best[chunk_id] = max(round_score(score), best.get(chunk_id, -1.0))
        new = [chunk_id for chunk_id in best if chunk_id not in known]
        known.update(_live_seqs(database, restriction, new))
        hits = best_first(
            (
                Hit(seq, score)
                for chunk_id, score in best.items()
                if (seq := known[chunk_id]) is not None
            ),
            k,
        )
        if len(points) < limit or _is_settled(hits, k, round_score(points[-1].score), limit):
            return hits
        limit *= 4


def _is_settled(hits: Sequence[Hit], k: int, last: float, limit: int) -> bool:
    """Whether no point beyond the last one fetched can be among the best ``k``."""
    return len(hits) == k and (last < hits[-1].score or limit >= _MOST_TIES)


def _live_seqs(
    database: Database, restriction: Restriction, chunk_ids: Sequence[str]
) -> dict[str, int | None]:
    """The row number of each chunk that is live and allowed; ``None`` for any other."""
    found: dict[str, int | None] = dict.fromkeys(chunk_ids)
    if not chunk_ids:
        return found
    # by row number, so that no planner walks the whole dataset instead
    named = select(chunks.c.seq).where(among(chunks.c.chunk_id, chunk_ids)).correlate(None)
    query = select(chunks.c.chunk_id, chunks.c.seq).where(chunks.c.seq.in_(named))
    with database.read() as connection:
        rows = connection.execute(query.where(restriction.clause()))
        found.update((chunk_id, seq) for chunk_id, seq in rows)
    return found


def _point_ids(connection: Connection, seqs: Sequence[int]) -> list[str]:
    joined = chunks.join(chunk_windows, chunk_windows.c.seq == chunks.c.seq)
    query = select(chunks.c.chunk_id, chunk_windows.c.window).select_from(joined)
    rows = connection.execute(query.where(among(chunks.c.seq, seqs)))
    return [point_id(chunk_id, window) for chunk_id, window in rows]
