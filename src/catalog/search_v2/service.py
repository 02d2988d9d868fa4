"""The v2 search service: one query through every stage, and the account of how it went."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from catalog.core.errors import InputError
from catalog.core.param_fields import takes_self
from catalog.core.params import SearchParams
from catalog.core.results import Comparison, Evidence, SearchResult, SearchResults
from catalog.core.retrieval_events import searching
from catalog.library.library import Library
from catalog.search_v2.candidates import gather_candidates
from catalog.search_v2.compare import Baseline
from catalog.search_v2.nothing_found import explain_nothing, find_nearest, tell_searched
from catalog.search_v2.passages import Passage
from catalog.search_v2.refine import Refiner
from catalog.search_v2.request import (
    SearchRequest,
    check_search,
    chosen_threshold,
    correct_spelling,
    for_agent,
    read_request,
)
from catalog.search_v2.search_parts import SearchParts
from catalog.search_v2.shape import to_result
from catalog.search_v2.spans import export_spans, span
from catalog.search_v2.stages import StageLog
from catalog.store.engine_types import allowed_paths
from catalog.store.waiting import embedded_share

_log = logging.getLogger(__name__)
_DAMAGED = 3  # documents named in notes


class SearchServiceV2:
    """Search one store. Thread-safe; keep it open, since models and indexes load once.

    ``parts`` stand in for those that the library's settings make.
    """

    def __init__(self, library: Library, parts: SearchParts | None = None) -> None:
        self.library = library
        self.parts = parts or SearchParts(library)
        if library.settings.log.spans:
            export_spans()
        self._baseline = Baseline(self.parts.settings)

    def with_settings(self, changes: Mapping[str, Any]) -> SearchServiceV2:
        """Return a service of the same store, models and indexes under other v2 settings.

        Close one of them only. Raises :class:`ConfigError` for a setting that would need a
        rebuild.
        """
        return SearchServiceV2(self.library, self.parts.with_settings(changes))

    @takes_self(SearchParams)
    def search(self, params: SearchParams) -> SearchResults:
        """Return the ``top_k`` best passages for a query, best first.

        They are those of a dataset, or of several as though these were one: of all unless named.

        The parameters are those of :class:`SearchParams`. A stage that fails is reported in
        ``stages`` and the rest answers, unless ``strict``. ``compare_with_v1`` asks the baseline
        too and tells the differences in ``comparison``. Raises :class:`InputError` kinds for a
        bad call, :class:`ConfigError` kinds for a stage that is on and has no model.
        """
        return self.run(params)

    @takes_self(SearchParams)
    def retrieve(self, params: SearchParams) -> list[NodeWithScore]:
        """Return the same passages as LlamaIndex nodes, for query engines and agents."""
        return self.nodes(params)

    @takes_self(SearchParams)
    def candidates(self, params: SearchParams) -> list[NodeWithScore]:
        """Return what ``retrieve`` starts from: fused and selected, more than ``top_k``."""
        return self.nodes(params, is_refined=False)

    def run(self, params: SearchParams) -> SearchResults:
        """Return the results of a search; see :meth:`search`."""
        with searching(str(self.library.settings.home)), span("search"):
            return self._run(params)

    def _run(self, params: SearchParams) -> SearchResults:
        if params.doc_ids is not None and not isinstance(params.doc_ids, str):
            params = replace(params, doc_ids=list(params.doc_ids))  # it may be read twice
        if params.compare_with_v1:
            self._warm_up(for_agent(params, self.parts.settings))  # the baseline is timed warm, too
        started = time.perf_counter()
        params = for_agent(params, self.parts.settings)
        stages = StageLog(strict=params.strict)
        request = correct_spelling(read_request(params, self.parts, stages), self.parts)
        refiner, candidates, fusion = self._gather(request, stages)
        about = request.query.about(request.mode)
        passages, confidence = refiner.refine(
            candidates,
            about,
            request.top_k,
            stages,
            words=request.query.words,
            is_quoted=bool(request.query.required),
        )
        if request.sort == "date":
            passages = _newest_first(passages)
        with stages.run("shape"):
            results = self._shape(passages, request.query.words, fusion, explain=params.explain)
        elapsed_ms = (time.perf_counter() - started) * 1000
        comparison = None
        if params.compare_with_v1:
            comparison = self._compare(params, request, results, elapsed_ms, stages)
        low = confidence < self.parts.rag.low_confidence_below
        return SearchResults(
            results,
            query=params.query,
            datasets=request.restriction.datasets,
            mode=request.mode,
            stages=stages.reports,
            elapsed_ms=round(elapsed_ms, 3),
            confidence=confidence,
            low_confidence=low,
            comparison=comparison,
            agent=params.agent,
            searched=None if results else tell_searched(self.library, params, request),
            nearest=() if results else find_nearest(self.parts, request),
            notes=(
                *request.query.readings,
                *self._tell_waiting(request),
                *request.notes,
                *_name_damaged(stages),
                *(() if results else explain_nothing(self.library, params, request, stages)),
            ),
        )

    def run_logged(self, params: SearchParams) -> SearchResults:
        """Return the same, and note it where the search was asked at an edge."""
        with self.library.log.watching(params) as note:
            results = self.run(params)
            note(results, agent=results.agent)
        return results

    def nodes(
        self, params: SearchParams, *, is_refined: bool = True, bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        """Return the passages as LlamaIndex nodes, or the candidates they are chosen from.

        A ``bundle`` may bring an embedding, or texts to embed, in place of the query's. A stage
        that fails is logged, since nodes cannot tell of it.
        """
        with searching(str(self.library.settings.home)):
            return self._nodes(params, bundle, is_refined=is_refined)

    def _nodes(
        self, params: SearchParams, bundle: QueryBundle | None, *, is_refined: bool
    ) -> list[NodeWithScore]:
        params = for_agent(params, self.parts.settings)
        stages = StageLog(strict=params.strict)
        request = correct_spelling(read_request(params, self.parts, stages), self.parts)
        refiner, passages, _ = self._gather(request, stages, bundle)
        if is_refined:
            about = request.query.about(request.mode)
            passages, _ = refiner.refine(
                passages,
                about,
                request.top_k,
                stages,
                words=request.query.words,
                is_quoted=bool(request.query.required),
            )
        if request.sort == "date":
            passages = _newest_first(passages)
        stages.log_failures(_log)
        return [passage.to_node() for passage in passages]

    def postprocessors(self, params: SearchParams) -> list[BaseNodePostprocessor]:
        """Return the stages between ``candidates`` and ``retrieve`` of the same params."""
        params = for_agent(params, self.parts.settings)
        check_search(params)
        rerank = self.parts.rag.rerank_enabled if params.rerank is None else params.rerank
        refiner = Refiner(
            self.parts,
            rerank=rerank,
            threshold=chosen_threshold(params, self.parts.rag),
        )
        return refiner.postprocessors(params.top_k or self.parts.rag.top_k)

    def close(self) -> None:
        """Release threads and library."""
        self.parts.close()

    def _gather(
        self, request: SearchRequest, stages: StageLog, bundle: QueryBundle | None = None
    ) -> tuple[Refiner, list[Passage], str]:
        refiner = Refiner(self.parts, rerank=request.rerank, threshold=request.threshold)
        wanted = refiner.wanted(request.top_k)
        passages, fusion = gather_candidates(
            self.parts, request, stages, wanted=wanted, bundle=bundle
        )
        return refiner, passages, fusion

    def _shape(
        self, passages: Sequence[Passage], words: str, fusion: str, *, explain: bool
    ) -> list[SearchResult]:
        first: dict[Evidence | None, int | None] = {None: None}
        return [
            to_result(
                passage,
                rank,
                query=words,
                fusion=fusion,
                snippet_chars=self.parts.rag.snippet_chars,
                explain=explain,
                evidence_at=first.setdefault(passage.evidence, rank),
            )
            for rank, passage in enumerate(passages, start=1)
        ]

    def _tell_waiting(self, request: SearchRequest) -> Iterator[str]:
        """Say how much of what may answer can be found by meaning, if it is not all."""
        if request.mode == "lexical":
            return
        with self.library.database.read() as connection:
            share = embedded_share(connection, request.restriction)
        if share is not None:
            others = "no others were searched" if request.mode == "vector" else "all by words"
            yield f"by meaning: {math.floor(100 * share)} % of the passages so far; {others}"

    def _warm_up(self, params: SearchParams) -> None:
        dataset = self._only_dataset(params)
        if not self._baseline.is_warm(dataset):
            self.retrieve("warm up", dataset=dataset, mode=params.mode)

    def _only_dataset(self, params: SearchParams) -> str:
        """Return the dataset that is searched; the baseline knows no search over several."""
        dataset = self.library.chosen_datasets(params.dataset)
        if isinstance(dataset, str):
            return dataset
        raise InputError(
            f"v1 searches one dataset: say which of {', '.join(dataset)} to compare on"
        )

    def _compare(
        self,
        params: SearchParams,
        request: SearchRequest,
        results: Sequence[SearchResult],
        elapsed_ms: float,
        stages: StageLog,
    ) -> Comparison:
        """Put the same question to the baseline, as the caller put it where that is possible."""
        filters, doc_ids = params.filters, params.doc_ids
        if params.file_type is not None or params.name is not None:
            filters = request.restriction.filter
        if (params.docs, params.after, params.before) != (None, None, None):
            doc_ids = sorted(request.restriction.scope.ids or ())
        return self._baseline.compare(
            params.query,
            [path for result in results for path in result.paths],
            stages,
            dataset=self._only_dataset(params),
            top_k=request.top_k,
            mode=request.mode,
            filters=filters,
            doc_ids=None if doc_ids is None else list(doc_ids),
            allowed=self._allowed(request),
            v2_ms=elapsed_ms,
        )

    def _allowed(self, request: SearchRequest) -> frozenset[str] | None:
        """Return the paths of the documents that may answer; ``None``: all may."""
        if request.restriction.is_whole_dataset:
            return None
        with self.library.database.read() as connection:
            return allowed_paths(connection, request.restriction)


def _newest_first(passages: Sequence[Passage]) -> list[Passage]:
    """Return the passages by the date of their document, newest first, those without one last."""

    def age(passage: Passage) -> float:
        dated = passage.chunk.dated
        return math.inf if dated is None else -dated

    return sorted(passages, key=age)


def _name_damaged(stages: StageLog) -> Iterator[str]:
    """Name the documents with damaged passages or vectors, which were left out."""
    notes = [one.note for one in stages.reports if (one.name, one.status) == ("read", "failed")]
    yield from (note.partition(": ")[2] for note in notes[:_DAMAGED])
    if len(notes) > _DAMAGED:
        yield f"{len(notes) - _DAMAGED} more documents are damaged: run 'catalog doctor'"
