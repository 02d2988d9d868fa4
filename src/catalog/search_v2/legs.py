"""The two legs of a hybrid search, as LlamaIndex retrievers anyone can take out and use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle

from catalog.core.errors import EngineLockedError
from catalog.search_v2.passages import PassageNode
from catalog.search_v2.workspace import Workspace
from catalog.store import Database
from catalog.store.hits import Hit
from catalog.store.lexical.base import LexicalEngine
from catalog.store.passages import load_chunks
from catalog.store.restriction import Restriction


@dataclass(frozen=True, slots=True)
class LegHits:
    """One leg's raw answer: hits, the engine that gave them, and what it had to say."""

    engine: str
    hits: Sequence[Hit]
    note: str = ""
    fallback: str = ""


class LexicalRetriever(BaseRetriever):
    """BM25 or full-text search over one dataset, within a restriction."""

    def __init__(
        self, database: Database, engine: LexicalEngine, restriction: Restriction, top_k: int
    ) -> None:
        self._database, self._engine = database, engine
        self._restriction, self.top_k = restriction, top_k
        super().__init__()

    def leg(self, query: str) -> LegHits:
        """The engine's hits, best first."""
        hits = self._engine.search(query, self.top_k, self._restriction)
        return LegHits(self._engine.name, hits)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return _joined(self._database, self._restriction.dataset, self.leg(query_bundle.query_str))


class VectorRetriever(BaseRetriever):
    """Nearest neighbours over one dataset, within a restriction.

    When another process holds the index, ``exact`` searches the stored vectors instead: the
    same answer, slower, and the note says so. A ``QueryBundle`` that brings an embedding is
    searched with that.
    """

    def __init__(self, workspace: Workspace, restriction: Restriction, top_k: int) -> None:
        self._workspace = workspace
        self._restriction, self.top_k = restriction, top_k
        super().__init__()

    def leg(self, query: str, embedding: Sequence[float] | None = None) -> LegHits:
        """The engine's hits, best first."""
        import numpy as np

        if embedding is not None:
            vector, cached = np.asarray(embedding, dtype=np.float32), True
        else:
            vector, cached = self._workspace.query_vectors.embed(query)
        note = "query embedding cached" if cached else ""
        dataset = self._restriction.dataset
        engine = self._workspace.vector(dataset)
        try:
            hits = engine.search(vector, self.top_k, self._restriction)
        except EngineLockedError:
            engine = self._workspace.exact(dataset)
            hits = engine.search(vector, self.top_k, self._restriction)
            why = "the index is held by another process, searched exactly instead"
            return LegHits(engine.name, hits, "; ".join(filter(None, (why, note))), why)
        return LegHits(engine.name, hits, note)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        found = self.leg(query_bundle.query_str, query_bundle.embedding)
        return _joined(self._workspace.database, self._restriction.dataset, found)


def _joined(database: Database, dataset: str, found: LegHits) -> list[NodeWithScore]:
    with database.read() as connection:
        chunks = load_chunks(connection, dataset, [hit.seq for hit in found.hits])
    return [
        NodeWithScore(node=PassageNode.of(chunks[hit.seq]), score=hit.score)
        for hit in found.hits
        if hit.seq in chunks
    ]
