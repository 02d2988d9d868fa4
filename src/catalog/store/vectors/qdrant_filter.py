"""One compiler of filters for everything that speaks Qdrant's filter language.

A :class:`Dialect` names the six things needed. ``True`` and ``False`` stand for a condition
that always or never holds; they are worked out here, because to Qdrant an empty list of
alternatives means everything.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from catalog.core.filters import And, Condition, Filter, Not, Op, Or, kind_of, matches, number
from catalog.core.ids import source_doc_id
from catalog.core.models import MetadataScalar
from catalog.core.scope import Scope
from catalog.store.vectors.payload import DOC, PAGE, TOKENS, presence_token, value_token

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
            numbers = [value for value in values if kind_of(value) == "n"]
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
            return self._page(asked.op, bound) if kind_of(bound) == "n" else False
        return self._equals(asked.field, list(self._values(asked)))

    def _page(self, op: Op, bound: MetadataScalar) -> C:
        finite = max(-_LARGEST, min(_LARGEST, number(float(bound))))
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
