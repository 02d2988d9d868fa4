"""The measurements of a suite as data: passages, whether they are right, times, failures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from catalog.evaluation.validation.suite import ScoreKind, SuiteQuery, ValidationSuite


@dataclass(frozen=True, slots=True)
class ShownPassage:
    """A passage of an answer, and how the suite judges it.

    ``sources`` are places in the query's ``sources``; ``is_right``: of one of these, or of what
    may come as well. ``is_outside``: its query's filters forbid it. ``problems`` are of its
    metadata. ``relevance`` and ``cosine`` are ``None`` where the search does not tell.
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
        """Return the score that thresholds are of."""
        return self.relevance if kind == "relevance" else self.cosine


@dataclass(frozen=True, slots=True)
class QueryMeasurement:
    """One query of a suite, asked again and again.

    ``passages`` are those of the suite's ``top_k`` with the settings as they are; ``by_depth``
    those of other depths with the milliseconds that took, and ``unfiltered`` the deepest list
    without any threshold. ``available`` counts the right passages that there are, ``absent`` are
    places of sources that no passage is of. Milliseconds are one for each repetition.
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
        """Return the share of expected sources that some of the passages are of, 0 to 1."""
        found = frozenset[int]().union(*(passage.sources for passage in passages))
        return len(found) / len(self.query.sources)

    @staticmethod
    def precision(passages: tuple[ShownPassage, ...]) -> float:
        """Return the share of the passages that are right, 0 to 1; 0 of none."""
        return sum(one.is_right for one in passages) / len(passages) if passages else 0.0


@dataclass(frozen=True, slots=True)
class EmbeddingTimes:
    """Median milliseconds for one query: embedded alone, in a batch of ``count``, from the cache.

    ``None`` where nothing is embedded.
    """

    count: int
    alone: float | None = None
    batched: float | None = None
    cached: float | None = None


@dataclass(frozen=True, slots=True)
class SuiteRun:
    """A suite, and all that was measured of a dataset by it.

    ``about`` names the search: model, engine, settings. ``incomplete`` counts documents without
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
        """Return the measurements of queries that nothing answers."""
        return tuple(one for one in self.measurements if not one.query.is_answerable)
