"""From good candidates to the answer: the postprocessors that follow fusion, and their account."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING

from llama_index.core.postprocessor.types import BaseNodePostprocessor

from catalog.core.errors import CatalogError
from catalog.search_v2.passages import Passage, ScoredPassage
from catalog.search_v2.relevance import (
    RelevanceEstimator,
    judge_relevance,
)
from catalog.search_v2.rerank.postprocessor import RerankPostprocessor
from catalog.search_v2.rerank.sentences import RerankSentences
from catalog.search_v2.search_parts import SearchParts
from catalog.search_v2.select import (
    KeepFirst,
    SimilarityThreshold,
    TokenBudget,
    keep_relevant,
    keep_within_budget,
)
from catalog.search_v2.snippets import find_snippet
from catalog.search_v2.stages import StageLog
from catalog.search_v2.temporal import KeepTelling, TemporalExpansion, is_timed, keep_telling

if TYPE_CHECKING:
    from llama_index.core.schema import NodeWithScore


class Refiner:
    """Hold the stages between candidates and answer, as the settings and a call's choices say."""

    def __init__(self, parts: SearchParts, *, rerank: bool, threshold: float | None = None) -> None:
        self._parts, self._rag = parts, parts.rag
        self._threshold = parts.rag.similarity_threshold if threshold is None else threshold
        self._rerank = self._build_reranker() if rerank else None
        self._sentences = self._build_sentences() if rerank else None

    @cached_property
    def _temporal(self) -> TemporalExpansion | None:
        if not self._rag.temporal_enabled:
            return None
        return TemporalExpansion.of(self._parts.database, self._rag)

    def wanted(self, top_k: int) -> int:
        """Return how many candidates it can use."""
        return max(top_k, self._rerank.candidates if self._rerank else 0)

    def postprocessors(self, top_k: int) -> list[BaseNodePostprocessor]:
        """Return the same stages for a LlamaIndex query engine, in order."""
        estimator = RelevanceEstimator(self._parts.calibration)
        cuts = self._build_cuts(top_k)
        stages = (self._rerank, estimator, *cuts, self._sentences, self._temporal)
        return [stage for stage in stages if stage is not None]

    def refine(
        self,
        candidates: Sequence[Passage],
        query: str,
        top_k: int,
        stages: StageLog,
        *,
        words: str,
        is_quoted: bool = False,
    ) -> tuple[list[Passage], float]:
        """Return the passages of the answer, and the confidence in them, 0 without any.

        ``query`` is the text for the models, ``words`` the one for snippets and best sentences.
        ``is_quoted``: every passage contains the phrases that the query quotes.
        A stage that fails leaves the passages as they are.
        """
        passages = list(candidates)
        if self._rerank is not None and passages:
            passages = self._run_reranker(self._rerank, passages, query, stages)
        if self._threshold == 0 and not any(is_timed(one.chunk) for one in passages[:top_k]):
            passages = passages[:top_k]  # no later stage asks for more
        passages, confidence = self._estimate(passages, words, stages, is_quoted=is_quoted)
        passages = [
            self._with_snippet(passage, words) for passage in self._cut(passages, top_k, stages)
        ]
        if self._sentences is not None and passages:
            passages = self._run_sentences(self._sentences, passages, query, words, stages)
        if self._rag.temporal_enabled:
            passages = self._run_temporal(passages, stages)
        return passages, confidence

    def _run_reranker(
        self,
        rerank: RerankPostprocessor,
        passages: list[Passage],
        query: str,
        stages: StageLog,
    ) -> list[Passage]:
        started = time.perf_counter()
        try:
            done = rerank.rerank(_to_nodes(passages), query)
        except CatalogError as error:
            stages.failed("rerank", (time.perf_counter() - started) * 1000, error)
            return passages
        ms = (time.perf_counter() - started) * 1000
        if done.error is None:
            stages.ran("rerank", ms, done.note)
        else:
            stages.failed("rerank", ms, done.error)
        return _to_passages(done.nodes)

    def _run_sentences(
        self,
        sentences: RerankSentences,
        passages: list[Passage],
        query: str,
        words: str,
        stages: StageLog,
    ) -> list[Passage]:
        """Let the reranker choose the best sentences in what its passages left of the budget."""
        started = time.perf_counter()
        spent = sum(report.ms for report in stages.reports if report.name == "rerank") / 1000
        seconds = self._rag.rerank_budget_ms / 1000 - spent if self._rag.rerank_budget_ms else inf
        try:
            chosen, note = sentences.choose(_to_nodes(passages), query, words, seconds)
        except CatalogError as error:
            stages.failed("sentences", (time.perf_counter() - started) * 1000, error)
            return passages
        if note:
            stages.ran("sentences", (time.perf_counter() - started) * 1000, note)
        return _to_passages(chosen)

    def _estimate(
        self, passages: list[Passage], words: str, stages: StageLog, *, is_quoted: bool
    ) -> tuple[list[Passage], float]:
        """Return the passages with their relevance and certainty, and the confidence in them."""
        if not passages:
            stages.skipped("relevance", "no passage")
            return passages, 0.0
        with stages.run("relevance") as notes:
            judged, confidence = judge_relevance(
                passages, words, self._parts.calibration, is_quoted=is_quoted
            )
            notes.append(f"best {judged[0].relevance:.2f}, confidence {confidence:.2f}")
        return judged, confidence

    def _cut(self, passages: list[Passage], top_k: int, stages: StageLog) -> list[Passage]:
        """Cut as the stages of :meth:`_build_cuts` do."""
        if (minimum := self._threshold) > 0:
            started, before = time.perf_counter(), len(passages)
            passages = keep_relevant(passages, minimum)
            ms = (time.perf_counter() - started) * 1000
            stages.ran("threshold", ms, f"{len(passages)} of {before} kept")
        if self._temporal is None or not any(is_timed(one.chunk) for one in passages[:top_k]):
            passages = passages[:top_k]
        else:
            passages = keep_telling(self._temporal, passages, top_k)
        if self._rag.token_budget:
            started, before = time.perf_counter(), len(passages)
            counter = self._parts.model.encoder.counter
            passages = keep_within_budget(passages, self._rag.token_budget, counter)
            ms = (time.perf_counter() - started) * 1000
            stages.ran("token budget", ms, f"{len(passages)} of {before} kept")
        return passages

    def _with_snippet(self, passage: Passage, words: str) -> Passage:
        """Return a passage of a recording with the snippet around its best sentence by words."""
        if not is_timed(passage.chunk):
            return passage
        snippet = find_snippet(passage.chunk, words, self._rag.snippet_chars)
        return passage._replace(snippet=snippet)

    def _run_temporal(self, passages: list[Passage], stages: StageLog) -> list[Passage]:
        if self._temporal is None or not any(is_timed(passage.chunk) for passage in passages):
            stages.skipped("temporal", "no timed passage")
            return passages
        started = time.perf_counter()
        try:
            expanded, note = self._temporal.expand(passages)
        except Exception as error:  # noqa: BLE001 - recorded as the stage's failure
            stages.failed("temporal", (time.perf_counter() - started) * 1000, error)
            return passages
        stages.ran("temporal", (time.perf_counter() - started) * 1000, note)
        return expanded

    def _build_cuts(self, top_k: int) -> list[BaseNodePostprocessor]:
        cuts: list[BaseNodePostprocessor] = []
        if self._threshold > 0:
            cuts.append(SimilarityThreshold(minimum=self._threshold))
        if self._temporal is None:
            cuts.append(KeepFirst(limit=top_k))
        else:
            cuts.append(KeepTelling(self._temporal, top_k))
        if self._rag.token_budget:
            counter = self._parts.model.encoder.counter
            cuts.append(TokenBudget(limit=self._rag.token_budget, counter=counter))
        return cuts

    def _build_reranker(self) -> RerankPostprocessor:
        rag = self._rag
        return RerankPostprocessor(
            self._parts.reranker,
            self._parts.rerank_cache,
            candidates=rag.rerank_candidates,
            blend=rag.rerank_blend,
            weight=rag.rerank_weight,
            budget_ms=rag.rerank_budget_ms,
            top_n=rag.rerank_top_n,
        )

    def _build_sentences(self) -> RerankSentences:
        parts = self._parts
        return RerankSentences(
            parts.reranker, parts.rerank_cache, snippet_chars=self._rag.snippet_chars
        )


def _to_nodes(passages: Sequence[Passage]) -> list[NodeWithScore]:
    return [passage.to_node() for passage in passages]


def _to_passages(nodes: Sequence[NodeWithScore]) -> list[Passage]:
    return [node.passage for node in nodes if isinstance(node, ScoredPassage)]
