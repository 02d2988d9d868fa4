"""The rerank stage: which passages are scored, from the cache or by the model, and blended."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle
from pydantic import Field, PrivateAttr

from catalog.core.errors import CatalogError
from catalog.core.results import Reranked
from catalog.search_v2.passages import ScoredPassage
from catalog.search_v2.rerank.blending import BlendName, RerankScore, blend, order
from catalog.search_v2.rerank.scoring import (
    Budget,
    Scoring,
    candidate,
    guarded,
    judgements,
    score_missing,
)

if TYPE_CHECKING:
    from catalog.search_v2.model_cache import ModelCache
    from catalog.search_v2.rerank.base import Reranker

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reranking:
    """Passages in their new order, how many were scored and whence, and what stopped it early."""

    nodes: list[NodeWithScore]
    note: str
    error: CatalogError | None = None


class RerankPostprocessor(BaseNodePostprocessor):
    """Lets a reranker read the first passages and blends what it says with their scores.

    Takes nodes of any retriever, best first; the passage is read behind its title and headings,
    at its best run of words. ``candidates`` passages are scored, fewer when ``budget_ms`` (0: no
    limit) would be exceeded; those not scored follow in their order. ``top_n`` keeps that many
    (0: all). See ``rerank.blending`` for the formulas.
    """

    candidates: int = Field(20, ge=1)
    blend: BlendName = "linear"
    weight: float = Field(0.3, ge=0.0, le=1.0)
    rrf_k: int = Field(60, ge=1)
    budget_ms: int = Field(0, ge=0)
    top_n: int = Field(0, ge=0)
    _reranker: Reranker = PrivateAttr()
    _cache: ModelCache | None = PrivateAttr(default=None)

    def __init__(
        self, reranker: Reranker, cache: ModelCache | None = None, **settings: object
    ) -> None:
        super().__init__(**settings)
        self._reranker, self._cache = reranker, cache

    @classmethod
    def class_name(cls) -> str:
        """The name LlamaIndex serialises."""
        return "RerankPostprocessor"

    def rerank(self, nodes: Sequence[NodeWithScore], query: str) -> Reranking:
        """The nodes in their new order; what was scored before a failure is kept and counts.

        Raises :class:`RerankError` and leaves the nodes as they are when nothing was scored.
        """
        budget = Budget(self.budget_ms)
        with guarded(self._reranker):
            model = self._reranker.fingerprint
        chosen = [candidate(query, node, model) for node in nodes[: self.candidates]]
        known = {} if self._cache is None else self._cache.get([one.key for one in chosen])
        scoring = Scoring({key: float(value) for key, value in known.items()})
        score_missing(self._reranker, query, chosen, scoring, budget)
        if self._cache is not None:
            self._cache.put(scoring.new, model=model)
        raws: list[float] = []
        for one in chosen:
            if one.key not in scoring.scores:
                break
            raws.append(scoring.scores[one.key])
        if scoring.error is not None and not raws:
            raise scoring.error
        judged = judgements(self._reranker, raws, scoring.scores.values())
        note = f"{self._reranker.name}, {self.blend}: {len(judged)} of {len(nodes)} scored"
        if known:
            note = f"{note}, {len(known)} of them cached"
        if scoring.error is not None:
            note = f"{note}; stopped: {scoring.error}"
        elif len(judged) < len(chosen):
            note = f"{note}; {self.budget_ms} ms allow no more"
        if scoring.cut:
            note = f"{note}; {scoring.cut} read in part"
        return Reranking(self._blended(nodes, judged), note, scoring.error)

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if query_bundle is None or not nodes:
            return nodes
        try:
            done = self.rerank(nodes, query_bundle.query_str)
        except CatalogError as error:
            _log.warning("not reranked, the order stands: %s", error)
            return nodes
        if done.error is not None:
            _log.warning("reranked in part: %s", done.error)
        return done.nodes

    def _blended(
        self, nodes: Sequence[NodeWithScore], judged: Sequence[RerankScore]
    ) -> list[NodeWithScore]:
        fused = [node.score or 0.0 for node in nodes]
        parts = blend(self.blend, fused, judged, weight=self.weight, k=self.rrf_k)
        done: list[NodeWithScore] = []
        for place in order(parts, len(judged)):
            node, part = nodes[place], parts[place]
            said = judged[place] if place < len(judged) else None
            if isinstance(node, ScoredPassage):
                record = Reranked(
                    model=self._reranker.name,
                    blend=self.blend,
                    rank=place + 1,
                    raw_score=said.raw if said else None,
                    relevance=said.relevance if said else None,
                    fused_part=part.fused,
                    rerank_part=part.reranked,
                )
                done.append(node.reranked_as(part.score, record))
            else:
                done.append(NodeWithScore(node=node.node, score=part.score))
        return done[: self.top_n] if self.top_n else done
