"""Validation suites: questions, the sources they should find, and limits; and how to ask them.

A suite is a TOML file, because it has more than a golden set: limits, and sources given by any
filter condition, such as a section or an address. See ``docs/how-to/validate.md``.
"""

from __future__ import annotations

import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError, model_validator

from catalog.core.errors import CatalogError, GoldenSetError, StoreDamagedError
from catalog.core.filters import Op, check_fields, condition, parse_filters
from catalog.core.params import Mode
from catalog.core.results import SearchResult, SearchResults
from catalog.evaluation.golden import ClosedModel
from catalog.evaluation.golden_files import describe_problem, read_lines
from catalog.ingest.readers.metadata import is_web_address
from catalog.ingest.sync_report import Progress, Silent
from catalog.store.chunks import StoredDocument, find_by_path, list_fields, list_paths
from catalog.store.restriction import Restriction, allowed_paths, allowed_seqs, read_chunk_ids

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from catalog.retrieval.search import Searcher

ScoreKind = Literal["relevance", "cosine"]
PATTERNS = (
    *("failed", "empty", "absent", "irrelevant", "incomplete", "low confidence", "unwarranted"),
    *("outside filters", "no score"),
)
DEPTHS = (1, 3, 5, 10, 20)
_FRESH = {"query_cache_size": 0, "cache_ttl_seconds": 0}  # no caches of earlier answers
_UNCUT = {"similarity_threshold": 0.0, "token_budget": 0}


def _is_condition(form: Any) -> Any:
    try:
        tree = parse_filters(form)
    except CatalogError as error:
        raise ValueError(str(error)) from error
    if tree is None:
        raise ValueError("it is empty")
    return form


Condition = Annotated[Any, AfterValidator(_is_condition)]
Share = Annotated[float, Field(ge=0, le=1)]


class SuiteLimits(ClosedModel):
    """The limits of the criteria; shares and means are from 0 to 1."""

    queries: Share = 0.9
    precision: Share = 0.3
    recall: Share = 0.8
    metadata: Share = 1.0
    embedding_p95_ms: float = Field(500.0, gt=0)
    search_p95_ms: float = Field(500.0, gt=0)
    stable: Share = 1.0


class SuiteQuery(ClosedModel):
    """A question and the sources it should find, each in a form of :func:`parse_filters`.

    Some passage of each of ``expected`` must be found. Passages of ``also`` are right as well, but
    not required. ``threshold`` is the least score of a right passage; passages for a question
    without an answer should stay below it.
    """

    id: str = Field(min_length=1, max_length=80, pattern=r"^[^\s\x00-\x1f|`]+$")
    kind: Literal["general", "technical", "short", "ambiguous", "non-existent", "filtered"]
    query: str = Field(min_length=1, pattern=r"\S")
    expected: tuple[Condition, ...] = ()
    also: tuple[Condition, ...] = ()
    filters: Condition = None
    threshold: Share | None = None
    note: str = ""

    @model_validator(mode="after")
    def _is_consistent(self) -> SuiteQuery:
        if not self.is_answerable and (self.expected or self.also):
            raise ValueError("a non-existent query must not expect a source")
        if self.is_answerable and not self.expected:
            raise ValueError("expected has no source: name one, or call the query non-existent")
        if self.kind == "filtered" and not self.filters:
            raise ValueError("a filtered query needs filters")
        return self

    @property
    def is_answerable(self) -> bool:
        """Return whether something should be found."""
        return self.kind != "non-existent"


