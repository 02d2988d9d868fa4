"""v1's vector leg: a stock ``VectorStoreIndex`` over ``SimpleVectorStore``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from llama_index.core import StorageContext, VectorStoreIndex, load_index_from_storage
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode, NodeWithScore
from llama_index.core.vector_stores import SimpleVectorStore


class VectorStoreManager:
    """Build, persist and load the index of one folder."""

    def __init__(self, folder: Path, embed_model: BaseEmbedding) -> None:
        self._folder = folder
        self._embed_model = embed_model

    def build(self, nodes: Sequence[BaseNode]) -> VectorStoreIndex:
        """Index the nodes, embed those without a vector, and persist the index."""
        storage = StorageContext.from_defaults(vector_store=SimpleVectorStore())
        index = VectorStoreIndex(nodes, storage_context=storage, embed_model=self._embed_model)
        storage.persist(str(self._folder))
        return index

    def load(self) -> VectorStoreIndex:
        """Load the persisted index; raises ``OSError`` or ``ValueError`` for a broken one."""
        storage = StorageContext.from_defaults(persist_dir=str(self._folder))
        index = load_index_from_storage(storage, embed_model=self._embed_model)
        if not isinstance(index, VectorStoreIndex):
            raise ValueError(f"not a vector index: {type(index).__name__}")  # noqa: TRY004 - a damaged file
        return index


class VectorSearch:
    """Nearest chunks of one index."""

    def __init__(self, index: VectorStoreIndex, similarity_top_k: int) -> None:
        self._index = index
        self._similarity_top_k = similarity_top_k

    def as_retriever(self) -> BaseRetriever:
        """Return the index's own retriever."""
        return self._index.as_retriever(similarity_top_k=self._similarity_top_k)

    def search(self, query: str) -> list[NodeWithScore]:
        """Return the nearest chunks by cosine, best first."""
        return self.as_retriever().retrieve(query)
