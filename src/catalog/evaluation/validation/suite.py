"""Validation suites: questions with the sources they should find, and limits.

A suite is a TOML file, because it has more than a golden set: limits, and sources given by any
filter condition, such as a section or an address. See ``docs/how-to/validate.md``.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from catalog.core.errors import CatalogError, GoldenSetError
from catalog.core.filters import Filter, check_fields, parse_filters
from catalog.core.params import Mode
from catalog.evaluation.golden_files import format_errors
from catalog.store import Database
from catalog.store.chunks import list_fields

QuestionKind = Literal["general", "technical", "short", "ambiguous", "non-existent", "filtered"]
ScoreKind = Literal["relevance", "cosine"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class SuiteLimits(_Frozen):
    """The limits of the criteria; shares and means are from 0 to 1."""

    queries: float = Field(0.9, ge=0, le=1)
    precision: float = Field(0.3, ge=0, le=1)
    recall: float = Field(0.8, ge=0, le=1)
    metadata: float = Field(1.0, ge=0, le=1)
    embedding_p95_ms: float = Field(500.0, gt=0)
    search_p95_ms: float = Field(500.0, gt=0)
    stable: float = Field(1.0, ge=0, le=1)


class SuiteQuery(_Frozen):
    """A question and the sources it should find.

    Each item of ``expected`` is a source in a form of :func:`parse_filters`; some passage of each
    must be found. Passages of ``also`` are right as well, but not required. ``threshold`` is the
    least score of a right passage; passages for a question without an answer should stay below it.
    """

    id: str = Field(min_length=1, max_length=80, pattern=r"^[^\s\x00-\x1f|`]+$")
    kind: QuestionKind
    query: str = Field(min_length=1)
    expected: tuple[Any, ...] = ()
    also: tuple[Any, ...] = ()
    filters: Any = None
    threshold: float | None = Field(None, ge=0, le=1)
    note: str = ""

    @field_validator("expected", "also", mode="before")
    @classmethod
    def _is_list(cls, value: Any) -> Any:
        """Refuse a single text or table, whose parts would be read as sources."""
        if not isinstance(value, list | tuple):
            raise ValueError("must be a list of sources")  # noqa: TRY004 - pydantic wants it
        return value

    @model_validator(mode="after")
    def _is_consistent(self) -> SuiteQuery:
        if not self.query.strip():
            raise ValueError("the query is blank")
        if self.kind == "non-existent" and (self.expected or self.also):
            raise ValueError("a non-existent query must not expect a source")
        if self.kind != "non-existent" and not self.expected:
            raise ValueError("expected has no source: name one, or call the query non-existent")
        if self.kind == "filtered" and not self.filters:
            raise ValueError("a filtered query needs filters")
        for name, conditions in (("expected", self.expected), ("also", self.also)):
            for condition in conditions:
                _require_filter(name, condition)
        _require_filter("filters", self.filters, is_optional=True)
        return self

    @property
    def sources(self) -> tuple[Filter, ...]:
        """Return the condition of each expected source."""
        return tuple(_require_filter("expected", source) for source in self.expected)

    @property
    def right(self) -> tuple[Filter, ...]:
        """Return the conditions of all right passages: the expected ones first."""
        return (*self.sources, *(_require_filter("also", source) for source in self.also))

    @property
    def is_answerable(self) -> bool:
        """Return whether something should be found."""
        return self.kind != "non-existent"


class ValidationSuite(_Frozen):
    """Questions with unique ids, and how they are asked.

    ``top_k`` and ``threshold`` are those of the settings by default. ``score`` is what thresholds
    apply to: the estimated relevance, or the cosine of query and passage.
    """

    name: str = Field(min_length=1, max_length=80)
    top_k: int | None = Field(None, ge=1, le=100)
    repeats: int = Field(3, ge=2, le=100)
    mode: Mode = "hybrid"
    score: ScoreKind = "relevance"
    threshold: float | None = Field(None, ge=0, le=1)
    required_metadata: tuple[str, ...] = ("page_title",)
    limits: SuiteLimits = SuiteLimits()
    query: tuple[SuiteQuery, ...] = ()

    @model_validator(mode="after")
    def _has_queries(self) -> ValidationSuite:
        if not self.query:
            raise ValueError("the suite has no query: begin one with [[query]]")
        counts = Counter(query.id for query in self.query)
        if twice := [name for name, count in counts.items() if count > 1]:
            raise ValueError(f"id {twice[0]!r} occurs twice")
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
        raw = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise GoldenSetError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise GoldenSetError(f"{path} is not UTF-8 text: {error}") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise GoldenSetError(f"{path} is not TOML: {error}") from error
    queries = raw.get("query", [])
    if problems := list(_query_problems(queries)):
        raise GoldenSetError("\n  ".join((f"{path} has {len(problems)} bad queries:", *problems)))
    try:
        return ValidationSuite.model_validate({"name": path.stem, **raw})
    except ValidationError as error:
        raise GoldenSetError(
            f"{path}: {format_errors(error, ValidationSuite.model_fields)}"
        ) from error


def require_fields(suite: ValidationSuite, database: Database, dataset: str) -> None:
    """Raise :class:`GoldenSetError` naming every condition on a field that no document has."""
    with database.read() as connection:
        fields = list_fields(connection, dataset)
    problems = []
    for query in suite.query:
        narrowing = parse_filters(query.filters)
        for tree in (*query.right, *([] if narrowing is None else [narrowing])):
            try:
                check_fields(tree, fields)
            except CatalogError as error:
                problems.append(f"query {query.id}: {error}")
    if problems:
        raise GoldenSetError("\n  ".join((f"the suite does not fit {dataset!r}:", *problems)))


def _query_problems(queries: object) -> Iterator[str]:
    """Yield the errors of each query, by its id, or by its number without one."""
    if not isinstance(queries, list):
        yield "write a query as [[query]]"
        return
    for number, raw in enumerate(queries, start=1):
        try:
            SuiteQuery.model_validate(raw)
        except ValidationError as error:
            name = raw.get("id", number) if isinstance(raw, dict) else number
            yield f"query {name}: {format_errors(error, SuiteQuery.model_fields)}"


def _require_filter(name: str, form: Any, *, is_optional: bool = False) -> Any:
    try:
        tree = parse_filters(form)
    except CatalogError as error:
        raise ValueError(f"{name}: {error}") from error
    if tree is None and not is_optional:
        raise ValueError(f"{name}: a source is empty")
    return tree
