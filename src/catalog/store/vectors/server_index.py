"""One collection of a Qdrant server: add points, find the nearest ones.

A point's payload has only the fields that filters and joins need.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

from qdrant_client import models

from catalog.core.errors import EngineError
from catalog.core.settings import QdrantSettings
from catalog.store.vectors.point_search import PointCondition, PointHit
from catalog.store.vectors.points import CHUNK, DOC, PAGE, TOKENS, IndexPoint
from catalog.store.vectors.qdrant_server import QdrantServer, was_answered

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

NOTE = "catalog"  # the key of our note in the collection's metadata
_PAGE = 10_000  # ids read at a time
_KEYWORD, _FLOAT = models.PayloadSchemaType.KEYWORD, models.PayloadSchemaType.FLOAT
PAYLOAD_INDEXES: list[dict[str, Any]] = [
    {"field_name": field, "field_schema": schema}
    for field, schema in ((TOKENS, _KEYWORD), (DOC, _KEYWORD), (PAGE, _FLOAT))
]


def read_note(server: QdrantServer, collection: str) -> dict[str, Any] | None:
    """Return our note on a collection, ``None`` if the collection does not exist.

    Raises :class:`EngineError` for a collection without a note of ours.
    """
    if not server.call(server.client.collection_exists, collection):
        return None
    config = server.call(server.client.get_collection, collection).config
    note = (config.metadata or {}).get(NOTE)
    if not isinstance(note, dict):
        raise EngineError(
            f"the collection {collection!r} at {server.address} was not made by catalog: "
            "choose another collection prefix"
        )
    return note


def write_note(server: QdrantServer, collection: str, note: dict[str, Any]) -> None:
    """Replace our note on a collection."""
    server.call(server.client.update_collection, collection, metadata={NOTE: note})


def read_pages(
    server: QdrantServer, collection: str, *, with_payload: bool
) -> Iterator[list[models.Record]]:
    """Yield all points in batches, without their vectors.

    Raises :class:`EngineError` if the server lists more points than it counts.
    """
    left = server.call(server.client.count, collection, exact=True).count + _PAGE
    following: Any = None
    while True:
        records, following = server.call(
            server.client.scroll,
            collection,
            limit=_PAGE,
            offset=following,
            with_payload=with_payload,
        )
        yield records
        if following is None:
            return
        left -= len(records)
        if left < 0 or not records:
            raise EngineError(
                f"Qdrant at {server.address} lists more points of {collection!r} than it counts"
            )


def upsert_points(
    server: QdrantServer,
    collection: str,
    points: Iterable[models.PointStruct],
    options: QdrantSettings,
) -> None:
    """Add points, or replace those of the same id, with several batches at a time.

    If a batch fails, the remaining ones are cancelled and its error is raised. Points that were
    added already may be added again.
    """
    every = list(points)
    batches = [
        every[start : start + options.batch_size]
        for start in range(0, len(every), options.batch_size)
    ]
    upsert = partial(server.call, server.client.upsert, collection, wait=True)
    if len(batches) == 1:
        upsert(batches[0])
        return
    # The client's uploader waits without end for a server that limits requests.
    workers = ThreadPoolExecutor(options.parallel, "qdrant-upsert")
    try:
        calls = [workers.submit(copy_context().run, upsert, batch) for batch in batches]
        for call in calls:
            call.result()
    finally:
        workers.shutdown(cancel_futures=True)


class ServerIndex:
    """One collection on a server."""

    def __init__(self, server: QdrantServer, collection: str, options: QdrantSettings) -> None:
        self.collection = collection
        self._server, self._options = server, options

    @classmethod
    def create(
        cls,
        server: QdrantServer,
        collection: str,
        dim: int,
        note: dict[str, Any],
        options: QdrantSettings,
    ) -> ServerIndex:
        """Create an empty collection with payload indexes; replace an existing one of that name."""
        client = server.client
        server.call(client.delete_collection, collection)
        try:
            server.call(
                client.create_collection,
                collection,
                vectors_config=models.VectorParams(
                    size=dim,
                    distance=models.Distance.COSINE,
                    on_disk=True if options.on_disk else None,
                ),
                shard_number=options.shard_number,
                replication_factor=options.replication_factor,
                write_consistency_factor=options.write_consistency_factor,
                quantization_config=_quantization(options),
                metadata={NOTE: note},
            )
        except EngineError as error:
            if not was_answered(error, 409):  # made, though the answer was lost
                raise
        index = cls(server, collection, options)
        index.ensure_payload_indexes()
        return index

    def ensure_payload_indexes(self) -> None:
        """Create missing payload indexes: without them, filters are slow or refused."""
        client = self._server.client
        there = self._server.call(client.get_collection, self.collection).payload_schema
        for one in PAYLOAD_INDEXES:
            if one["field_name"] not in there:
                self._server.call(client.create_payload_index, self.collection, wait=True, **one)

    def apply_options(self) -> None:
        """Apply all options that can be changed in an existing collection: all but the shards."""
        options = self._options
        self._server.call(
            self._server.client.update_collection,
            self.collection,
            vectors_config={"": models.VectorParamsDiff(on_disk=options.on_disk)},
            quantization_config=_quantization(options) or models.Disabled.DISABLED,
            collection_params=models.CollectionParamsDiff(
                replication_factor=options.replication_factor,
                write_consistency_factor=options.write_consistency_factor,
            ),
        )

    def upsert(self, points: Sequence[IndexPoint]) -> None:
        """Add points, or replace those of the same id; see :func:`upsert_points`."""
        upsert_points(
            self._server,
            self.collection,
            (
                models.PointStruct(id=one.id, vector=one.vector.tolist(), payload=one.payload)
                for one in points
            ),
            self._options,
        )

    def delete(self, point_ids: Sequence[str]) -> None:
        """Remove points; ids that do not exist are ignored, and the list may be empty."""
        if len(point_ids) > 0:
            wanted = models.PointIdsList(points=list(point_ids))
            self._server.call(self._server.client.delete, self.collection, wanted, wait=True)

    @property
    def count(self) -> int:
        """Return the number of points."""
        client = self._server.client
        return self._server.call(client.count, self.collection, exact=True).count

    def retrieve(self, point_ids: Sequence[str]) -> dict[str, tuple[Any, dict[str, Any]]]:
        """Return vector and payload of the points that exist, by id."""
        read = self._server.client.retrieve
        records = self._server.call(
            read, self.collection, list(point_ids), with_payload=True, with_vectors=True
        )
        return {str(record.id): (record.vector, record.payload or {}) for record in records}

    def pages(self) -> Iterator[list[str]]:
        """Yield the ids of all points in batches."""
        for records in read_pages(self._server, self.collection, with_payload=False):
            yield [str(record.id) for record in records]

    def flush(self) -> None:
        """Do nothing: every write already waits until the server has stored it."""

    def nearest(
        self, vector: npt.NDArray[np.float32], limit: int, condition: PointCondition | None
    ) -> list[PointHit]:
        """Return the nearest points that meet the condition, best first, at most ``limit``."""
        params = None
        if self._options.quantization != "none":
            again = models.QuantizationSearchParams(
                rescore=True, oversampling=self._options.oversampling
            )
            params = models.SearchParams(quantization=again)
        response = self._server.ask(
            self._server.client.query_points,
            self.collection,
            query=vector.tolist(),
            query_filter=condition and models.Filter.model_validate({"must": [condition]}),
            search_params=params,
            limit=limit,
            with_payload=[CHUNK],
        )
        return [PointHit((point.payload or {})[CHUNK], point.score) for point in response.points]


def _quantization(options: QdrantSettings) -> models.ScalarQuantization | None:
    if options.quantization == "none":
        return None
    bytes_in_memory = models.ScalarQuantizationConfig(
        type=models.ScalarType.INT8, quantile=0.99, always_ram=True
    )
    return models.ScalarQuantization(scalar=bytes_in_memory)
