"""From good candidates to the answer: the postprocessors that follow fusion, and their account."""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import inf

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from catalog.core.errors import CatalogError, ConfigError
from catalog.core.params import Mode
from catalog.search_v2.passages import ScoredPassage
from catalog.search_v2.relevance import RelevanceEstimator
from catalog.search_v2.rerank.postprocessor import RerankPostprocessor
from catalog.search_v2.rerank.sentences import RerankSentences
from catalog.search_v2.search_parts import SearchParts
from catalog.search_v2.select import KeepFirst, SimilarityThreshold, TokenBudget
from catalog.search_v2.snippets import find_snippet
from catalog.search_v2.stages import StageLog
from catalog.search_v2.temporal import KeepTelling, TemporalExpansion, is_timed

_STAGES: dict[type, str] = {SimilarityThreshold: "threshold", TokenBudget: "token budget"}


class Refiner:
    """Hold the stages between candidates and answer, as the settings say.

    Raises :class:`ConfigError` when a threshold is set and no calibration fits the models.
    """

    def __init__(self, parts: SearchParts, *, rerank: bool, mode: Mode) -> None:
        self._parts, self._rag = parts, parts.rag
        self._rerank = self._build_reranker() if rerank else None
        self._sentences = self._build_sentences() if rerank else None
        self._estimator = RelevanceEstimator(parts.calibration, self._rag.original_weight)
        self._is_calibrated = parts.calibration(mode, reranked=rerank) is not None
        if self._rag.similarity_threshold > 0 and not self._is_calibrated:
            raise ConfigError(
                "similarity_threshold needs a calibration, and there is none for these models: "
                "'catalog golden calibrate' makes one, or set it to 0"
            )
        self._temporal = None
        if self._rag.temporal_enabled:
            self._temporal = TemporalExpansion.of(parts.database, self._rag)

    def wanted(self, top_k: int) -> int:
        """Return how many candidates it can use."""
        return max(top_k, self._rerank.candidates if self._rerank else 0)

    def postprocessors(self, top_k: int) -> list[BaseNodePostprocessor]:
        """Return the same stages for a LlamaIndex query engine, in order."""
        cuts = self._build_cuts(top_k)
        stages = (self._rerank, self._estimator, *cuts, self._sentences, self._temporal)
        return [stage for stage in stages if stage is not None]

    def refine(
        self,
        candidates: Sequence[ScoredPassage],
        query: str,
        top_k: int,
        stages: StageLog,
        *,
        words: str,
    ) -> tuple[list[ScoredPassage], float | None]:
        """Return the passages of the answer, and how sure it is; ``None``: nothing is calibrated.

        ``query`` is what the models read, ``words`` what snippets and best sentences hold.
        A stage that fails leaves the passages as they are.
        """
        bundle = QueryBundle(query)
        nodes: list[NodeWithScore] = list(candidates)
        if self._rerank is not None and nodes:
            nodes = self._run_reranker(self._rerank, nodes, query, stages)
        nodes, confidence = self._estimate(nodes, bundle, top_k, stages)
        for cut in self._build_cuts(top_k):
            started, before = time.perf_counter(), len(nodes)
            nodes = cut.postprocess_nodes(nodes, bundle)
            if not isinstance(cut, KeepFirst):
                ms = (time.perf_counter() - started) * 1000
                stages.ran(_STAGES[type(cut)], ms, f"{len(nodes)} of {before} kept")
        nodes = [_with_snippet(node, words, self._rag.snippet_chars) for node in nodes]
        if self._sentences is not None and nodes:
            nodes = self._run_sentences(self._sentences, nodes, query, words, stages)
        if self._temporal is not None:
            nodes = _run_temporal(self._temporal, nodes, stages)
        return _passages(nodes), confidence

    def _run_reranker(
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

    def _run_sentences(
        self,
        sentences: RerankSentences,
        nodes: list[NodeWithScore],
        query: str,
        words: str,
        stages: StageLog,
    ) -> list[NodeWithScore]:
        """Let the reranker choose the best sentences in what its passages left of the budget."""
        started = time.perf_counter()
        spent = sum(report.ms for report in stages.reports if report.name == "rerank") / 1000
        seconds = self._rag.rerank_budget_ms / 1000 - spent if self._rag.rerank_budget_ms else inf
        try:
            chosen, note = sentences.choose(nodes, query, words, seconds)
        except CatalogError as error:
            stages.failed("sentences", (time.perf_counter() - started) * 1000, error)
            return nodes
        if note:
            stages.ran("sentences", (time.perf_counter() - started) * 1000, note)
        return chosen

    def _estimate(
        self, nodes: list[NodeWithScore], bundle: QueryBundle, top_k: int, stages: StageLog
    ) -> tuple[list[NodeWithScore], float | None]:
        """Return the nodes with their relevance, and the best of those that may be shown.

        That is not known, ``None``, while one of these waits for its vector and is not judged.
        """
        if self._estimator.calibration(_passages(nodes)) is None:
            why = "no passage" if not nodes else "no calibration fits what answered"
            stages.skipped("relevance", why)
            return nodes, None if nodes or not self._is_calibrated else 0.0
        with stages.run("relevance") as notes:
            nodes = self._estimator.postprocess_nodes(nodes, bundle)
            judged = [passage.relevance for passage in _passages(nodes)[:top_k]]
            known = [relevance for relevance in judged if relevance is not None]
            best = max(known) if len(known) == len(judged) else None
            unknown = f"{len(judged) - len(known)} of {len(judged)} have no vector yet"
            notes.append(unknown if best is None else f"best {best:.2f}")
        return nodes, best

    def _build_cuts(self, top_k: int) -> list[BaseNodePostprocessor]:
        cuts: list[BaseNodePostprocessor] = []
        if self._rag.similarity_threshold > 0:
            cuts.append(SimilarityThreshold(minimum=self._rag.similarity_threshold))
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


def _with_snippet(node: NodeWithScore, words: str, max_chars: int) -> NodeWithScore:
    """Return a passage of a recording with the snippet around its best sentence by words."""
    if not isinstance(node, ScoredPassage) or not is_timed(node.chunk):
        return node
    return node.with_snippet(find_snippet(node.chunk, words, max_chars))


def _run_temporal(
    temporal: TemporalExpansion, nodes: list[NodeWithScore], stages: StageLog
) -> list[NodeWithScore]:
    started = time.perf_counter()
    try:
        expanded, note = temporal.expand(nodes)
    except Exception as error:  # noqa: BLE001 - recorded as the stage's failure
        stages.failed("temporal", (time.perf_counter() - started) * 1000, error)
        return nodes
    if not note:
        stages.skipped("temporal", "no timed passage")
        return nodes
    stages.ran("temporal", (time.perf_counter() - started) * 1000, note)
    return expanded


def _passages(nodes: Sequence[NodeWithScore]) -> list[ScoredPassage]:
    return [node for node in nodes if isinstance(node, ScoredPassage)]