class ValidationSuite(ClosedModel):
    """Questions with unique ids, and how they are asked.

    ``top_k`` and ``threshold`` are those of the settings by default. ``score`` is what thresholds
    apply to: the estimated relevance, or the cosine of query and passage.
    """

    name: str = Field(min_length=1, max_length=80)
    top_k: int | None = Field(None, ge=1, le=100)
    repeats: int = Field(3, ge=2, le=100)
    mode: Mode = "hybrid"
    score: ScoreKind = "relevance"
    threshold: Share | None = None
    required_metadata: tuple[str, ...] = ("page_title",)
    limits: SuiteLimits = SuiteLimits()
    query: tuple[SuiteQuery, ...] = ()

    @model_validator(mode="after")
    def _is_consistent(self) -> ValidationSuite:
        if not self.query:
            raise ValueError("the suite has no query: begin one with [[query]]")
        name, count = Counter(query.id for query in self.query).most_common(1)[0]
        if count > 1:
            raise ValueError(f"id {name!r} occurs twice")
        if self.mode == "lexical" and self.score == "cosine":
            raise ValueError("a lexical search has no cosine: set score to relevance")
        if self.score == "cosine" and self.threshold is None:
            raise ValueError(
                "each model has other cosines: set a threshold (R-02 of the report recommends one)"
            )
        return self


def read_suite(path: Path) -> ValidationSuite:
    """Read a suite; raise :class:`GoldenSetError` that names every wrong value and its query."""
    try:
        raw = tomllib.loads("\n".join(read_lines(path)))
        return ValidationSuite.model_validate({"name": path.stem, **raw})
    except ValidationError as error:
        raise GoldenSetError("\n  ".join((f"{path}:", *_problems(error, raw)))) from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise GoldenSetError(f"{path} is not TOML: {error}") from error


