"""Turn a scope, a filter and nearest points into live, allowed chunks.

A filter becomes one condition on points, written as JSON like in Qdrant's REST interface
(https://qdrant.tech/documentation/concepts/filtering/). Each engine translates it into its own
classes. ``True`` and ``False`` are conditions that always or never hold. They are resolved here,
because Qdrant takes an empty list of alternatives for no condition.

An index may have stale points and several points for a chunk, and the filter was read a moment ago.
So more points are fetched than wanted, every chunk is checked against the store before it counts,
and the fetch grows until there are enough.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import compress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sqlalchemy import Connection, func, select

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
from catalog.core.lru_cache import LRUCache
from catalog.core.scope import Scope
from catalog.store.database import Database
from catalog.store.engine_types import Hit, Restriction, best_first, known_seqs, state_key
from catalog.store.filter_sql import among, among_bound, as_bound, matching_values
from catalog.store.schema import chunk_windows, chunks, documents
from catalog.store.vectors.points import DOC, PAGE, TOKENS, presence_token, value_token

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

PointCondition = dict[str, Any]
"""A condition in JSON: a filter with ``must``, ``should`` or ``must_not``, or one of its parts."""

FieldValues = Callable[[Condition], Iterable[MetadataScalar]]
"""Returns the field's values in the dataset that meet a comparison or text match."""

_CONDITIONS: LRUCache[Hashable, PointCondition | bool] = LRUCache(2**22, lambda one: len(repr(one)))
_MANY_NAMED = 16  # documents: for a longer list, look whether the excluded ones are fewer
FEW = 2_000  # chunks: up to this number it is faster to list their points
_ALWAYS_THERE = frozenset({"dataset", "source_doc_id", "path"})
_LARGEST = sys.float_info.max  # JSON has no infinity
_BOUNDS = {Op.EQ: ("gte", "lte"), Op.GT: ("gt",), Op.GTE: ("gte",), Op.LT: ("lt",)}
MOST_TIES = 4_096  # points fetched to order equal scores by row number
_MOST_SPARE = 24  # additional points at first, for second windows and stale points
_NAMED = select(chunks.c.chunk_id, chunks.c.seq).where(
    # answered from the index by chunk id alone: ids are unique over all datasets
    among_bound(chunks.c.chunk_id, "ids")
)
_ALLOWED = select(chunks.c.chunk_id, chunks.c.seq).where(
    # by row number, so that the planner does not scan the whole dataset
    chunks.c.seq.in_(
        select(chunks.c.seq).where(among_bound(chunks.c.chunk_id, "ids")).correlate(None)
    )
)
_SCORE_DIGITS = 6  # of a float32 score that do not depend on the order of additions


def finite(number: MetadataScalar) -> float:
    """Return a number as a 64-bit float for JSON; infinity becomes the largest float."""
    return max(-_LARGEST, min(_LARGEST, comparable_number(number)))  # type: ignore[arg-type]


class ConditionCompiler(ABC):
    """Turn a filter into a condition on points; subclasses define how fields are tested."""

    def compile(self, tree: Filter) -> PointCondition | bool:
        """Return the filter as a condition on points, with the meaning set in ``core.filters``."""
        match tree:
            case And():
                return self._every([self.compile(part) for part in tree.parts])
            case Or():
                return self._some([self.compile(part) for part in tree.parts])
            case Not():
                return self._not(self.compile(tree.part))
            case Condition():
                return self._condition(tree)

    def _condition(self, condition: Condition) -> PointCondition | bool:
        field, value = condition.field, condition.value
        items = value if isinstance(value, tuple) else (value,)
        values = [item for item in items if item is not None]
        match condition.op:
            case Op.EQ | Op.CONTAINS | Op.IN | Op.ANY:
                return self._equals(field, values)
            case Op.NE | Op.NIN:
                return self._not(self._equals(field, values))
            case Op.ALL:
                return self._every([self._equals(field, [item]) for item in values])
            case Op.IS_EMPTY:
                return self._not(self._present(field))
            case _:
                return self._compares(condition, values[0])

    @abstractmethod
    def _equals(self, field: str, values: Sequence[MetadataScalar]) -> PointCondition | bool:
        """Require that some value of the field equals one of these."""

    @abstractmethod
    def _present(self, field: str) -> PointCondition | bool:
        """Require that the field has a value."""

    @abstractmethod
    def _compares(self, condition: Condition, bound: MetadataScalar) -> PointCondition | bool:
        """Require that some value of the field passes the comparison or contains the text."""

    def _any_of(self, key: str, values: Sequence[str]) -> PointCondition | bool:
        return {"key": key, "match": {"any": list(values)}} if len(values) > 0 else False

    def _every(self, parts: Sequence[PointCondition | bool]) -> PointCondition | bool:
        return self._combine("must", parts, neutral=True)

    def _some(self, parts: Sequence[PointCondition | bool]) -> PointCondition | bool:
        return self._combine("should", parts, neutral=False)

    def _combine(
        self,
        kind: Literal["must", "should"],
        parts: Sequence[PointCondition | bool],
        *,
        neutral: bool,
    ) -> PointCondition | bool:
        """Combine parts with ``must`` or ``should``.

        ``neutral`` is the constant that changes nothing (``True`` for ``must``); the opposite
        constant decides the result alone.
        """
        if any(part is (not neutral) for part in parts):
            return not neutral
        conditions = [part for part in parts if not isinstance(part, bool)]
        if len(conditions) < 2:
            return conditions[0] if conditions else neutral
        return {kind: conditions}

    def _not(self, part: PointCondition | bool) -> PointCondition | bool:
        return not part if isinstance(part, bool) else {"must_not": [part]}


