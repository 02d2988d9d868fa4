"""Put a suite's questions to a search: results, times, and whether both are stable."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from catalog.core.documents import MetadataValue
from catalog.core.errors import CatalogError, StoreDamagedError
from catalog.core.filters import Filter, Op, condition, parse_filters
from catalog.core.results import SearchResult
from catalog.evaluation.validation.measurement import (
    EmbeddingTimes,
    QueryMeasurement,
    ShownPassage,
    SuiteRun,
)
from catalog.evaluation.validation.suite import SuiteQuery, ValidationSuite, require_fields
from catalog.ingest.readers.metadata import is_web_address
from catalog.ingest.sync_report import Progress, Silent
from catalog.store import Database
from catalog.store.chunks import StoredDocument, find_by_path, list_paths
from catalog.store.restriction import Restriction, allowed_paths, allowed_seqs, read_chunk_ids

if TYPE_CHECKING:
    from catalog.core.results import SearchResults
    from catalog.retrieval.search import Searcher


class DatasetSources:
    """The passages of one dataset by the conditions of queries; each condition is read once."""

    def __init__(self, database: Database, dataset: str, required: Collection[str]) -> None:
        self._database, self._dataset, self._required = database, dataset, required
        self._chunks: dict[str, frozenset[str]] = {}
        self._documents: dict[str, StoredDocument | None] = {}

    def chunk_ids(self, tree: Filter) -> frozenset[str]:
        """Return the ids of the passages that meet a condition."""
        key = repr(tree)
        if key not in self._chunks:
            with self._database.read() as connection:
                seqs = allowed_seqs(connection, Restriction(self._dataset, filter=tree))
                rows = [] if seqs is None else [int(seq) for seq in seqs]
                ids = read_chunk_ids(connection, self._dataset, rows)
            self._chunks[key] = frozenset(ids.values())
        return self._chunks[key]

    def allowed(self, query: SuiteQuery) -> frozenset[str] | None:
        """Return the passages that a query's filters allow, ``None`` for all."""
        tree = parse_filters(query.filters)
        return None if tree is None else self.chunk_ids(tree)

    def right(self, query: SuiteQuery) -> frozenset[str]:
        """Return the passages that are right for a query, within its filters."""
        ids = frozenset[str]().union(*(self.chunk_ids(tree) for tree in query.right))
        allowed = self.allowed(query)
        return ids if allowed is None else ids & allowed

    def absent(self, query: SuiteQuery) -> tuple[int, ...]:
        """Return the positions of expected sources without a passage within the filters."""
        right = self.right(query)
        return tuple(
            place for place, tree in enumerate(query.sources) if not self.chunk_ids(tree) & right
        )

    def judge(self, result: SearchResult, query: SuiteQuery) -> ShownPassage:
        """Judge a passage for the query; its copies count as well."""
        allowed, chunk_id = self.allowed(query), result.chunk_id
        group = {chunk_id, *(other.chunk_id for other in result.also_in)}
        parts = result.explain.contributions if result.explain else ()
        cosines = [part.raw_score for part in parts if part.leg == "vector"]
        return ShownPassage(
            rank=result.rank,
            chunk_id=chunk_id,
            path=result.path,
            citation=result.citation.removeprefix("[source: ").removesuffix("]"),
            score=result.score,
            relevance=result.relevance,
            cosine=max(cosines, default=None),
            sources=frozenset(
                place
                for place, tree in enumerate(query.sources)
                if not group.isdisjoint(self.chunk_ids(tree))
            ),
            is_right=not group.isdisjoint(self.right(query)),
            is_outside=allowed is not None and chunk_id not in allowed,
            problems=tuple(self._problems(result)),
        )

    def count_incomplete(self) -> dict[str, int]:
        """Count the documents that lack a required field in some passage, by field."""
        counts = {}
        with self._database.read() as connection:
            for name in self._required:
                tree = condition(name, Op.IS_EMPTY, None)
                lacking = allowed_paths(connection, Restriction(self._dataset, filter=tree))
                counts[name] = len(lacking)
        return counts

    def _problems(self, result: SearchResult) -> Iterator[str]:
        """Yield what in a passage's metadata fails to lead back to its source."""
        document = self._document(result.path)
        if document is None:
            yield "its document is not in the store, or is damaged"
            return
        if document.text[result.start_offset : result.end_offset] != result.text:
            yield "its text differs from the stored document at its place"
        if not result.docid or not document.content_hash.startswith(result.docid):
            yield "its docid is another revision's"
        for name in self._required:
            yield from _field_problems(name, _value_of(name, result, document))

    def _document(self, path: str) -> StoredDocument | None:
        if path not in self._documents:
            try:
                with self._database.read() as connection:
                    self._documents[path] = find_by_path(connection, self._dataset, path)
            except StoreDamagedError:
                self._documents[path] = None
        return self._documents[path]


def _value_of(name: str, result: SearchResult, document: StoredDocument) -> MetadataValue | None:
    """Return the values of a passage under a name that filters know."""
    if name == "section":
        return result.sections
    if name == "page":
        return result.locator.page
    value = document.metadata.get(name)
    if value is None and name == "page_title":
        return document.title
    return getattr(result, name, None) if value is None else value


def _field_problems(name: str, value: MetadataValue | None) -> Iterator[str]:
    texts = value if isinstance(value, tuple | list) else () if value is None else (value,)
    if not any(str(text).strip() for text in texts):
        yield f"no {name}"
    elif name == "source_url" and not all(map(is_web_address, texts)):
        yield "its source_url is not a web address"


DEPTHS = (1, 3, 5, 10, 20)
_FRESH = {"query_cache_size": 0, "cache_ttl_seconds": 0}  # no caches of earlier answers
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
    """Put the questions of one suite to one service, without caches except to time them."""

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
        """Ask everything; a question that fails is recorded as failed, and the rest continues."""
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
        """Load models and indexes, so that the first question is not timed with them."""
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
        """Ask twice in each repetition: once embedding the query, once with its vector given."""
        cold: list[_Answer] = []
        warm: list[_Answer] = []
        for _ in range(self._suite.repeats):
            service = self._service.with_settings(_FRESH)  # with one cached vector
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
        """Time the embedding of queries: one by one, all at once, and from the cache."""
        texts = list(dict.fromkeys(query.query for query in self._suite.query))
        alone = [median(one.embedding_ms) for one in measurements if one.embedding_ms]
        if self._suite.mode == "lexical" or not alone:
            return EmbeddingTimes(len(texts))
        parts = self._service.with_settings(_FRESH).parts
        model, batched, cached = parts.query_vectors.model, [], []
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
    """Yield failed stages, which a good answer from the rest may hide."""
    for stage in results.stages:
        if stage.status == "failed":
            yield f"stage {stage.name} failed: {stage.note}"
