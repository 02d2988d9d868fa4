"""``stock``: LlamaIndex's own BM25, Qdrant and fusion over a dataset's passages."""

from __future__ import annotations

import logging
import sys
import warnings
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from catalog.core.errors import InputError, MissingExtraError
from catalog.core.ids import point_id
from catalog.core.user_search import Ranking, to_ranking
from catalog.evaluation.golden import GoldenQuery
from catalog.ingest.sync_report import Progress
from catalog.store.chunks import load_chunks
from catalog.store.engine_types import read_stamp
from catalog.store.vectors.flat import draw_passages, read_windows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.retrievers import QueryFusionRetriever, VectorIndexRetriever
    from llama_index.core.schema import BaseNode
    from qdrant_client import QdrantClient

    from catalog.core.documents import Chunk
    from catalog.embedding import EmbeddingModel
    from catalog.library.library import Library
    from catalog.store.engine_types import Stamp

DEPTH = 20  # of each half: deeper, the fusion adds up copies of a passage (decision 8)
_BATCH = 1000
_PACKAGES = (
    *("llama-index-core", "llama-index-retrievers-bm25", "llama-index-vector-stores-qdrant"),
    *("bm25s", "qdrant-client"),
)


def stock_vectors(
    client: QdrantClient, model: EmbeddingModel, nodes: Iterable[BaseNode] = ()
) -> VectorIndexRetriever:
    """Return LlamaIndex's retriever over its Qdrant store, after adding nodes with vectors."""
    from llama_index.core import VectorStoreIndex
    from llama_index.core.retrievers import VectorIndexRetriever
    from llama_index.vector_stores.qdrant import QdrantVectorStore

    from catalog.search.embed_model import ResilientEmbedding

    store = QdrantVectorStore("stock", client=client, index_doc_id=False)
    if added := [node for node in nodes if node.embedding is not None]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a local one is not for many passages
            store.add(added)
    index = VectorStoreIndex.from_vector_store(store, embed_model=ResilientEmbedding(model))
    return VectorIndexRetriever(index, similarity_top_k=DEPTH)


def stock_fusion(retrievers: list[BaseRetriever]) -> QueryFusionRetriever:
    """Return LlamaIndex's fusion of retrievers by reciprocal ranks."""
    from llama_index.core.llms.mock import MockLLM
    from llama_index.core.retrievers import QueryFusionRetriever

    return QueryFusionRetriever(
        retrievers,
        llm=MockLLM(),  # never asked; without one the class looks for OpenAI
        mode="reciprocal_rerank",  # type: ignore[arg-type]  # as their documentation has it
        num_queries=1,
        use_async=False,
    )


class StockBackend:
    """``BM25Retriever`` and ``QdrantVectorStore`` under ``QueryFusionRetriever``, all in memory.

    The parts are as they come: reciprocal ranks from 0, equal texts as one, no weights. They have
    the dataset's passages with title and headings as metadata, and the vectors of the store; of a
    passage with several windows the first, because a plain stack cuts off the rest. There are no
    filters, so filtered queries are searched without them.
    """

    name = "stock"

    def __init__(self, library: Library) -> None:
        try:
            from llama_index.retrievers.bm25 import BM25Retriever
        except ImportError as error:
            raise MissingExtraError("the stock baseline", "stock") from error
        logging.getLogger("bm25s").setLevel(logging.WARNING)  # it sets DEBUG when it is imported
        self._library, self._make_lexical = library, BM25Retriever.from_defaults
        self._made_of: tuple[str, Stamp | None] | None = None
        self._client: Any = None

    @property
    def identity(self) -> dict[str, Any]:
        """Return the versions of its packages and the embedding model."""
        versions = {package: version(package) for package in _PACKAGES}
        fingerprint = self._library.wanted_model.fingerprint
        return {"pipeline": "stock", "depth": DEPTH, "embedding": fingerprint, **versions}

    def prepare(self, dataset: str, progress: Progress) -> None:
        """Put the dataset's passages into new parts unless they have them already."""
        with self._library.database.read() as connection:
            stamp = read_stamp(connection, dataset)
            if self._made_of == (dataset, stamp):
                return
            self.close()
            seqs = sorted(draw_passages(connection, dataset, sys.maxsize))
            progress.start(len(seqs))
            nodes: list[BaseNode] = []
            for start in range(0, len(seqs), _BATCH):
                batch = seqs[start : start + _BATCH]
                windows = read_windows(connection, batch)
                vectors = dict(zip(windows.seqs.tolist()[::-1], windows.rows[::-1], strict=True))
                for seq, chunk in load_chunks(connection, dataset, batch, damaged=[]).items():
                    nodes.append(_node(chunk, vectors.get(seq)))
                progress.advance(len(batch), "filling stock")
        if not nodes:
            raise InputError(f"{dataset!r} has no passage that stock could search")
        self._index(nodes)
        self._made_of = (dataset, stamp)

    def _index(self, nodes: list[BaseNode]) -> None:
        from qdrant_client import QdrantClient

        self._client = QdrantClient(":memory:")
        vectors = stock_vectors(self._client, self._library.model, nodes)
        lexical = self._make_lexical(nodes=nodes, similarity_top_k=min(DEPTH, len(nodes)))
        self._fusion = stock_fusion([lexical, vectors])

    def search(self, query: GoldenQuery, *, dataset: str, top_k: int) -> Ranking:
        """Search with both halves at their depth, so at most twice that is found."""
        self._fusion.similarity_top_k = top_k
        return to_ranking(self._fusion.retrieve(query.query), dataset, top_k)

    def close(self) -> None:
        """Forget the parts."""
        if self._client is not None:
            self._client.close()
        self._client = self._made_of = None


def _node(chunk: Chunk, vector: Any) -> BaseNode:
    from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode

    return TextNode(
        id_=point_id(chunk.chunk_id),
        text=chunk.text,
        metadata={
            "path": chunk.path,
            "title": chunk.title,
            "header_path": " > ".join(chunk.heading_path),
        },
        excluded_embed_metadata_keys=["path"],
        embedding=None if vector is None else vector.tolist(),
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=chunk.source_doc_id)},
    )
