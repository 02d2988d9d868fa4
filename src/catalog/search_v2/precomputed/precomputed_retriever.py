"""Precomputed embeddings in LlamaIndex: as a retriever, and as a leg next to keywords."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from catalog.core.errors import SemanticQueryError
from catalog.core.params import SearchParams
from catalog.core.query import SubQuery
from catalog.retrieval.legs import LegQuery, LegRun
from catalog.retrieval.request import read_request
from catalog.retrieval.shared import shared_service
from catalog.retrieval.stages import StageLog
from catalog.search_v2.fused_retrievers import check_depths
from catalog.search_v2.precomputed.semantic_types import (
    AgentContextConfig,
    ChunkWithScore,
    EmbeddingProvider,
    EmbeddingVector,
)
from catalog.search_v2.retrievers import HybridRetrieverV2, LegRetriever, plan_retriever
from catalog.store.chunks import find_by_lines
from catalog.store.restriction import FLAT, Restriction, Spread, allowed_seqs, best_first

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from catalog.core.params import DatasetChoice
    from catalog.retrieval.parts import SearchParts
    from catalog.search_v2.precomputed.semantic_retriever import SemanticContextRetriever
    from catalog.store import Database

_STEP = 1_000  # embeddings looked up at a time


class PrecomputedRetriever(BaseRetriever):
    """Retrieve chunks of a folder of embeddings as LlamaIndex nodes.

    A query's vector is the embedding in its bundle, or else the provider's. Raises
    :class:`SemanticQueryError` without either.

    Examples:
        >>> from llama_index.core import QueryBundle
        >>> from catalog.search_v2 import PrecomputedRetriever
        >>> from catalog.search_v2.precomputed import SemanticContextRetriever
        >>> retriever = PrecomputedRetriever(SemanticContextRetriever(cache_dir=".emb_cache"))
        >>> nodes = retriever.retrieve(QueryBundle("rotate keys", embedding=[0.9, 0.1]))
        >>> [(node.metadata["source_file"], round(node.score, 2)) for node in nodes]
        [('keys.md', 0.99), ('recipes/bread.txt', 0.11)]
    """

    def __init__(
        self,
        semantic: SemanticContextRetriever,
        provider: EmbeddingProvider | None = None,
        config: AgentContextConfig | None = None,
    ) -> None:
        self._semantic, self._provider, self._config = semantic, provider, config
        super().__init__()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        embedding = query_bundle.embedding
        if embedding is None:
            if self._provider is None:
                raise SemanticQueryError(
                    "no embedding of the query: give one in the QueryBundle, or a provider"
                )
            embedding = self._provider.get_query_embedding(query_bundle.query_str)
        return [_node(chunk) for chunk in self._semantic.retrieve(embedding, config=self._config)]


def _node(chunk: ChunkWithScore) -> NodeWithScore:
    node = TextNode(
        id_=chunk.chunk_id,
        text=chunk.content or "",
        metadata=dict(chunk.metadata),
        embedding=chunk.embedding.tolist(),
    )
    return NodeWithScore(node=node, score=chunk.score)


class PrecomputedLeg(LegRetriever):
    """The passages of a dataset that contain the lines of precomputed embeddings.

    Sidecars name the lines: ``source_file`` is a document's path in the dataset, and
    ``line_number`` a line of the passage, by default the first.

    Examples:
        >>> from catalog.library.library import Library
        >>> from catalog.search_v2 import PrecomputedLeg
        >>> from catalog.search_v2.precomputed import SemanticContextRetriever
        >>> from catalog.store.restriction import Restriction
        >>> semantic = SemanticContextRetriever(cache_dir=".emb_cache")
        >>> within = Restriction("notes")
        >>> with Library.open() as library:
        ...     leg = PrecomputedLeg(library.database, within, 1, semantic, [0.9, 0.1])
        ...     [node.metadata["path"] for node in leg.retrieve("rotate keys")]
        ['keys.md']
    """

    def __init__(
        self,
        database: Database,
        restriction: Restriction,
        top_k: int,
        semantic: SemanticContextRetriever,
        query_embedding: EmbeddingVector,
    ) -> None:
        leg = _GivenVectors(restriction, top_k, None, semantic, query_embedding)
        super().__init__(database, leg)


@dataclass(frozen=True)
class _GivenVectors(LegQuery):
    """The leg by precomputed embeddings."""

    semantic: SemanticContextRetriever
    query_embedding: EmbeddingVector

    def rank(self, connection: Connection, sub_query: SubQuery, prepared: None) -> LegRun:  # noqa: ARG002
        """Return the answer in the state that the connection sees."""
        return _search(connection, self, sub_query)


def _search(connection: Connection, leg: _GivenVectors, sub_query: SubQuery) -> LegRun:
    semantic, index = leg.semantic, leg.semantic.index
    scores = np.empty(0, dtype=np.float32)
    if len(index) > 0:
        vector = index.check(leg.query_embedding)
        scores = index.similarities(vector[None])[0]
    spread = Spread(float(scores.mean()), float(scores.std())) if scores.size else FLAT
    hits: dict[int, float] = {}
    order = np.argsort(-scores, kind="stable")
    allowed = allowed_seqs(connection, leg.restriction)
    may_answer = None if allowed is None else frozenset(allowed.tolist())
    for start in range(0, len(order), _STEP):
        rows = order[start : start + _STEP].tolist()
        places = [_place(semantic, index.ids[row]) for row in rows]
        seqs = find_by_lines(connection, leg.restriction.dataset, filter(None, places))
        for row, place in zip(rows, places, strict=True):
            seq = None if place is None else seqs.get(place)
            if seq is not None and (may_answer is None or seq in may_answer):
                hits.setdefault(seq, float(scores[row]))
        if len(hits) >= leg.top_k:
            break
    best = best_first(hits.items(), leg.top_k)
    return LegRun(sub_query, leg.top_k, "precomputed", best, spread)


def _place(semantic: SemanticContextRetriever, chunk_id: str) -> tuple[str, int] | None:
    metadata = semantic.index.metadata.get(chunk_id, {})
    path, line = metadata.get("source_file"), metadata.get("line_number", 1)
    return (path, line) if isinstance(path, str) and type(line) is int else None


def precomputed_hybrid(
    semantic: SemanticContextRetriever,
    query: str,
    query_embedding: EmbeddingVector,
    dataset: DatasetChoice = None,
    *,
    parts: SearchParts | None = None,
    top_k: int | None = None,
) -> HybridRetrieverV2:
    """Return a retriever that fuses a dataset's keyword leg with precomputed embeddings.

    Ask it the same ``query``: ``precomputed_hybrid(…).retrieve(query)``. ``parts`` are a service's,
    by default the shared one's. It returns ``top_k`` fused passages, by default as many as the
    settings say.

    Examples:
        >>> from catalog.search_v2 import precomputed_hybrid
        >>> from catalog.search_v2.precomputed import SemanticContextRetriever
        >>> semantic = SemanticContextRetriever(cache_dir=".emb_cache")
        >>> retriever = precomputed_hybrid(semantic, "rotate keys", [0.9, 0.1], "notes", top_k=1)
        >>> [node.metadata["path"] for node in retriever.retrieve("rotate keys")]
        ['keys.md']
    """
    parts = parts or shared_service().parts
    params = SearchParams(query, dataset=dataset, mode="lexical")
    request = read_request(params, parts, StageLog())
    by_words = plan_retriever(parts, request, check_depths(None, None, top_k))
    within, depth = by_words.legs[0].restriction, parts.rag.vector_top_k
    nearest = PrecomputedLeg(parts.database, within, depth, semantic, query_embedding)
    legs = [*by_words.legs, nearest.leg]
    return HybridRetrieverV2(parts, legs, top_k=by_words.similarity_top_k)