def _problems(error: ValidationError, raw: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each wrong value, with its query's id, or its number without one."""
    for detail in error.errors(include_url=False):
        match detail["loc"]:
            case "query", int(at), *place:
                row = raw["query"][at]
                name = row.get("id", at + 1) if isinstance(row, dict) else at + 1
                problem = describe_problem(detail, tuple(place), SuiteQuery.model_fields)
                yield f"query {name}: {problem}"
            case place:
                yield describe_problem(detail, place, ValidationSuite.model_fields)


@dataclass(frozen=True, slots=True)
class ShownPassage:
    """A passage of an answer, and the suite's judgement.

    ``sources`` are positions in the query's ``expected``. ``is_right`` if it comes from one of
    these, or from another permitted source. ``is_outside`` if the query's filters forbid it.
    ``problems`` are those of its metadata. ``relevance`` and ``cosine`` are ``None`` if the search
    does not report them.
    """

    rank: int
    chunk_id: str
    path: str
    citation: str
    score: float
    relevance: float | None
    cosine: float | None
    sources: frozenset[int] = frozenset()
    is_right: bool = False
    is_outside: bool = False
    problems: tuple[str, ...] = ()

    def strength(self, kind: ScoreKind) -> float | None:
        """Return the score that thresholds apply to."""
        return self.relevance if kind == "relevance" else self.cosine


Passages = Sequence[ShownPassage]


@dataclass(frozen=True, slots=True)
class QueryMeasurement:
    """One query of a suite, asked repeatedly.

    ``passages`` are the first ``top_k`` under the present settings. ``by_depth`` has those of other
    depths with their milliseconds, ``unfiltered`` the deepest list without a threshold.
    ``available`` counts all right passages; ``absent`` are positions of sources without any
    passage. Milliseconds are one for each repetition.
    """

    query: SuiteQuery
    threshold: float
    passages: Passages = ()
    available: int = 0
    absent: tuple[int, ...] = ()
    embedding_ms: tuple[float, ...] = ()
    search_ms: tuple[float, ...] = ()
    whole_ms: tuple[float, ...] = ()
    is_stable: bool = True
    by_depth: Mapping[int, tuple[Passages, float]] | None = None
    unfiltered: Passages = ()
    failures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def recall(self, passages: Passages) -> float:
        """Return the share of expected sources with one of the passages, 0 to 1."""
        found = frozenset[int]().union(*(passage.sources for passage in passages))
        return len(found) / len(self.query.expected)

    @staticmethod
    def precision(passages: Passages) -> float:
        """Return the share of right passages, 0 to 1; 0 without passages."""
        return sum(one.is_right for one in passages) / len(passages) if passages else 0.0

    def patterns(self, score: ScoreKind) -> Iterator[str]:
        """Yield the ways in which the question failed, of :data:`PATTERNS`."""
        if self.failures:
            yield "failed"
        if any(passage.is_outside for passage in self.passages):
            yield "outside filters"
        right = [passage for passage in self.passages if passage.is_right]
        counted = right if self.query.is_answerable else self.passages
        strengths = [one.strength(score) for one in counted]
        best = max((one for one in strengths if one is not None), default=None)
        if not self.query.is_answerable:
            if best is not None and best >= self.threshold:
                yield "unwarranted"
            elif best is None and strengths:
                yield "no score"
            return
        if self.absent:
            yield "absent"
        if not self.passages:
            if not self.failures:
                yield "empty"
        elif not right:
            yield "irrelevant"
        else:
            found = frozenset(self.absent).union(*(passage.sources for passage in right))
            if len(found) < len(self.query.expected):
                yield "incomplete"
            if best is not None and best < self.threshold:
                yield "low confidence"


@dataclass(frozen=True, slots=True)
class SuiteRun:
    """A suite with all its measurements of a dataset.

    ``about`` describes the search: model, engine, settings. ``embedding`` has the median
    milliseconds for a query embedded ``alone``, ``batched`` with all, or ``cached``; it is empty if
    nothing is embedded. ``incomplete`` counts documents without a required field, by field.
    """

    suite: ValidationSuite
    dataset: str
    top_k: int
    documents: int
    about: Mapping[str, str]
    measurements: tuple[QueryMeasurement, ...]
    embedding: Mapping[str, float]
    incomplete: Mapping[str, int]

    @property
    def answerable(self) -> list[QueryMeasurement]:
        """Return the measurements of queries that should find something."""
        return [one for one in self.measurements if one.query.is_answerable]


def run_suite(
    service: Searcher, suite: ValidationSuite, dataset: str, progress: Progress | None = None
) -> SuiteRun:
    """Ask everything; a question that fails is recorded as failed, and the rest continues.

    Caches are off except to time them. Raises :class:`GoldenSetError` for a condition on a field
    that no document has, before anything is asked.
    """
    progress, asker = progress or Silent(), _Asker(service, suite, dataset)
    asker.ask(service.with_settings(_FRESH), "warm up", 1)  # models and indexes are not timed
    progress.start(len(suite.query))
    measurements = []
    for query in suite.query:
        measurements.append(asker.measure(query))
        progress.advance(1, "asking")
    with service.library.database.read() as connection:
        documents = len(list_paths(connection, dataset))
        incomplete = {
            name: len(
                allowed_paths(
                    connection, Restriction(dataset, filter=condition(name, Op.IS_EMPTY, None))
                )
            )
            for name in suite.required_metadata
        }
    return SuiteRun(
        suite=suite,
        dataset=dataset,
        top_k=asker.top_k,
        documents=documents,
        about=_about(service, suite),
        measurements=tuple(measurements),
        embedding=_time_embedding(service, suite, measurements),
        incomplete=incomplete,
    )


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Ids of passages: those of each expected source, the right ones, and the allowed ones."""

    sources: tuple[frozenset[str], ...]
    right: frozenset[str]
    allowed: frozenset[str] | None

    @classmethod
    def of(cls, connection: Connection, dataset: str, query: SuiteQuery) -> _Wanted:
        def find(form: Any) -> frozenset[str]:
            restriction = Restriction(dataset, filter=parse_filters(form))
            seqs = allowed_seqs(connection, restriction)
            rows = [] if seqs is None else [int(seq) for seq in seqs]
            return frozenset(read_chunk_ids(connection, dataset, rows).values())

        sources = tuple(map(find, query.expected))
        right = frozenset[str]().union(*sources, *map(find, query.also))
        allowed = find(query.filters) if query.filters else None
        return cls(sources, right if allowed is None else right & allowed, allowed)


class _Asker:
    """Puts questions of one suite to one service, and judges the passages of the answers."""

    def __init__(self, service: Searcher, suite: ValidationSuite, dataset: str) -> None:
        self._service, self._suite, self._dataset = service, suite, dataset
        self._database = service.library.database
        self.top_k = suite.top_k or service.parts.rag.top_k
        self._documents: dict[str, StoredDocument | None] = {}
        with self._database.read() as connection:
            fields = list_fields(connection, dataset)
            if problems := list(_unknown_fields(suite, fields)):
                problems.insert(0, f"the suite does not fit {dataset!r}:")
                raise GoldenSetError("\n  ".join(problems))
            self._wanted = {one.id: _Wanted.of(connection, dataset, one) for one in suite.query}

    def ask(
        self, service: Searcher, query: str, top_k: int, filters: Any = None
    ) -> tuple[SearchResults, float, float]:
        """Return the results, and the milliseconds to embed the query and for the rest."""
        vectors = service.parts.query_vectors
        before = vectors.model_ms
        results = service.search(
            query,
            dataset=self._dataset,
            top_k=top_k,
            mode=self._suite.mode,
            filters=filters,
            explain=True,
        )
        embedding = vectors.model_ms - before
        return results, embedding, max(0.0, results.elapsed_ms - embedding)

    def measure(self, query: SuiteQuery) -> QueryMeasurement:
        """Ask a question as often as the suite says."""
        defaults = self._suite.threshold, self._service.parts.rag.low_confidence_below
        threshold = next(one for one in (query.threshold, *defaults) if one is not None)
        try:
            return self._ask_often(query, threshold)
        except CatalogError as error:
            failure = f"{type(error).__name__}: {error}"
            return QueryMeasurement(query, threshold, is_stable=False, failures=(failure,))

    def _ask_often(self, query: SuiteQuery, threshold: float) -> QueryMeasurement:
        """Ask twice in each repetition: once embedding the query, once with its vector given."""
        cold, warm = [], []
        for _ in range(self._suite.repeats):
            service = self._service.with_settings(_FRESH)  # with one cached vector
            cold.append(self.ask(service, query.query, self.top_k, query.filters))
            warm.append(self.ask(service, query.query, self.top_k, query.filters))
        by_depth = {}
        for depth in DEPTHS:
            results, _, ms = self.ask(service, query.query, depth, query.filters)
            by_depth[depth] = self._judge(query, results), ms
        uncut = service.with_settings(_UNCUT)
        unfiltered, *_ = self.ask(uncut, query.query, max(DEPTHS), query.filters)
        first, wanted = cold[0][0], self._wanted[query.id]
        signatures = {
            tuple((one.chunk_id, one.score) for one in results) for results, *_ in (*cold, *warm)
        }
        return QueryMeasurement(
            query,
            threshold,
            passages=self._judge(query, first),
            available=len(wanted.right),
            absent=tuple(n for n, ids in enumerate(wanted.sources) if not ids & wanted.right),
            embedding_ms=tuple(embedding for _, embedding, _ in cold),
            search_ms=tuple(rest for *_, rest in warm),
            whole_ms=tuple(results.elapsed_ms for results, *_ in cold),
            is_stable=len(signatures) == 1,
            by_depth=by_depth,
            unfiltered=self._judge(query, unfiltered),
            failures=tuple(  # a good answer from the rest may hide them
                f"stage {stage.name} failed: {stage.note}"
                for stage in first.stages
                if stage.status == "failed"
            ),
            notes=first.notes,
        )

    def _judge(self, query: SuiteQuery, results: SearchResults) -> tuple[ShownPassage, ...]:
        """Judge passages for the query; the copies of one count as well."""
        wanted, shown = self._wanted[query.id], []
        for result in results:
            group = {result.chunk_id, *(other.chunk_id for other in result.also_in)}
            parts = result.explain.contributions if result.explain else ()
            cosines = [part.raw_score for part in parts if part.leg == "vector"]
            passage = ShownPassage(
                rank=result.rank,
                chunk_id=result.chunk_id,
                path=result.path,
                citation=result.citation.removeprefix("[source: ").removesuffix("]"),
                score=result.score,
                relevance=result.relevance,
                cosine=max(cosines, default=None),
                sources=frozenset(n for n, ids in enumerate(wanted.sources) if group & ids),
                is_right=bool(group & wanted.right),
                is_outside=wanted.allowed is not None and result.chunk_id not in wanted.allowed,
                problems=tuple(self._problems(result)),
            )
            shown.append(passage)
        return tuple(shown)

    def _problems(self, result: SearchResult) -> Iterator[str]:
        """Yield what in a passage's metadata fails to lead back to its source."""
        if result.path not in self._documents:
            try:
                with self._database.read() as connection:
                    found = find_by_path(connection, self._dataset, result.path)
            except StoreDamagedError:
                found = None
            self._documents[result.path] = found
        document = self._documents[result.path]
        if document is None:
            yield "its document is not in the store, or is damaged"
            return
        if document.text[result.start_offset : result.end_offset] != result.text:
            yield "its text differs from the stored document at its place"
        if not result.docid or not document.content_hash.startswith(result.docid):
            yield "its docid is another revision's"
        own = {"section": result.sections, "page": result.locator.page}
        for name in self._suite.required_metadata:
            value = own[name] if name in own else document.metadata.get(name)
            if value is None and name not in own:
                value = document.title if name == "page_title" else getattr(result, name, None)
            texts = value if isinstance(value, tuple | list) else () if value is None else (value,)
            if not any(str(text).strip() for text in texts):
                yield f"no {name}"
            elif name == "source_url" and not all(map(is_web_address, texts)):
                yield "its source_url is not a web address"


def _unknown_fields(suite: ValidationSuite, fields: set[str]) -> Iterator[str]:
    for query in suite.query:
        for form in (*query.expected, *query.also, query.filters):
            try:
                if (tree := parse_filters(form)) is not None:
                    check_fields(tree, fields)
            except CatalogError as error:
                yield f"query {query.id}: {error}"


def _time_embedding(
    service: Searcher, suite: ValidationSuite, measurements: Sequence[QueryMeasurement]
) -> dict[str, float]:
    """Time the embedding of queries: one by one, all at once, and from the cache."""
    alone = [median(one.embedding_ms) for one in measurements if one.embedding_ms]
    if suite.mode == "lexical" or not alone:
        return {}
    texts = list(dict.fromkeys(query.query for query in suite.query))
    vectors = service.with_settings(_FRESH).parts.query_vectors
    model, batched, cached = vectors.model, [], []
    for _ in range(suite.repeats):
        started = time.perf_counter()
        model.embed([model.query_prefix + text for text in texts])
        batched.append((time.perf_counter() - started) * 1000 / len(texts))
        for text in texts:
            vectors.embed(text)
            started = time.perf_counter()
            vectors.embed(text)
            cached.append((time.perf_counter() - started) * 1000)
    return {"alone": median(alone), "batched": median(batched), "cached": median(cached)}


def _about(service: Searcher, suite: ValidationSuite) -> dict[str, str]:
    settings, rag = service.parts.settings, service.parts.rag
    is_served = rag.vector_engine == "qdrant" and rag.qdrant_url
    vectors = "Qdrant server" if is_served else rag.vector_engine
    engines = {"lexical": rag.lexical_engine, "vector": vectors}
    used = [engine for mode, engine in engines.items() if suite.mode in (mode, "hybrid")]
    model = service.library.wanted_model.model
    return {
        "preset": settings.preset or "none",
        "mode": suite.mode,
        "embedding model": f"{model} ({settings.embedding.provider})",
        "engines": ", ".join(used),
        "fusion": rag.fusion_mode,
        "reranker": rag.rerank_model if rag.rerank_enabled else "none",
        "similarity_threshold": f"{rag.similarity_threshold:g}",
        "low_confidence_below": f"{rag.low_confidence_below:g}",
    }
