"""LlamaIndex's Qdrant store with a payload of a few keys: texts stay in SQL.

The stock class writes every metadata value up to four times and the text once more
(``_node_content``); here the payload is the node's metadata and nothing else, and a node that
comes back is joined with the truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.schema import BaseNode, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import VectorStoreQueryResult
from llama_index.vector_stores.qdrant import QdrantVectorStore
from pydantic import PrivateAttr
from qdrant_client import QdrantClient, models
from sqlalchemy import select

from catalog.store.database import Database
from catalog.store.filter_sql import among
from catalog.store.schema import chunks, documents
from catalog.store.vectors.payload import CHUNK, DOC, PAGE, TOKENS
from catalog.store.vectors.points import IndexPoint

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
        """The name LlamaIndex serialises it under."""
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
        """The points as nodes, joined with the truth when there is a database."""
        found = [(point, float(getattr(point, "score", 1.0))) for point in response]
        if self._database is None:
            nodes = [TextNode(id_=str(point.id), metadata=point.payload) for point, _ in found]
            return _result(nodes, [score for _, score in found])
        best: dict[str, float] = {}
        for point, score in found:
            best.setdefault(point.payload[CHUNK], score)
        live = _live_nodes(self._database, list(best))
        kept = [chunk_id for chunk_id in best if chunk_id in live]
        return _result([live[chunk_id] for chunk_id in kept], [best[name] for name in kept])


def as_node(point: IndexPoint) -> TextNode:
    """A point as the node that :meth:`MinimalQdrantVectorStore.add` takes."""
    return TextNode(id_=point.id, embedding=point.vector.tolist(), metadata=point.payload)


def _result(nodes: Sequence[BaseNode], scores: list[float]) -> VectorStoreQueryResult:
    ids = [node.node_id for node in nodes]
    return VectorStoreQueryResult(nodes=nodes, similarities=scores, ids=ids)


def _live_nodes(database: Database, chunk_ids: Sequence[str]) -> dict[str, TextNode]:
    columns = (chunks.c.chunk_id, chunks.c.text, chunks.c.title, documents.c.path)
    query = select(*columns, documents.c.source_doc_id).join(
        documents, documents.c.id == chunks.c.document_id
    )
    with database.read() as connection:
        rows = connection.execute(query.where(among(chunks.c.chunk_id, chunk_ids))).all()
    return {row.chunk_id: _live_node(row) for row in rows}


def _live_node(row: Any) -> TextNode:
    return TextNode(
        id_=row.chunk_id,
        text=row.text,
        metadata={"title": row.title, "path": row.path, DOC: row.source_doc_id},
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=row.source_doc_id)},
    )
