"""LlamaIndex's BM25, Qdrant and fusion over a dataset's passages, to compare v2 with.

    pip install llama-index-retrievers-bm25
    catalog compare --golden questions.jsonl --dataset notes --baseline stock:search

The parts are as they come: reciprocal ranks from 0, equal texts as one, no weights, no filters. Of
a passage with several windows they have the first vector, because a plain stack cuts off the rest.
"""

import sys
from functools import cache

from llama_index.core import VectorStoreIndex
from llama_index.core.llms import MockLLM
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.retrievers.bm25 import BM25Retriever
from llama_index.vector_stores.qdrant import QdrantVectorStore
from qdrant_client import QdrantClient

from catalog.core.ids import point_id
from catalog.retrieval.shared import shared_service
from catalog.search.embed_model import ResilientEmbedding
from catalog.store.chunks import load_chunks
from catalog.store.vectors.flat import draw_passages, read_windows

DEPTH = 20  # of each half: deeper, the fusion adds up copies of a passage


def search(query: str, dataset: str, top_k: int = 10) -> list[NodeWithScore]:
    """Return LlamaIndex's nodes for a query."""
    fusion = parts(dataset)
    fusion.similarity_top_k = top_k
    return fusion.retrieve(query)


@cache
def parts(dataset: str) -> QueryFusionRetriever:
    """Fill both halves with the dataset's passages and vectors, in memory."""
    library = shared_service().library
    with library.database.read() as connection:
        seqs = sorted(draw_passages(connection, dataset, sys.maxsize))
        windows = read_windows(connection, seqs)
        passages = load_chunks(connection, dataset, seqs)
    vectors = dict(zip(windows.seqs.tolist()[::-1], windows.rows[::-1], strict=True))
    nodes = [
        TextNode(
            id_=point_id(chunk.chunk_id),
            text=chunk.text,
            metadata={
                "path": chunk.path,
                "title": chunk.title,
                "header_path": " > ".join(chunk.heading_path),
            },
            excluded_embed_metadata_keys=["path"],
            embedding=vectors[seq].tolist(),
        )
        for seq, chunk in passages.items()
    ]
    store = QdrantVectorStore("stock", client=QdrantClient(":memory:"))
    store.add(nodes)
    embed_model = ResilientEmbedding(library.model)
    vector = VectorStoreIndex.from_vector_store(store, embed_model=embed_model)
    return QueryFusionRetriever(
        [
            BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=min(DEPTH, len(nodes))),
            vector.as_retriever(similarity_top_k=DEPTH),
        ],
        llm=MockLLM(),  # never asked; without one the class looks for OpenAI
        mode="reciprocal_rerank",
        num_queries=1,
        use_async=False,
    )
