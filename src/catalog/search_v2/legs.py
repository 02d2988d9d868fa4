"""The two legs of a hybrid search, as LlamaIndex retrievers anyone can take out and use."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle

from catalog.core.errors import CatalogError, EngineBlockedError, EngineError, EngineLockedError
from catalog.core.query import SubQuery
from catalog.library.library import Library
from catalog.search_v2.passages import PassageNode
from catalog.store import Database
from catalog.store.chunks import load_chunks
from catalog.store.embedding_cache import Side
from catalog.store.engine_types import Hit, Restriction
from catalog.store.lexical.base import LexicalEngine

UNSEARCHABLE = "the query has no word that is not too common to look for"


@dataclass(frozen=True, slots=True)
class EngineHits:
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
        self.restriction, self.top_k = restriction, top_k
        super().__init__()

    def leg(self, query: str) -> EngineHits:
        """The engine's hits, best first."""
        hits = self._engine.search(query, self.top_k, self.restriction)
        is_blank = len(hits) == 0 and not self._engine.is_searchable(query)
        return EngineHits(self._engine.name, hits, UNSEARCHABLE if is_blank else "")

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return _joined(self._database, self.restriction.dataset, self.leg(query_bundle.query_str))


class VectorRetriever(BaseRetriever):
    """Nearest neighbours over one dataset, within a restriction.

    When another process holds the index, or it cannot be used for want of room or rights,
    ``exact`` searches the stored vectors instead: the same answer, slower, and the note says so.
    A ``QueryBundle`` that brings an embedding is searched with that. ``side="document"`` embeds
    the text as a passage: a hypothetical answer.
    """

    def __init__(
        self,
        library: Library,
        restriction: Restriction,
        top_k: int,
        *,
        side: Side = "query",
    ) -> None:
        self._library = library
        self.restriction, self.top_k, self._side = restriction, top_k, side
        super().__init__()

    def leg(self, query: str, embedding: Sequence[float] | None = None) -> EngineHits:
        """The engine's hits, best first."""
        import numpy as np

        if embedding is not None:
            vector, cached = np.asarray(embedding, dtype=np.float32), True
        else:
            vector, cached = self._library.query_vectors.embed(query, self._side)
        note = "query embedding cached" if cached else ""
        dataset = self.restriction.dataset
        engine = self._library.vector(dataset)
        try:
            hits = engine.search(vector, self.top_k, self.restriction)
        except EngineBlockedError as error:
            engine = self._library.exact(dataset)
            hits = engine.search(vector, self.top_k, self.restriction)
            is_held = isinstance(error, EngineLockedError)
            reason = "the index is held by another process" if is_held else str(error)
            why = f"{reason}, searched exactly instead"
            return EngineHits(engine.name, hits, "; ".join(filter(None, (why, note))), why)
        return EngineHits(engine.name, hits, note)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        found = self.leg(query_bundle.query_str, query_bundle.embedding)
        return _joined(self._library.database, self.restriction.dataset, found)


@dataclass(frozen=True, slots=True)
class LegResult:
    """What a leg had to say to one sub-query, or why it failed, and the milliseconds."""

    asked: LegQuery
    ms: float
    found: EngineHits | CatalogError

    @property
    def hits(self) -> Sequence[Hit]:
        """Its hits; none of a leg that failed."""
        return self.found.hits if isinstance(self.found, EngineHits) else ()


@dataclass(frozen=True, slots=True)
class LegQuery:
    """One sub-query and the leg that is asked it.

    ``is_own`` sub-queries are the retrieved query itself, with the embedding it may bring.
    """

    part: SubQuery
    leg: LexicalRetriever | VectorRetriever
    is_own: bool = False

    def text(self, query: QueryBundle) -> str:
        """What the leg is asked."""
        return query.query_str if self.is_own else self.part.text

    def answer(self, query: QueryBundle) -> LegResult:
        """Ask; an exception of any kind is the answer then, not raised."""
        started = time.perf_counter()
        found: EngineHits | CatalogError
        try:
            if isinstance(self.leg, LexicalRetriever):
                found = self.leg.leg(self.text(query))
            else:
                found = self.leg.leg(self.text(query), query.embedding if self.is_own else None)
        except CatalogError as error:
            found = error
        except Exception as error:  # noqa: BLE001 - recorded as the leg's failure
            found = EngineError(f"{type(error).__name__}: {error}")
            found.__cause__ = error
        return LegResult(self, (time.perf_counter() - started) * 1000, found)


def _joined(database: Database, dataset: str, found: EngineHits) -> list[NodeWithScore]:
    with database.read() as connection:
        chunks = load_chunks(connection, dataset, [hit.seq for hit in found.hits])
    return [
        NodeWithScore(node=PassageNode.of(chunks[hit.seq]), score=hit.score)
        for hit in found.hits
        if hit.seq in chunks
    ]