class FilterCompiler(ConditionCompiler):
    """Turn a scope and a filter into one condition on the points of ``dataset``."""

    def __init__(self, dataset: str, values: FieldValues) -> None:
        self._dataset = dataset
        self._values = values

    def restriction(self, scope: Scope, tree: Filter | None) -> PointCondition | bool:
        """Return the condition that a point's document is in scope and meets the filter."""
        in_scope = True if scope.ids is None else self._any_of(DOC, sorted(scope.ids))
        return self._every([in_scope, True if tree is None else self.compile(tree)])

    def _equals(self, field: str, values: Sequence[MetadataScalar]) -> PointCondition | bool:
        texts = [value for value in values if isinstance(value, str)]
        if field == "dataset":
            return self._dataset in texts
        if field == "source_doc_id":
            return self._any_of(DOC, texts)
        if field == "path":
            return self._any_of(DOC, [source_doc_id(self._dataset, text) for text in texts])
        if field == "page":
            numbers = [value for value in values if value_kind(value) == "n"]
            return self._some([self._page(Op.EQ, value) for value in numbers])
        return self._any_of(TOKENS, [value_token(field, value) for value in values])

    def _present(self, field: str) -> PointCondition | bool:
        if field in _ALWAYS_THERE:
            return True
        if field == "page":
            return self._page(Op.GTE, -_LARGEST)
        return self._any_of(TOKENS, [presence_token(field)])

    def _compares(self, condition: Condition, bound: MetadataScalar) -> PointCondition | bool:
        if condition.field == "dataset":
            return matches(condition, lambda _field: (self._dataset,))
        if condition.field == "page":
            return self._page(condition.op, bound) if value_kind(bound) == "n" else False
        return self._equals(condition.field, list(self._values(condition)))

    def _page(self, op: Op, bound: MetadataScalar) -> PointCondition:
        return {"key": PAGE, "range": dict.fromkeys(_BOUNDS.get(op, ("lte",)), finite(bound))}


def point_condition(connection: Connection, restriction: Restriction) -> PointCondition | bool:
    """Return the condition of all allowed points; ``True`` for all points, ``False`` for none.

    Only SQL knows phrases to contain or to exclude. If they leave few chunks, the condition lists
    their points. Otherwise the condition ignores phrases, and every hit must be checked. The result
    is cached until the dataset changes; do not modify it.
    """
    key = state_key(connection, restriction)
    found = _CONDITIONS.get(key)
    if found is None:
        found = _make_condition(connection, restriction)
        _CONDITIONS.put(key, found)
    return found


def _make_condition(connection: Connection, restriction: Restriction) -> PointCondition | bool:
    if restriction.without or restriction.containing:
        query = select(chunks.c.seq).where(restriction.clause()).limit(FEW + 1)
        seqs = list(connection.scalars(query))
        if len(seqs) <= FEW:
            points = _point_ids(connection, seqs)
            return {"has_id": points} if points else False
    (dataset,) = restriction.datasets  # an index has one dataset
    compiler = FilterCompiler(
        dataset, lambda condition: matching_values(connection, dataset, condition)
    )
    condition = compiler.restriction(restriction.scope, restriction.filter)
    return _name_the_fewer(connection, dataset, condition)


