"""A collection that catalog keeps on a Qdrant server, as a LlamaIndex vector store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.schema import (
    BaseNode,
    MetadataMode,
    NodeRelationship,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.vector_stores.types import VectorStoreQueryResult
from llama_index.vector_stores.qdrant import QdrantVectorStore
from pydantic import PrivateAttr
from qdrant_client import QdrantClient, models

from catalog.search_v2.nodes import PassageNode
from catalog.store import Database
from catalog.store.chunks import find_chunks
from catalog.store.vectors.points import CHUNK, DOC
from catalog.store.vectors.qdrant import PAYLOAD_INDEXES


class MinimalQdrantVectorStore(QdrantVectorStore):
    """A drop-in ``QdrantVectorStore`` over a collection that catalog keeps.

    The stock class writes every metadata value up to four times and the text twice
    (``_node_content``). Here the payload is the node's metadata, the text under ``text_key``, and
    the document's id under ``doc_id``.

    With ``database`` and ``dataset``, a query returns live passages only, as :class:`PassageNode`;
    a passage found by several of its windows is returned once. Without them, every point is
    returned, with its payload as metadata; points of catalog have no text. Filters other than
    ``doc_ids`` are passed as ``qdrant_filters``.

    Examples:
        >>> from llama_index.core.vector_stores import VectorStoreQuery
        >>> from qdrant_client import QdrantClient
        >>> from catalog.library.library import Library
        >>> from catalog.search_v2 import MinimalQdrantVectorStore
        >>> client = QdrantClient("http://localhost:6333", check_compatibility=False)
        >>> with Library.open() as library:
        ...     store = MinimalQdrantVectorStore(
        ...         "catalog_notes", client, database=library.database, dataset="notes"
        ...     )
        ...     vector = library.model.embed_query("how hot is the oven").tolist()
        ...     found = store.query(VectorStoreQuery(vector, similarity_top_k=1))
        >>> found.nodes[0].metadata["path"]
        'recipes/bread.txt'
    """

    _database: Database | None = PrivateAttr(default=None)
    _dataset: str = PrivateAttr(default="")

    def __init__(
        self,
        collection_name: str,
        client: QdrantClient,
        *,
        database: Database | None = None,
        dataset: str = "",
        batch_size: int = 256,
    ) -> None:
        super().__init__(
            collection_name=collection_name,
            client=client,
            batch_size=batch_size,
            max_retries=0,
            index_doc_id=False,
            payload_indexes=PAYLOAD_INDEXES,
        )
        self._database, self._dataset = database, dataset

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
                payload=node.metadata
                | {self.text_key: node.get_content(MetadataMode.NONE), DOC: node.ref_doc_id},
            )
            for node in nodes
        ]
        return points, [node.node_id for node in nodes]

    def parse_to_query_result(self, response: list[Any]) -> VectorStoreQueryResult:
        """Return the points as nodes, joined with the store if there is a database."""
        scores = [float(getattr(point, "score", 1.0)) for point in response]
        nodes: list[TextNode]
        if self._database is None:
            nodes = [self._node(point) for point in response]
        else:
            best: dict[str, float] = {}
            for point, score in zip(response, scores, strict=True):
                best.setdefault(point.payload[CHUNK], score)
            with self._database.read() as connection:
                found = find_chunks(connection, self._dataset, best)
            live = {chunk.chunk_id: PassageNode.of(chunk) for chunk in found}
            nodes = [live[chunk_id] for chunk_id in best if chunk_id in live]
            scores = [best[node.node_id] for node in nodes]
        ids = [node.node_id for node in nodes]
        return VectorStoreQueryResult(nodes=nodes, similarities=scores, ids=ids)

    def _node(self, point: Any) -> TextNode:
        payload = dict(point.payload)
        node = TextNode(id_=str(point.id), text=payload.pop(self.text_key, ""))
        if self.text_key in point.payload and (document := payload.pop(DOC)) is not None:
            node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=document)
        node.metadata = payload
        return node
