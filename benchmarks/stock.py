"""The stock LlamaIndex stack as a system to measure.

``QueryFusionRetriever`` over ``BM25Retriever`` and ``QdrantVectorStore`` on a local path, over the
same passages and vectors.
"""

from __future__ import annotations

import logging
import uuid
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from given import ASKED_EXACTLY, Given
from ours import model, questions, sections
from step import latency, memory, seconds

DEPTH = 20  # of each half: deeper, the fusion adds up copies of a passage (decision 8)


def build(folder: Path) -> dict[str, float]:
    """Index the same sections with the plain LlamaIndex parts."""
    from llama_index.retrievers.bm25 import BM25Retriever

    embedding = model(Given(folder / "given"), asks_model=True)

    def index() -> None:
        nodes = _nodes(folder, embedding)
        _vectors(folder, embedding, nodes)
        lexical = BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=20)
        lexical.persist(str(folder / "bm25"))

    return {"build s": seconds(index)}


def serve(folder: Path, count: int, *, is_given: bool = False) -> dict[str, float]:
    """Open what was built, query it, then replace one file."""
    from llama_index.retrievers.bm25 import BM25Retriever

    given = Given(folder / "given")
    embedding, texts = model(given, asks_model=not is_given), questions(given, count)
    parts: list[Any] = []

    def start() -> None:
        lexical = BM25Retriever.from_persist_dir(str(folder / "bm25"))
        vector = _vectors(folder, embedding)
        fusion = stock_fusion([lexical, vector])
        fusion.similarity_top_k = 30
        fusion.retrieve(texts[0])
        parts.extend((lexical, vector, fusion))

    found = {"open s": seconds(start)}
    for name, retriever in zip(("lexical", "vector", "hybrid"), parts, strict=True):
        found |= latency(name, retriever.retrieve, texts)
    found |= memory()
    nodes = _nodes(folder, embedding)
    found["recall@10"] = _recall(parts[1], nodes, texts)

    def update_one_file() -> None:
        """What the stock parts can do: replace the file's points, index all words again."""
        mine = [node for node in nodes if node.metadata["path"] == "doc00003.md"]
        parts[1]._index.delete_nodes([node.node_id for node in mine])
        parts[1]._index.insert_nodes(mine)
        BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=20)

    return found | {"one file s": seconds(update_one_file)}


def stock_vectors(client: Any, model: Any, nodes: Sequence[Any] = ()) -> Any:
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


def stock_fusion(retrievers: list[Any]) -> Any:
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


def _nodes(folder: Path, embedding: Any) -> list[Any]:
    from llama_index.core.schema import TextNode

    return [
        TextNode(
            id_=str(uuid.uuid5(uuid.NAMESPACE_URL, str(number))),
            text=text,
            metadata={"path": path},
            embedding=embedding.encoder.encode([text])[0].tolist(),
            excluded_embed_metadata_keys=["path"],
        )
        for number, (path, text) in enumerate(sections(folder))
    ]


def _vectors(folder: Path, embedding: Any, nodes: Sequence[Any] = ()) -> Any:
    from qdrant_client import QdrantClient

    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    return stock_vectors(QdrantClient(path=str(folder / "qdrant")), embedding, nodes)


def _recall(retriever: Any, nodes: list[Any], texts: list[str]) -> float:
    """Return the share of the ten nearest that the stock index finds."""
    matrix = np.array([node.embedding for node in nodes], dtype=np.float32)
    ids, shares = [node.node_id for node in nodes], []
    for query in texts[:ASKED_EXACTLY]:
        scores = matrix @ np.asarray(retriever._embed_model.get_query_embedding(query))
        nearest = {ids[row] for row in np.argsort(-scores)[:10].tolist()}
        found = {hit.node.node_id for hit in retriever.retrieve(query)[:10]}
        shares.append(len(found & nearest) / len(nearest))
    return float(np.mean(shares))
