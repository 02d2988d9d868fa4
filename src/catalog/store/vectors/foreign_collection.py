"""Read a Qdrant collection that other software filled; never write to it."""

import sys
from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

from qdrant_client import models

from catalog.core import filters
from catalog.core.documents import MetadataScalar
from catalog.core.errors import ConfigError, FilterError, UnknownFieldError
from catalog.core.filters import And, Filter, Not, Op, Or, comparable_number, value_kind
from catalog.store.engines import Vector
from catalog.store.vectors.qdrant import QdrantServer

PayloadCondition = dict[str, Any]
_BOUNDS = {Op.GT: "gt", Op.GTE: "gte", Op.LT: "lt", Op.LTE: "lte"}
_LARGEST = sys.float_info.max  # JSON has no infinity
_NAMED = 10  # collections in one message
_DISTANCES = ("Cosine", "Dot")  # with these a larger score is nearer


def payload_condition(tree: Filter, keys: Mapping[str, str]) -> PayloadCondition:
    """Return a filter as a condition on payloads, with the meaning set in ``core.filters``.

    It is written as in Qdrant's REST interface
    (https://qdrant.tech/documentation/concepts/filtering/). ``keys`` are names in the payload by
    field. Text must match as a whole; fields in :data:`~catalog.core.filters.WORD_FIELDS` match by
    their words in any order and case. Raises :class:`UnknownFieldError` for any other field.
    """
    match tree:
        case And():
            return {"must": [payload_condition(part, keys) for part in tree.parts]}
        case Or():
            return _any([payload_condition(part, keys) for part in tree.parts])
        case Not():
            return {"must_not": [payload_condition(tree.part, keys)]}
    if tree.field not in keys:
        message = f"the collection cannot be filtered by {tree.field!r}; fields: "
        raise UnknownFieldError(message + ", ".join(sorted(keys)))
    key, by_words = keys[tree.field], tree.field in filters.WORD_FIELDS
    items = tree.value if isinstance(tree.value, tuple) else (tree.value,)
    tests = [_is(key, item, by_words=by_words) for item in items if item is not None]
    match tree.op:
        case Op.EQ | Op.CONTAINS | Op.IN | Op.ANY:
            return _any(tests)
        case Op.NE | Op.NIN:
            return {"must_not": tests}
        case Op.ALL:
            return {"must": tests}
        case Op.IS_EMPTY:
            return {"is_empty": {"key": key}}
        case op if op in filters.TEXT_OPS:
            return {"key": key, "match": {"text": items[0]}}
    if items[0] is None or value_kind(items[0]) != "n":
        asked = f"{tree.field} {tree.op.value}"
        raise FilterError(f"{asked} needs a number in a collection that other software filled")
    return {"key": key, "range": {_BOUNDS[tree.op]: _finite(items[0])}}


def _any(parts: list[PayloadCondition]) -> PayloadCondition:
    return {"should": parts} if parts else {"has_id": []}  # Qdrant takes [] for no condition


def _is(key: str, value: MetadataScalar, *, by_words: bool) -> PayloadCondition:
    if value_kind(value) == "n":
        return {"key": key, "range": dict.fromkeys(("gte", "lte"), _finite(value))}
    how = "text" if by_words and isinstance(value, str) else "value"
    return {"key": key, "match": {how: value}}


def _finite(number: object) -> float:
    return max(-_LARGEST, min(_LARGEST, comparable_number(number)))  # type: ignore[arg-type]


class ForeignPoint(NamedTuple):
    """A point of the collection; ``score`` is that of a search, ``vector`` is set on request."""

    id: str
    score: float
    payload: dict[str, Any]
    vector: list[float] | None = None


class CollectionShape(NamedTuple):
    """The properties of a collection that a search needs.

    ``vector`` is the name of the vector to search, ``None`` if it has no name. ``indexes`` are the
    kinds of payload indexes by field (``keyword``, ``text``, ``integer`` …).
    """

    dim: int
    distance: str
    vector: str | None
    indexes: Mapping[str, str]


class ForeignCollection:
    """The collection ``name`` on a server, only read; raises like :class:`QdrantServer`."""

    def __init__(self, server: QdrantServer, name: str, vector: str | None = None) -> None:
        self.server, self.name, self._vector = server, name, vector

    @cached_property
    def shape(self) -> CollectionShape:
        """The shape, read once; raises :class:`ConfigError` if the collection is unsearchable."""
        client, place = self.server.client, f"the collection {self.name!r} at {self.server.address}"
        if not self.server.call(client.collection_exists, self.name):
            there = self.server.call(client.get_collections).collections
            listed = _list([collection.name for collection in there]) or "none"
            raise ConfigError(f"{place} does not exist; collections: {listed}")
        info = self.server.call(client.get_collection, self.name)
        given: Any = info.config.params.vectors
        vectors = {None: given} if isinstance(given, models.VectorParams) else dict(given or {})
        name = next(iter(vectors)) if self._vector is None and len(vectors) == 1 else self._vector
        if name not in vectors:
            if None in vectors:
                raise ConfigError(f"the vector of {place} has no name: leave the name out")
            listed = _list(vectors) or "no dense vector"
            one = "several vectors; set one" if name is None else f"no vector {name!r}; vectors"
            raise ConfigError(f"{place} has {one}: {listed}")
        params = vectors[name]
        if params.multivector_config is not None:
            raise ConfigError(f"{place} has several vectors for each point")
        if (distance := params.distance.value) not in _DISTANCES:
            raise ConfigError(
                f"{place} uses {distance} distance; only Cosine and Dot are supported"
            )
        indexes = {field: schema.data_type.value for field, schema in info.payload_schema.items()}
        return CollectionShape(params.size, distance, name, indexes)

    def count(self) -> int:
        """Return the number of points."""
        return self.server.call(self.server.client.count, self.name, exact=True).count

    def nearest(
        self,
        vector: Vector,
        limit: int,
        condition: PayloadCondition | None,
        threshold: float | None,
    ) -> list[ForeignPoint]:
        """Return the nearest points that meet the condition and the threshold, best first."""
        wanted = condition and models.Filter.model_validate({"must": [condition]})
        how = {"query": vector.tolist(), "using": self.shape.vector, "query_filter": wanted}
        return self._query(limit, score_threshold=threshold, **how)

    def sample(self, limit: int) -> list[ForeignPoint]:
        """Return some points, with their vectors."""
        return self._query(limit, with_vectors=[self.shape.vector] if self.shape.vector else True)

    def _query(self, limit: int, **how: Any) -> list[ForeignPoint]:
        query, found = self.server.client.query_points, list[ForeignPoint]()
        for point in self.server.call(query, self.name, limit=limit, **how).points:
            vector: Any = point.vector
            if isinstance(vector, dict):
                vector = vector.get(self.shape.vector)
            found.append(ForeignPoint(str(point.id), point.score, point.payload or {}, vector))
        return found


def _list(names: Any) -> str:
    return ", ".join(sorted(names)[:_NAMED]) + (", …" if len(names) > _NAMED else "")