def _name_the_fewer(
    connection: Connection, dataset: str, condition: PointCondition | bool
) -> PointCondition | bool:
    """Turn a long list of documents into a list of the excluded ones if that is shorter.

    A point of a removed document may then meet the condition, but every hit is checked.
    """
    match condition:
        case {"key": key, "match": {"any": named}} if key == DOC and len(named) > _MANY_NAMED:
            total = select(func.count()).where(documents.c.dataset == dataset)
            if connection.scalars(total).one() < 2 * len(named):
                query = select(documents.c.source_doc_id).where(documents.c.dataset == dataset)
                others = sorted(set(connection.scalars(query)).difference(named))
                return {"must_not": [{"key": DOC, "match": {"any": others}}]} if others else True
    return condition


def _point_ids(connection: Connection, seqs: Sequence[int]) -> list[str]:
    joined = chunks.join(chunk_windows, chunk_windows.c.seq == chunks.c.seq)
    query = select(chunks.c.chunk_id, chunk_windows.c.window).select_from(joined)
    rows = connection.execute(query.where(among(chunks.c.seq, seqs)))
    return [point_id(chunk_id, window) for chunk_id, window in rows]


class PointHit(NamedTuple):
    """A point's chunk and its raw score."""

    chunk_id: str
    score: float


def round_score(cosine: float) -> float:
    """Return a cosine as engines report it: in [-1, 1], six decimals, so that equal texts tie."""
    return round(min(1.0, max(-1.0, cosine)), _SCORE_DIGITS) + 0.0


def check_dataset(restriction: Restriction, dataset: str) -> None:
    """Raise :class:`InputError` if a restriction is for another dataset than the index."""
    if restriction.dataset != dataset:
        raise InputError(f"this index holds {dataset!r}, not {restriction.dataset!r}")


def nearest_chunks(
    database: Database,
    restriction: Restriction,
    k: int,
    fetch: Callable[[int, PointCondition | None], Sequence[PointHit]],
) -> list[Hit]:
    """Return the ``k`` best live chunks that the restriction allows, each by its best window.

    ``fetch(limit, condition)`` returns the nearest points that meet the condition, best first, and
    fewer than ``limit`` only if there are no more.
    """
    condition: PointCondition | bool = True
    if not restriction.is_whole_dataset:
        with database.read() as connection:
            condition = point_condition(connection, restriction)
    if condition is False:
        return []
    limit = k + min(k, _MOST_SPARE) + 8  # each additional point is a vector to read from disk
    seqs: dict[str, int | None] = {}
    while True:
        points = fetch(limit, None if isinstance(condition, bool) else condition)
        best: dict[str, float] = {}
        for chunk_id, score in points:
            if chunk_id not in best:  # the first window is the best
                best[chunk_id] = round_score(score)
        for names in (_first_of(best, k), list(best)):
            seqs |= _live_seqs(database, restriction, [name for name in names if name not in seqs])
            live = ((seq, best[name]) for name in names if (seq := seqs[name]) is not None)
            hits = best_first(live, k)
            if len(hits) == k:
                break
        if len(points) < limit or _is_complete(hits, k, round_score(points[-1].score), limit):
            return hits
        limit *= 4


def _first_of(best: dict[str, float], k: int) -> list[str]:
    """Return the ``k`` best chunks and those that tie with the last one, in the given order."""
    names = list(best)
    if len(names) <= k:
        return names
    last = best[names[k - 1]]
    return [name for name, score in best.items() if score >= last]


def _is_complete(hits: Sequence[Hit], k: int, last: float, limit: int) -> bool:
    """Return whether no point after the last fetched one can be among the best ``k``."""
    return len(hits) == k and (last < hits[-1].score or limit >= MOST_TIES)


def _live_seqs(
    database: Database, restriction: Restriction, chunk_ids: Sequence[str]
) -> dict[str, int | None]:
    """Return the row number of each chunk that is live and allowed, ``None`` for other chunks."""
    seqs: dict[str, int | None] = dict.fromkeys(chunk_ids)
    if not chunk_ids:
        return seqs
    named, allowed = _NAMED, None
    with database.read() as connection:
        if not restriction.is_whole_dataset:
            allowed = known_seqs(connection, restriction)
            if allowed is None:
                named = _ALLOWED.where(restriction.clause())
        rows = connection.execute(named, {"ids": as_bound(chunk_ids)}).all()
    live: dict[str, int] = dict(rows)
    seqs |= live if allowed is None else _among(allowed, live)
    return seqs


def _among(ascending: npt.NDArray[np.int64], seqs: dict[str, int]) -> dict[str, int]:
    """Return the entries of ``seqs`` whose row number is in ``ascending``."""
    import numpy as np

    if len(ascending) == 0:
        return {}
    wanted = np.fromiter(seqs.values(), dtype=np.int64, count=len(seqs))
    holds = ascending.take(ascending.searchsorted(wanted), mode="clip") == wanted
    return dict(compress(seqs.items(), holds.tolist()))
