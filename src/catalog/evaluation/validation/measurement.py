"""The measurements of a suite as data: passages and whether they are right, times, failures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from catalog.evaluation.validation.suite import ScoreKind, SuiteQuery, ValidationSuite


@dataclass(frozen=True, slots=True)
class ShownPassage:
    """A passage of an answer, and the suite's judgement.

    ``sources`` are positions in the query's ``sources``. ``is_right`` if it comes from one of
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
    passages: tuple[ShownPassage, ...] = ()
    available: int = 0
    absent: tuple[int, ...] = ()
    embedding_ms: tuple[float, ...] = ()
    search_ms: tuple[float, ...] = ()
    whole_ms: tuple[float, ...] = ()
    is_stable: bool = True
    by_depth: Mapping[int, tuple[tuple[ShownPassage, ...], float]] | None = None
    unfiltered: tuple[ShownPassage, ...] = ()
    failures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def recall(self, passages: tuple[ShownPassage, ...]) -> float:
        """Return the share of expected sources with one of the passages, 0 to 1."""
        found = frozenset[int]().union(*(passage.sources for passage in passages))
        return len(found) / len(self.query.sources)

    @staticmethod
    def precision(passages: tuple[ShownPassage, ...]) -> float:
        """Return the share of right passages, 0 to 1; 0 without passages."""
        return sum(one.is_right for one in passages) / len(passages) if passages else 0.0


@dataclass(frozen=True, slots=True)
class EmbeddingTimes:
    """Median milliseconds for a query embedded alone, in a batch of ``count``, or from the cache.

    ``None`` if nothing is embedded.
    """

    count: int
    alone: float | None = None
    batched: float | None = None
    cached: float | None = None


@dataclass(frozen=True, slots=True)
class SuiteRun:
    """A suite with all its measurements of a dataset.

    ``about`` describes the search: model, engine, settings. ``incomplete`` counts documents without
    a required field, by field.
    """

    suite: ValidationSuite
    dataset: str
    top_k: int
    documents: int
    about: Mapping[str, str]
    measurements: tuple[QueryMeasurement, ...]
    embedding: EmbeddingTimes
    incomplete: Mapping[str, int]

    @property
    def answerable(self) -> tuple[QueryMeasurement, ...]:
        """Return the measurements of queries that should find something."""
        return tuple(one for one in self.measurements if one.query.is_answerable)

    @property
    def unanswerable(self) -> tuple[QueryMeasurement, ...]:
        """Return the measurements of queries that should find nothing."""
        return tuple(one for one in self.measurements if not one.query.is_answerable)
