"""From good candidates to the answer: the postprocessors that follow fusion, and their account."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from catalog.core.errors import CatalogError, ConfigError
from catalog.core.params import Mode
from catalog.library.library import Library
from catalog.search_v2.passages import ScoredPassage
from catalog.search_v2.relevance import RelevanceEstimator
from catalog.search_v2.rerank.postprocessor import RerankPostprocessor
from catalog.search_v2.select import KeepFirst, SimilarityThreshold, TokenBudget
from catalog.search_v2.stages import StageLog


@dataclass(frozen=True, slots=True)
class Refined:
    """The passages of the answer, and how sure it is; ``None`` where nothing is calibrated."""

    passages: list[ScoredPassage]
    confidence: float | None
    low_confidence: bool | None


class Refiner:
    """Reranking, relevance and the cuts of one search, as the settings say.

    Raises :class:`ConfigError` when a threshold is set and no calibration fits the models.
    """

    def __init__(self, library: Library, *, rerank: bool, mode: Mode) -> None:
        self._rag = library.settings.rag_v2
        self._library = library
        self._rerank = self._reranker() if rerank else None
        self._estimator = RelevanceEstimator(library)
        self._is_calibrated = library.calibration(mode, reranked=rerank) is not None
        if self._rag.similarity_threshold > 0 and not self._is_calibrated:
            raise ConfigError(
                "similarity_threshold needs a calibration, and there is none for these models: "
                "'catalog golden calibrate' makes one, or set it to 0"
            )

    def wanted(self, top_k: int) -> int:
        """How many candidates it can use."""
        return max(top_k, self._rerank.candidates if self._rerank else 0)

    def postprocessors(self, top_k: int) -> list[BaseNodePostprocessor]:
        """The same stages for a LlamaIndex query engine, in order."""
        chain: list[BaseNodePostprocessor] = []
        if self._rerank is not None:
            chain.append(self._rerank)
        return [*chain, self._estimator, *self._cuts(top_k)]

    def refine(
        self, candidates: Sequence[ScoredPassage], query: str, top_k: int, stages: StageLog
    ) -> Refined:
        """The answer made of the candidates; a reranker that fails leaves their order."""
        bundle = QueryBundle(query)
        nodes: list[NodeWithScore] = list(candidates)
        if self._rerank is not None and nodes:
            nodes = self._reranked(self._rerank, nodes, query, stages)
        nodes, confidence = self._judged(nodes, bundle, top_k, stages)
        for cut in self._cuts(top_k):
            started, before = time.perf_counter(), len(nodes)
            nodes = cut.postprocess_nodes(nodes, bundle)
            if not isinstance(cut, KeepFirst):
                ms = (time.perf_counter() - started) * 1000
                stages.ran(_NAMES[type(cut)], ms, f"{len(nodes)} of {before} kept")
        low = None if confidence is None else confidence < self._rag.low_confidence_below
        return Refined(_passages(nodes), confidence, low)

    def _reranked(
        self,
        rerank: RerankPostprocessor,
        nodes: list[NodeWithScore],
        query: str,
        stages: StageLog,
    ) -> list[NodeWithScore]:
        started = time.perf_counter()
        try:
            done = rerank.rerank(nodes, query)
        except CatalogError as error:
            stages.failed("rerank", (time.perf_counter() - started) * 1000, error)
            return nodes
        ms = (time.perf_counter() - started) * 1000
        if done.error is None:
            stages.ran("rerank", ms, done.note)
        else:
            stages.failed("rerank", ms, done.error)
        return done.nodes

    def _judged(
        self, nodes: list[NodeWithScore], bundle: QueryBundle, top_k: int, stages: StageLog
    ) -> tuple[list[NodeWithScore], float | None]:
        """The nodes with their relevance, and the best of those that may be shown."""
        if self._estimator.calibration(_passages(nodes)) is None:
            why = "no passage" if not nodes else "no calibration fits what answered"
            stages.skipped("relevance", why)
            return nodes, None if nodes or not self._is_calibrated else 0.0
        with stages.run("relevance") as notes:
            nodes = self._estimator.postprocess_nodes(nodes, bundle)
            shown = [one.relevance or 0.0 for one in _passages(nodes)[:top_k]]
            notes.append(f"best {max(shown):.2f}")
        return nodes, max(shown)

    def _cuts(self, top_k: int) -> list[BaseNodePostprocessor]:
        cuts: list[BaseNodePostprocessor] = []
        if self._rag.similarity_threshold > 0:
            cuts.append(SimilarityThreshold(minimum=self._rag.similarity_threshold))
        cuts.append(KeepFirst(limit=top_k))
        if self._rag.token_budget:
            counter = self._library.model.encoder.counter
            cuts.append(TokenBudget(limit=self._rag.token_budget, counter=counter))
        return cuts

    def _reranker(self) -> RerankPostprocessor:
        rag = self._rag
        return RerankPostprocessor(
            self._library.reranker,
            self._library.rerank_cache,
            candidates=rag.rerank_candidates,
            blend=rag.rerank_blend,
            weight=rag.rerank_weight,
            budget_ms=rag.rerank_budget_ms,
            top_n=rag.rerank_top_n,
        )


_NAMES: dict[type, str] = {SimilarityThreshold: "threshold", TokenBudget: "token budget"}


def _passages(nodes: Sequence[NodeWithScore]) -> list[ScoredPassage]:
    return [node for node in nodes if isinstance(node, ScoredPassage)]
