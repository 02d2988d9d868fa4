"""Putting a suite's questions to a search: what comes, how long it takes, whether it stays so."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from catalog.core.errors import CatalogError
from catalog.evaluation.validation.dataset_sources import DatasetSources
from catalog.evaluation.validation.measurement import (
    EmbeddingTimes,
    QueryMeasurement,
    ShownPassage,
    SuiteRun,
)
from catalog.evaluation.validation.suite import SuiteQuery, ValidationSuite, require_fields
from catalog.ingest.sync_report import Progress, Silent
from catalog.store.chunks import list_paths

if TYPE_CHECKING:
    from catalog.core.results import SearchResults
    from catalog.retrieval.searcher import Searcher

DEPTHS = (1, 3, 5, 10, 20)
_FRESH = {"query_cache_size": 0, "cache_ttl_seconds": 0}  # else what was asked would be remembered
_UNCUT = {"similarity_threshold": 0.0, "token_budget": 0}
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class _Answer:
    results: SearchResults
    embedding_ms: float

    @property
    def signature(self) -> tuple[tuple[str, float], ...]:
        return tuple((result.chunk_id, result.score) for result in self.results)

    @property
    def search_ms(self) -> float:
        return max(0.0, self.results.elapsed_ms - self.embedding_ms)


class SuiteRunner:
    """Put the questions of one suite to one service. Nothing is asked of a cache unless meant."""

    def __init__(
        self,
        service: Searcher,
        suite: ValidationSuite,
        dataset: str,
        *,
        clock: Clock = time.perf_counter,
    ) -> None:
        self._service, self._suite, self._dataset, self._clock = service, suite, dataset, clock
        self._top_k = suite.top_k or service.parts.rag.top_k
        database = service.library.database
        require_fields(suite, database, dataset)
        self._sources = DatasetSources(database, dataset, suite.required_metadata)

    def run(self, progress: Progress | None = None) -> SuiteRun:
        """Ask everything; a question that fails is measured as failed, and the rest goes on."""
        progress = progress or Silent()
        self._warm_up()
        progress.start(len(self._suite.query))
        measurements = []
        for query in self._suite.query:
            measurements.append(self._measure(query))
            progress.advance(1, "asking")
        library = self._service.library
        with library.database.read() as connection:
            documents = len(list_paths(connection, self._dataset))
        return SuiteRun(
            suite=self._suite,
            dataset=self._dataset,
            top_k=self._top_k,
            documents=documents,
            about=self._about(),
            measurements=tuple(measurements),
            embedding=self._time_embedding(measurements),
            incomplete=self._sources.count_incomplete(),
        )

    def _warm_up(self) -> None:
        """Load models and indexes, which the first question would else be timed with."""
        service = self._service.with_settings(_FRESH)
        service.search("warm up", dataset=self._dataset, top_k=1, mode=self._suite.mode)

    def _measure(self, query: SuiteQuery) -> QueryMeasurement:
        low = self._service.parts.rag.low_confidence_below
        suite_threshold = low if self._suite.threshold is None else self._suite.threshold
        threshold = suite_threshold if query.threshold is None else query.threshold
        try:
            return self._ask_often(query, threshold)
        except CatalogError as error:
            failure = f"{type(error).__name__}: {error}"
            return QueryMeasurement(query, threshold, is_stable=False, failures=(failure,))

    def _ask_often(self, query: SuiteQuery, threshold: float) -> QueryMeasurement:
        """Ask each repetition twice: with the query to embed, and with its vector at hand."""
        cold: list[_Answer] = []
        warm: list[_Answer] = []
        for _ in range(self._suite.repeats):
            service = self._service.with_settings(_FRESH)  # which remembers one vector
            cold.append(self._ask(service, query, self._top_k))
            warm.append(self._ask(service, query, self._top_k))
        by_depth = {}
        for depth in DEPTHS:
            answer = self._ask(service, query, depth)
            by_depth[depth] = self._judge(query, answer), answer.search_ms
        uncut = self._ask(service.with_settings(_UNCUT), query, max(DEPTHS))
        first = cold[0]
        return QueryMeasurement(
            query,
            threshold,
            passages=self._judge(query, first),
            available=len(self._sources.right(query)) if query.is_answerable else 0,
            absent=self._sources.absent(query),
            embedding_ms=tuple(answer.embedding_ms for answer in cold),
            search_ms=tuple(answer.search_ms for answer in warm),
            whole_ms=tuple(answer.results.elapsed_ms for answer in cold),
            is_stable=len({answer.signature for answer in (*cold, *warm)}) == 1,
            by_depth=by_depth,
            unfiltered=self._judge(query, uncut),
            failures=tuple(_failures(first.results)),
            notes=first.results.notes,
        )

    def _ask(self, service: Searcher, query: SuiteQuery, top_k: int) -> _Answer:
        vectors = service.parts.query_vectors
        before = vectors.model_ms
        results = service.search(
            query.query,
            dataset=self._dataset,
            top_k=top_k,
            mode=self._suite.mode,
            filters=query.filters,
            explain=True,
        )
        return _Answer(results, vectors.model_ms - before)

    def _judge(self, query: SuiteQuery, answer: _Answer) -> tuple[ShownPassage, ...]:
        return tuple(self._sources.judge(result, query) for result in answer.results)

    def _time_embedding(self, measurements: Sequence[QueryMeasurement]) -> EmbeddingTimes:
        """Time what embeds the queries: one by one, all at once, and from the cache."""
        texts = list(dict.fromkeys(query.query for query in self._suite.query))
        alone = [median(one.embedding_ms) for one in measurements if one.embedding_ms]
        if self._suite.mode == "lexical" or not alone:
            return EmbeddingTimes(len(texts))
        parts = self._service.with_settings(_FRESH).parts
        model, batched, cached = parts.model, [], []
        for _ in range(self._suite.repeats):
            started = self._clock()
            model.embed([model.query_prefix + text for text in texts])
            batched.append((self._clock() - started) * 1000 / len(texts))
            for text in texts:
                parts.query_vectors.embed(text)
                started = self._clock()
                parts.query_vectors.embed(text)
                cached.append((self._clock() - started) * 1000)
        return EmbeddingTimes(len(texts), median(alone), median(batched), median(cached))

    def _about(self) -> dict[str, str]:
        parts = self._service.parts
        settings, rag = parts.settings, parts.rag
        model = parts.library.wanted_model.model
        is_served = rag.vector_engine == "qdrant" and rag.qdrant_url
        vectors = "Qdrant server" if is_served else rag.vector_engine
        engines = (
            "" if self._suite.mode == "vector" else rag.lexical_engine,
            "" if self._suite.mode == "lexical" else vectors,
        )
        return {
            "preset": settings.preset or "none",
            "mode": self._suite.mode,
            "embedding model": f"{model} ({settings.embedding.provider})",
            "engines": ", ".join(filter(None, engines)),
            "fusion": rag.fusion_mode,
            "reranker": rag.rerank_model if rag.rerank_enabled else "none",
            "similarity_threshold": f"{rag.similarity_threshold:g}",
            "low_confidence_below": f"{rag.low_confidence_below:g}",
        }


def _failures(results: SearchResults) -> Iterator[str]:
    """Yield the stages that failed: what the rest answered may hide it."""
    for stage in results.stages:
        if stage.status == "failed":
            yield f"stage {stage.name} failed: {stage.note}"
