"""One collection of a Qdrant server: points in, nearest points out.

The stock class writes every metadata value up to four times and the text once more
(``_node_content``); here the payload is the node's metadata and nothing else, and a node that
comes back is joined with the truth.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

from llama_index.core.schema import BaseNode, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import VectorStoreQueryResult
from llama_index.vector_stores.qdrant import QdrantVectorStore
from pydantic import PrivateAttr
from qdrant_client import QdrantClient, models
from sqlalchemy import select

from catalog.core.errors import EngineError
from catalog.core.settings import QdrantSettings
from catalog.store.database import Database
from catalog.store.filter_sql import among
from catalog.store.schema import chunks, documents
from catalog.store.vectors.point_filters import PointCondition
from catalog.store.vectors.point_search import PointHit
from catalog.store.vectors.points import CHUNK, DOC, PAGE, TOKENS, IndexPoint
from catalog.store.vectors.qdrant_server import QdrantServer, was_answered

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

NOTE = "catalog"  # the key of the collection's metadata under which ours stands
_PAGE = 10_000  # ids read at a time
_KEYWORD, _FLOAT = models.PayloadSchemaType.KEYWORD, models.PayloadSchemaType.FLOAT
_INDEXES: list[dict[str, Any]] = [
    {"field_name": field, "field_schema": schema}
    for field, schema in ((TOKENS, _KEYWORD), (DOC, _KEYWORD), (PAGE, _FLOAT))
]


class MinimalQdrantVectorStore(QdrantVectorStore):
    """A drop-in ``QdrantVectorStore`` over a collection that catalog keeps.

    With ``database``, a query answers the live chunks only, as nodes with their text, title and
    path, named by chunk id; a chunk found by several of its windows is answered once. Without
    it, every point is answered, with its payload as metadata and no text. Filters other than
    ``doc_ids`` go in through ``qdrant_filters``.
    """

    _database: Database | None = PrivateAttr(default=None)

    def __init__(
        self,
        collection_name: str,
        client: QdrantClient,
        *,
        database: Database | None = None,
        batch_size: int = 256,
    ) -> None:
        super().__init__(
            collection_name=collection_name,
            client=client,
            batch_size=batch_size,
            max_retries=0,
            index_doc_id=False,
            payload_indexes=_INDEXES,
        )
        self._database = database

    @classmethod
    def class_name(cls) -> str:
        """Return the name LlamaIndex serialises it under."""
        return "MinimalQdrantVectorStore"

    def _build_points(
        self,
        nodes: Sequence[BaseNode],
        sparse_vector_name: str,  # noqa: ARG002  (the overridden method's)
    ) -> tuple[list[Any], list[str]]:
        points = [
            models.PointStruct(
                id=node.node_id,
                vector={self.dense_vector_name: node.get_embedding()},
                payload=dict(node.metadata),
            )
            for node in nodes
        ]
        return points, [node.node_id for node in nodes]

    def parse_to_query_result(self, response: list[Any]) -> VectorStoreQueryResult:
        """Return the points as nodes, joined with the truth when there is a database."""
        scores = [float(getattr(point, "score", 1.0)) for point in response]
        nodes: list[TextNode]
        if self._database is None:
            nodes = [TextNode(id_=str(point.id), metadata=point.payload) for point in response]
        else:
            best: dict[str, float] = {}
            for point, score in zip(response, scores, strict=True):
                best.setdefault(point.payload[CHUNK], score)
            live = _live_nodes(self._database, list(best))
            nodes = [live[chunk_id] for chunk_id in best if chunk_id in live]
            scores = [best[node.node_id] for node in nodes]
        ids = [node.node_id for node in nodes]
        return VectorStoreQueryResult(nodes=nodes, similarities=scores, ids=ids)


def _live_nodes(database: Database, chunk_ids: Sequence[str]) -> dict[str, TextNode]:
    columns = (chunks.c.chunk_id, chunks.c.text, chunks.c.title, documents.c.path)
    query = select(*columns, documents.c.source_doc_id).join(
        documents, documents.c.id == chunks.c.document_id
    )
    with database.read() as connection:
        rows = connection.execute(query.where(among(chunks.c.chunk_id, chunk_ids))).all()
    return {
        row.chunk_id: TextNode(
            id_=row.chunk_id,
            text=row.text,
            metadata={"title": row.title, "path": row.path, DOC: row.source_doc_id},
            relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=row.source_doc_id)},
        )
        for row in rows
    }


def read_note(server: QdrantServer, collection: str) -> dict[str, Any] | None:
    """Return what we noted on a collection; ``None`` when it does not exist.

    Raises :class:`EngineError` for a collection that carries no note of ours.
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
    """Replace what we noted on a collection."""
    server.call(server.client.update_collection, collection, metadata={NOTE: note})


def read_pages(
    server: QdrantServer, collection: str, *, with_payload: bool
) -> Iterator[list[models.Record]]:
    """Yield all points without their vectors, some at a time.

    Raises :class:`EngineError` for a server that never comes to an end of them.
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
    """Add points, or replace those of the same id; several batches at once.

    When one fails the others in work are ended, and the error of the first is raised: what is
    there already may be added again.
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
        """Make a new empty collection, in place of one of that name, with its payload indexes."""
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
        """Make those payload indexes that are not there: filters are slow without, or refused."""
        client = self._server.client
        there = self._server.call(client.get_collection, self.collection).payload_schema
        for one in _INDEXES:
            if one["field_name"] not in there:
                self._server.call(client.create_payload_index, self.collection, wait=True, **one)

    def apply_options(self) -> None:
        """Change what can be changed of a collection that is there: all but its shards."""
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
        """Remove points; ids that are not there are fine, and so is none at all."""
        if len(point_ids) > 0:
            wanted = models.PointIdsList(points=list(point_ids))
            self._server.call(self._server.client.delete, self.collection, wanted, wait=True)

    @property
    def count(self) -> int:
        """Return the number of points."""
        client = self._server.client
        return self._server.call(client.count, self.collection, exact=True).count

    def retrieve(self, point_ids: Sequence[str]) -> dict[str, tuple[Any, dict[str, Any]]]:
        """Return vector and payload of those of the points that are there, by id."""
        read = self._server.client.retrieve
        records = self._server.call(
            read, self.collection, list(point_ids), with_payload=True, with_vectors=True
        )
        return {str(record.id): (record.vector, record.payload or {}) for record in records}

    def pages(self) -> Iterator[list[str]]:
        """Yield the ids of all points, some at a time."""
        for records in read_pages(self._server, self.collection, with_payload=False):
            yield [str(record.id) for record in records]

    def flush(self) -> None:
        """Do nothing: every write waits for the server to keep it."""

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
