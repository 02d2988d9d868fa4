"""Read a Qdrant collection that other software filled; never write to it.

A filter becomes one condition on payloads, written as JSON like in Qdrant's REST interface
(https://qdrant.tech/documentation/concepts/filtering/). ``True`` and ``False`` are conditions that
always or never hold: Qdrant takes an empty list of alternatives for no condition.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from qdrant_client import models

from catalog.core.documents import MetadataScalar
from catalog.core.errors import ConfigError, FilterError, UnknownFieldError
from catalog.core.filters import (
    TEXT_OPS,
    WORD_FIELDS,
    And,
    Condition,
    Filter,
    Not,
    Op,
    Or,
    comparable_number,
    value_kind,
)
from catalog.store.vectors.qdrant import QdrantServer

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

PayloadCondition = dict[str, Any]
_BOUNDS = {Op.GT: "gt", Op.GTE: "gte", Op.LT: "lt", Op.LTE: "lte"}
_LARGEST = sys.float_info.max  # JSON has no infinity
_NAMED = 10  # collections in one message
_DISTANCES = (models.Distance.COSINE, models.Distance.DOT)  # with these a larger score is nearer


class PayloadFilterCompiler:
    """Turn a filter into a condition on payloads, with the meaning set in ``core.filters``.

    ``keys`` maps our fields to names in the payload. Other fields that the collection indexes
    (``indexes``: kind by payload name) keep their names. Text must match as a whole; fields in
    :data:`~catalog.core.filters.WORD_FIELDS` match by their words in any order and case. Raises
    :class:`UnknownFieldError` for any other field.
    """

    def __init__(self, keys: Mapping[str, str], indexes: Mapping[str, str]) -> None:
        self._keys, self._indexes = keys, indexes

    def describe(self, fields: Sequence[str]) -> str:
        """Describe how each of these fields is compared: by words or whole."""
        how = {name: "by words" if name in WORD_FIELDS else "whole" for name in fields}
        return ", ".join(f"{name} {way}" for name, way in how.items())

    def compile(self, tree: Filter) -> PayloadCondition | bool:
        """Return the filter as a condition on payloads."""
        match tree:
            case And():
                return _combine("must", [self.compile(part) for part in tree.parts])
            case Or():
                return _combine("should", [self.compile(part) for part in tree.parts])
            case Not():
                return _not(self.compile(tree.part))
            case Condition():
                return self._condition(tree)

    def _condition(self, condition: Condition) -> PayloadCondition | bool:
        key, value = self._key(condition.field), condition.value
        items = value if isinstance(value, tuple) else (value,)
        tests: list[PayloadCondition | bool] = [
            self._is(condition.field, key, item) for item in items if item is not None
        ]
        match condition.op:
            case Op.EQ | Op.CONTAINS | Op.IN | Op.ANY:
                return _combine("should", tests)
            case Op.NE | Op.NIN:
                return _not(_combine("should", tests))
            case Op.ALL:
                return _combine("must", tests)
            case Op.IS_EMPTY:
                return {"is_empty": {"key": key}}
            case op if op in TEXT_OPS:
                return {"key": key, "match": {"text": items[0]}}
        if value_kind(items[0]) != "n":  # type: ignore[arg-type]
            raise FilterError(
                f"{condition.field} {condition.op.value} needs a number in a collection that "
                "other software filled"
            )
        return {"key": key, "range": {_BOUNDS[condition.op]: _finite(items[0])}}

    def _is(self, field: str, key: str, value: MetadataScalar) -> PayloadCondition:
        if value_kind(value) == "n":
            return {"key": key, "range": dict.fromkeys(("gte", "lte"), _finite(value))}
        by_words = isinstance(value, str) and field in WORD_FIELDS
        return {"key": key, "match": {"text" if by_words else "value": value}}

    def _key(self, field: str) -> str:
        if field not in self._keys and field not in self._indexes:
            known = ", ".join(sorted({*self._keys, *self._indexes}))
            raise UnknownFieldError(
                f"the collection cannot be filtered by {field!r}; fields: {known}"
            )
        return self._keys.get(field, field)


def _finite(number: object) -> float:
    return max(-_LARGEST, min(_LARGEST, comparable_number(number)))  # type: ignore[arg-type]


def _not(part: PayloadCondition | bool) -> PayloadCondition | bool:
    return not part if isinstance(part, bool) else {"must_not": [part]}


def _combine(
    kind: Literal["must", "should"], parts: Sequence[PayloadCondition | bool]
) -> PayloadCondition | bool:
    neutral = kind == "must"  # the constant that changes nothing; the other decides alone
    if (not neutral) in parts:
        return not neutral
    conditions = [part for part in parts if not isinstance(part, bool)]
    if len(conditions) < 2:
        return conditions[0] if conditions else neutral
    return {kind: conditions}


class ForeignPoint(NamedTuple):
    """A point of the collection; ``score`` is that of a search, ``vector`` is set on request."""

    id: str
    score: float
    payload: dict[str, Any]
    vector: list[float] | None = None


@dataclass(frozen=True, slots=True)
class CollectionShape:
    """The properties of a collection that a search needs.

    ``vector`` is the name of the vector to search, ``None`` if it has no name. ``indexes`` are the
    kinds of payload indexes by field (``keyword``, ``text``, ``integer`` …).
    """

    dim: int
    distance: str
    vector: str | None
    indexes: Mapping[str, str]


class ForeignCollection:
    """The collection ``name`` on a server; all methods only read.

    They raise :class:`EngineError` if the server cannot be reached or refuses.
    """

    def __init__(self, server: QdrantServer, name: str, vector: str | None = None) -> None:
        self.server, self.name = server, name
        self._vector = vector

    def read_shape(self) -> CollectionShape:
        """Return dimension, distance and indexes; raise :class:`ConfigError` if unsearchable."""
        client = self.server.client
        if not self.server.ask(client.collection_exists, self.name):
            raise ConfigError(f"{self._place} does not exist{self._others()}")
        info = self.server.ask(client.get_collection, self.name)
        name, params = self._choose(info.config.params.vectors)
        if params.multivector_config is not None:
            raise ConfigError(f"{self._place} has several vectors for each point")
        if params.distance not in _DISTANCES:
            raise ConfigError(
                f"{self._place} uses {params.distance.value} distance; only Cosine and Dot are "
                "supported"
            )
        indexes = {field: schema.data_type.value for field, schema in info.payload_schema.items()}
        return CollectionShape(params.size, params.distance.value, name, indexes)

    def count(self) -> int:
        """Return the number of points."""
        return self.server.ask(self.server.client.count, self.name, exact=True).count

    def nearest(
        self,
        shape: CollectionShape,
        vector: npt.NDArray[np.float32],
        limit: int,
        condition: PayloadCondition | None,
        threshold: float | None,
    ) -> list[ForeignPoint]:
        """Return the nearest points that meet the condition, best first, at most ``limit``.

        Points with a score below ``threshold`` are left out.
        """
        wanted = None if condition is None else models.Filter.model_validate({"must": [condition]})
        response = self.server.ask(
            self.server.client.query_points,
            self.name,
            query=vector.tolist(),
            using=shape.vector,
            query_filter=wanted,
            limit=limit,
            score_threshold=threshold,
            with_payload=True,
        )
        return [_to_point(point) for point in response.points]

    def sample(self, shape: CollectionShape, limit: int) -> list[ForeignPoint]:
        """Return some points, with their vectors."""
        response = self.server.ask(
            self.server.client.query_points,
            self.name,
            limit=limit,
            with_payload=True,
            with_vectors=True if shape.vector is None else [shape.vector],
        )
        return [_to_point(point, shape.vector) for point in response.points]

    @property
    def _place(self) -> str:
        return f"the collection {self.name!r} at {self.server.address}"

    def _choose(self, vectors: Any) -> tuple[str | None, models.VectorParams]:
        """Return the vector to search; a collection with a single vector needs no setting."""
        if isinstance(vectors, models.VectorParams):
            if self._vector is not None:
                raise ConfigError(f"the vector of {self._place} has no name: leave the name out")
            return None, vectors
        names = ", ".join(sorted(vectors or {})) or "no dense vector"
        if self._vector is None and len(vectors or {}) != 1:
            raise ConfigError(f"{self._place} has several vectors; set one: {names}")
        name = self._vector if self._vector is not None else next(iter(vectors))
        if name not in (vectors or {}):
            raise ConfigError(f"{self._place} has no vector {name!r}; vectors: {names}")
        return name, vectors[name]

    def _others(self) -> str:
        """Return a list of collections for the end of a message."""
        there = self.server.ask(self.server.client.get_collections).collections
        names = sorted(collection.name for collection in there)
        more = ", …" if len(names) > _NAMED else ""
        return f"; collections: {', '.join(names[:_NAMED]) or 'none'}{more}"


def _to_point(point: models.ScoredPoint, name: str | None = None) -> ForeignPoint:
    vector: Any = point.vector
    if isinstance(vector, dict):
        vector = vector.get(name)
    return ForeignPoint(str(point.id), point.score, point.payload or {}, vector)
