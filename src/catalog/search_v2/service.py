"""The v2 search service: one query through every stage, and the account of how it went."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Unpack

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore

from catalog.core.results import Comparison, Evidence, SearchResults
from catalog.library.library import Library
from catalog.search_v2.candidates import Candidates, gather_candidates
from catalog.search_v2.compare import Baseline, compared, not_compared
from catalog.search_v2.passages import ScoredPassage
from catalog.search_v2.refine import Refiner
from catalog.search_v2.request import (
    DEFAULT_TOP_K,
    SearchArguments,
    SearchRequest,
    possible_top_k,
    read_mode,
    read_request,
)
from catalog.search_v2.shape import to_result
from catalog.search_v2.stages import StageLog
from catalog.search_v2.temporal import TemporalExpansion


class SearchServiceV2:
    """Searches one store. Thread-safe; keep it open, since models and indexes load once."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self._baseline = Baseline(library.settings)

    def search(
        self,
        query: str,
        *,
        dataset: str,
        top_k: int = DEFAULT_TOP_K,
        mode: str = "hybrid",
        doc_ids: Iterable[str] | None = None,
        filters: object = None,
        rerank: bool | None = None,
        expand: bool | None = None,
        explain: bool = False,
        strict: bool = False,
        compare_with_v1: bool = False,
    ) -> SearchResults:
        """The ``top_k`` best passages of a dataset for a query, best first.

        ``query``: words, ``"phrases"``, ``-exclusions``, or typed parts (``lex: … / vec: …``).
        ``doc_ids`` (ids or paths): ``None`` is every document, ``[]`` is none. ``filters``: see
        ``core.filter_forms.parse_filters``. ``rerank`` and ``expand`` default to the settings. A
        stage that fails is reported in ``stages`` and the rest answers, unless ``strict``.
        ``compare_with_v1`` asks the baseline too and tells the differences in ``comparison``.
        Raises :class:`InputError` kinds for a bad call, :class:`ConfigError` kinds for a stage
        that is on and has no model.
        """
        if doc_ids is not None and not isinstance(doc_ids, str):
            doc_ids = list(doc_ids)  # it may be read twice
        if compare_with_v1 and not self._baseline.is_warm(dataset):
            self.retrieve("warm up", dataset=dataset, mode=mode)  # the baseline is timed warm, too
        started = time.perf_counter()
        stages = StageLog(strict=strict)
        request = read_request(
            self.library,
            query,
            stages,
            dataset=dataset,
            top_k=top_k,
            mode=mode,
            doc_ids=doc_ids,
            filters=filters,
            rerank=rerank,
            expand=expand,
        )
        precision, candidates = self._gathered(request, stages)
        about = request.query.about(request.mode)
        found = precision.refine(candidates.passages, about, top_k, stages)
        passages = self._in_time(found.passages, stages)
        results = []
        first: dict[Evidence | None, int | None] = {None: None}
        with stages.run("shape"):
            for rank, node in enumerate(passages, start=1):
                result = to_result(
                    node.chunk,
                    node.fused,
                    rank,
                    query=request.query.words,
                    fusion=candidates.fusion,
                    snippet_chars=self.library.settings.rag_v2.snippet_chars,
                    explain=explain,
                    score=node.score,
                    rerank=node.reranked,
                    relevance=node.relevance,
                    evidence=node.evidence,
                    evidence_at=first.setdefault(node.evidence, rank),
                )
                results.append(result)
        elapsed_ms = (time.perf_counter() - started) * 1000
        comparison = None
        if compare_with_v1:
            paths = [result.path for result in results]
            comparison = self._compare(request, query, filters, doc_ids, paths, elapsed_ms, stages)
        return SearchResults(
            results,
            query=query,
            dataset=dataset,
            mode=request.mode,
            stages=stages.reports,
            elapsed_ms=round(elapsed_ms, 3),
            confidence=found.confidence,
            low_confidence=found.low_confidence,
            comparison=comparison,
        )

    def retrieve(self, query: str, **asked: Unpack[SearchArguments]) -> list[NodeWithScore]:
        """The same passages as LlamaIndex nodes, for query engines and agents."""
        stages = StageLog()
        request = read_request(self.library, query, stages, **asked)
        precision, candidates = self._gathered(request, stages)
        text, top_k = request.query.about(request.mode), request.top_k
        found = precision.refine(candidates.passages, text, top_k, stages)
        return list(self._in_time(found.passages, stages))

    def candidates(self, query: str, **asked: Unpack[SearchArguments]) -> list[NodeWithScore]:
        """What ``retrieve`` starts from: passages as fused and selected, more than ``top_k``."""
        stages = StageLog()
        request = read_request(self.library, query, stages, **asked)
        return list(self._gathered(request, stages)[1].passages)

    def postprocessors(
        self,
        *,
        top_k: int = DEFAULT_TOP_K,
        mode: str = "hybrid",
        rerank: bool | None = None,
        **_: object,
    ) -> list[BaseNodePostprocessor]:
        """The stages between ``candidates`` and ``retrieve``, which take the same arguments."""
        asked = self.library.settings.rag_v2.rerank_enabled if rerank is None else rerank
        chain = Refiner(self.library, rerank=asked, mode=read_mode(mode))
        stages = chain.postprocessors(possible_top_k(top_k))
        rag = self.library.settings.rag_v2
        if rag.temporal_enabled:
            stages.append(TemporalExpansion.of(self.library.database, rag))
        return stages

    def _gathered(self, request: SearchRequest, stages: StageLog) -> tuple[Refiner, Candidates]:
        precision = Refiner(self.library, rerank=request.rerank, mode=request.mode)
        wanted = precision.wanted(request.top_k)
        return precision, gather_candidates(self.library, request, stages, wanted=wanted)

    def _in_time(
        self, passages: Sequence[ScoredPassage], stages: StageLog
    ) -> Sequence[ScoredPassage]:
        """The passages, those of recordings with their evidence; its failure is a failed stage."""
        rag = self.library.settings.rag_v2
        if not rag.temporal_enabled:
            return passages
        started = time.perf_counter()
        try:
            done = TemporalExpansion.of(self.library.database, rag).expand(passages)
        except Exception as error:  # noqa: BLE001 - recorded as the stage's failure
            stages.failed("temporal", (time.perf_counter() - started) * 1000, error)
            return passages
        if done.timed == 0:
            stages.skipped("temporal", "no timed passage")
            return passages
        bundles = "bundle" if done.bundles == 1 else "bundles"
        hits = "hit" if done.timed == 1 else "hits"
        note = f"{done.timed} {hits} in {done.bundles} {bundles}"
        stages.ran("temporal", (time.perf_counter() - started) * 1000, note)
        return [node for node in done.nodes if isinstance(node, ScoredPassage)]

    def _compare(
        self,
        request: SearchRequest,
        query: str,
        filters: object,
        doc_ids: Iterable[str] | None,
        paths: Sequence[str],
        v2_ms: float,
        stages: StageLog,
    ) -> Comparison:
        """The same question to the baseline; its failure is a failed stage, not a failed query."""
        name, started = self._baseline.name, time.perf_counter()
        try:
            answer, v1_ms, note = self._baseline.ask(
                query,
                dataset=request.restriction.dataset,
                top_k=request.top_k,
                mode=request.mode,
                filters=filters,
                doc_ids=None if doc_ids is None else list(doc_ids),
            )
        except (Exception, SystemExit) as error:  # noqa: BLE001 - another's; recorded as its failure
            stages.failed("compare", (time.perf_counter() - started) * 1000, error)
            failure = f"{type(error).__name__}: {error}"
            return not_compared(name, paths, v2_ms=v2_ms, error=failure)
        found = f"{name}: {len(answer.hits)} passages"
        stages.ran("compare", v1_ms, "; ".join(filter(None, (found, note))))
        v1_paths = [passage.path for passage in answer.hits]
        return compared(name, v1_paths, paths, v1_ms=v1_ms, v2_ms=v2_ms, note=note)

    def close(self) -> None:
        """Release the library."""
        self.library.close()
