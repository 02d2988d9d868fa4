"""Filters on the payload of a collection that other software filled, in Qdrant's language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from catalog.core.documents import MetadataScalar
from catalog.core.errors import FilterError, UnknownFieldError
from catalog.core.filters import TEXT_OPS, Condition, Op, value_kind
from catalog.store.vectors.point_filters import ConditionCompiler, PointCondition, finite

BY_WORDS = frozenset({"page_title", "section"})
_BOUNDS = {Op.GT: "gt", Op.GTE: "gte", Op.LT: "lt", Op.LTE: "lte"}


class PayloadFilterCompiler(ConditionCompiler):
    """Turn a filter into a condition on payloads.

    ``keys`` gives the payload's name of each of our fields; other fields that the collection has
    an index of (``indexes``: its kind by payload name) go by their own name. Text is compared as a
    whole, that of :data:`BY_WORDS` by its words in any order and case, unless the collection has a
    keyword index of it. Raises :class:`UnknownFieldError` for any other field.
    """

    def __init__(self, keys: Mapping[str, str], indexes: Mapping[str, str]) -> None:
        self._keys, self._indexes = keys, indexes

    def describe(self, fields: Sequence[str]) -> str:
        """Say how each of these fields is compared."""
        how = {name: "by words" if self._is_by_words(name) else "whole" for name in fields}
        return ", ".join(f"{name} {way}" for name, way in how.items())

    def _equals(self, field: str, values: Sequence[MetadataScalar]) -> PointCondition | bool:
        return self._some([self._is(field, value) for value in values])

    def _is(self, field: str, value: MetadataScalar) -> PointCondition:
        key = self._key(field)
        if value_kind(value) == "n":
            return {"key": key, "range": dict.fromkeys(("gte", "lte"), finite(value))}
        if isinstance(value, str) and self._is_by_words(field):
            return {"key": key, "match": {"text": value}}
        return {"key": key, "match": {"value": value}}

    def _present(self, field: str) -> PointCondition | bool:
        return {"must_not": [{"is_empty": {"key": self._key(field)}}]}

    def _compares(self, condition: Condition, bound: MetadataScalar) -> PointCondition | bool:
        key = self._key(condition.field)
        if condition.op in TEXT_OPS:
            return {"key": key, "match": {"text": bound}}
        if value_kind(bound) != "n":
            raise FilterError(
                f"{condition.field} {condition.op.value} needs a number in a collection of others"
            )
        return {"key": key, "range": {_BOUNDS[condition.op]: finite(bound)}}

    def _is_by_words(self, field: str) -> bool:
        return field in BY_WORDS and self._indexes.get(self._key(field)) != "keyword"

    def _key(self, field: str) -> str:
        key = self._keys.get(field, field)
        if field not in self._keys and field not in self._indexes:
            known = ", ".join(sorted({*self._keys, *self._indexes}))
            raise UnknownFieldError(f"the collection is not searched by {field!r}; fields: {known}")
        return key
