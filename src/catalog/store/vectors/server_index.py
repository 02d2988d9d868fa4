"""One collection of a Qdrant server: points in, nearest points out.

The stock class writes every metadata value up to four times and the text once more
(``_node_content``); here the payload is the node's metadata and nothing else, and a node that
comes back is joined with the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import httpx
from llama_index.core.schema import BaseNode, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryResult
from llama_index.vector_stores.qdrant import QdrantVectorStore
from pydantic import PrivateAttr
from qdrant_client import QdrantClient, models
from qdrant_client.common.client_exceptions import ResourceExhaustedResponse
from qdrant_client.http.exceptions import ApiException, UnexpectedResponse
from sqlalchemy import select
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from catalog.core.errors import EngineError
from catalog.store.database import Database
from catalog.store.filter_sql import among
from catalog.store.schema import chunks, documents
from catalog.store.vectors.point_filters import PointCondition
from catalog.store.vectors.point_search import PointHit
from catalog.store.vectors.points import CHUNK, DOC, PAGE, TOKENS, IndexPoint

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


T = TypeVar("T")

ATTEMPTS = 4
_OWNER = "catalog"  # the key of the collection's metadata under which ours stands
_FAILURES = (ApiException, ResourceExhaustedResponse, httpx.HTTPError, OSError)
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


class QdrantServer:
    """A client whose calls are tried again while the server is away.

    Connection errors, 429 and 5xx are tried :data:`ATTEMPTS` times with growing pauses; what
    fails then raises :class:`EngineError` naming ``address``.
    """

    def __init__(self, client: QdrantClient, address: str, sleep: Callable[[float], None]) -> None:
        self.client = client
        self.address = address
        self._sleep = sleep

    def call(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Return what the function returns, sooner or later."""
        retrying = Retrying(
            stop=stop_after_attempt(ATTEMPTS),
            wait=wait_random_exponential(multiplier=0.2, max=5),
            retry=retry_if_exception(_is_transient),
            sleep=self._sleep,
            reraise=True,
        )
        try:
            return retrying(function, *args, **kwargs)
        except _FAILURES as error:
            raise EngineError(f"Qdrant at {self.address} failed: {_reason(error)}") from error

    def owner(self, collection: str) -> dict[str, Any] | None:
        """Return what we noted on the collection; ``None`` when it does not exist.

        Raises :class:`EngineError` for a collection that carries no note of ours.
        """
        if not self.call(self.client.collection_exists, collection):
            return None
        config = self.call(self.client.get_collection, collection).config
        note = (config.metadata or {}).get(_OWNER)
        if not isinstance(note, dict):
            raise EngineError(
                f"the collection {collection!r} at {self.address} was not made by catalog: "
                "choose another collection prefix"
            )
        return note

    def set_note(self, collection: str, note: dict[str, Any]) -> None:
        """Replace what we noted on the collection."""
        self.call(self.client.update_collection, collection, metadata={_OWNER: note})


class ServerIndex:
    """One collection, reached through LlamaIndex's store."""

    def __init__(self, server: QdrantServer, collection: str) -> None:
        self._server = server
        self._store = server.call(MinimalQdrantVectorStore, collection, server.client)

    @classmethod
    def create(
        cls, server: QdrantServer, collection: str, dim: int, note: dict[str, Any]
    ) -> ServerIndex:
        """Make a new empty collection, in place of one of that name, with its payload indexes."""
        server.call(server.client.delete_collection, collection)
        server.call(
            server.client.create_collection,
            collection,
            vectors_config=models.VectorParams(size=dim, distance=models.Distance.COSINE),
            metadata={_OWNER: note},
        )
        return cls(server, collection)

    def upsert(self, points: Sequence[IndexPoint]) -> None:
        """Add points, or replace those of the same id."""
        nodes = [
            TextNode(id_=point.id, embedding=point.vector.tolist(), metadata=point.payload)
            for point in points
        ]
        self._server.call(self._store.add, nodes)

    def delete(self, point_ids: Sequence[str]) -> None:
        """Remove points; ids that are not there are fine, and so is none at all."""
        if len(point_ids) > 0:  # the store takes an empty list for everything
            self._server.call(self._store.delete_nodes, list(point_ids))

    @property
    def count(self) -> int:
        """Return the number of points."""
        client = self._server.client
        return self._server.call(client.count, self._store.collection_name, exact=True).count

    def retrieve(self, point_ids: Sequence[str]) -> dict[str, tuple[Any, dict[str, Any]]]:
        """Return vector and payload of those of the points that are there, by id."""
        read = self._server.client.retrieve
        records = self._server.call(
            read, self._store.collection_name, list(point_ids), with_payload=True, with_vectors=True
        )
        return {str(record.id): (record.vector, record.payload or {}) for record in records}

    def flush(self) -> None:
        """Do nothing: every write waits for the server to keep it."""

    def nearest(
        self, vector: npt.NDArray[np.float32], limit: int, condition: PointCondition | None
    ) -> list[PointHit]:
        """Return the nearest points that meet the condition, best first, at most ``limit``."""
        query = VectorStoreQuery(query_embedding=vector.tolist(), similarity_top_k=limit)
        filters = None if condition is None else models.Filter.model_validate({"must": [condition]})
        result = self._server.call(self._store.query, query, qdrant_filters=filters)
        nodes, scores = result.nodes or [], result.similarities or []
        return [
            PointHit(node.metadata[CHUNK], score) for node, score in zip(nodes, scores, strict=True)
        ]


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, UnexpectedResponse):
        return error.status_code is None or error.status_code == 429 or error.status_code >= 500
    return isinstance(error, _FAILURES)


def _reason(error: BaseException) -> str:
    if isinstance(error, UnexpectedResponse):
        return f"{error.status_code} {error.reason_phrase}"
    return str(error) or type(error).__name__
