"""Golden queries: questions with labelled answers, and checking them.

One JSON object a line: ``id, query, difficulty, kind, expected [{path, grade, span?}], filters?,
note?``. See ``golden_queries/README.md``.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from catalog.core.errors import CatalogError, GoldenSetError
from catalog.core.filters import parse_filters

Difficulty = Literal["easy", "medium", "hard", "fusion"]
Kind = Literal["semantic", "exact", "metadata", "temporal", "filtered", "unanswerable"]
DIFFICULTIES: tuple[Difficulty, ...] = get_args(Difficulty)
KINDS: tuple[Kind, ...] = get_args(Kind)
MAX_GRADE = 10


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Span(_Frozen):
    """Where in the document the answer stands: its words, or a range.

    Offsets are characters of the document's text, ``end`` exclusive; lines count from 1,
    inclusive; times are seconds.
    """

    text: str | None = Field(None, min_length=1)
    start: int | None = Field(None, ge=0)
    end: int | None = Field(None, ge=1)
    line_start: int | None = Field(None, ge=1)
    line_end: int | None = Field(None, ge=1)
    time_start: float | None = Field(None, ge=0)
    time_end: float | None = Field(None, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _from_short_form(cls, value: Any) -> Any:
        """A bare text is the words; a pair of whole numbers is ``[start, end]``."""
        if isinstance(value, str):
            return {"text": value}
        if isinstance(value, list) and len(value) == 2:
            return {"start": value[0], "end": value[1]}
        return value

    @model_validator(mode="after")
    def _is_a_place(self) -> Span:
        pairs = [
            (self.start, self.end),
            (self.line_start, self.line_end),
            (self.time_start, self.time_end),
        ]
        if self.text is None and all(pair == (None, None) for pair in pairs):
            raise ValueError("a span needs text, start and end, lines or times")
        for low, high in pairs:
            if (low is None) != (high is None) or (low is not None and high < low):  # type: ignore[operator]
                raise ValueError("a span's range needs both ends, in order")
        return self


class Expected(_Frozen):
    """One judged document: grade 0 says it was looked at and does not answer."""

    path: str = Field(min_length=1)
    grade: int = Field(1, ge=0, le=MAX_GRADE)
    span: Span | None = None


class GoldenQuery(_Frozen):
    """A question with its judged documents."""

    id: str = Field(min_length=1, pattern=r"^[^\s\x1c-\x1f]+$")  # a column of TREC run files
    query: str = Field(min_length=1)
    difficulty: Difficulty | None = None
    kind: Kind | None = None
    expected: tuple[Expected, ...] = ()
    filters: Any = None
    note: str = ""

    @model_validator(mode="after")
    def _is_consistent(self) -> GoldenQuery:
        if not self.query.strip():
            raise ValueError("the query is blank")
        twice = [p for p, n in Counter(one.path for one in self.expected).items() if n > 1]
        if twice:
            raise ValueError(f"{twice[0]!r} is judged twice")
        if self.kind == "unanswerable" and self.relevant:
            raise ValueError("an unanswerable query expects no document above grade 0")
        if self.kind not in (None, "unanswerable") and not self.relevant:
            raise ValueError("no document above grade 0: label one, or call it unanswerable")
        if self.kind == "filtered" and not self.filters:
            raise ValueError("a filtered query needs filters")
        if self.filters is not None:
            try:
                parse_filters(self.filters)
            except CatalogError as error:
                raise ValueError(f"filters: {error}") from error
        return self

    @property
    def relevant(self) -> dict[str, int]:
        """Grades above 0, by path."""
        return {one.path: one.grade for one in self.expected if one.grade > 0}

    @property
    def is_answerable(self) -> bool:
        """Whether some document answers it."""
        return bool(self.relevant)


@dataclass(frozen=True)
class GoldenSet:
    """Queries with unique ids, in the order they were written."""

    name: str
    queries: tuple[GoldenQuery, ...]

    def __len__(self) -> int:
        return len(self.queries)

    def __iter__(self) -> Iterator[GoldenQuery]:
        return iter(self.queries)

    @property
    def answerable(self) -> tuple[GoldenQuery, ...]:
        """The queries that metrics are computed over."""
        return tuple(query for query in self.queries if query.is_answerable)

    @property
    def unanswerable(self) -> tuple[GoldenQuery, ...]:
        """The queries that no document answers."""
        return tuple(query for query in self.queries if not query.is_answerable)

    @property
    def digest(self) -> str:
        """A hash of every query and label, whatever their order; hexadecimal."""
        lines = "\n".join(sorted(query.model_dump_json() for query in self.queries))
        return hashlib.sha256(lines.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong in a golden file, and where (line numbers count from 1)."""

    line: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


def read_golden(path: Path) -> GoldenSet:
    """The set in a JSON Lines file; raises :class:`GoldenSetError` naming every bad line."""
    queries, problems = parse_golden(read_lines(path))
    if problems:
        shown = "\n  ".join(map(str, problems[:20]))
        more = f"\n  and {len(problems) - 20} more" if len(problems) > 20 else ""
        raise GoldenSetError(f"{path} has {len(problems)} bad lines:\n  {shown}{more}")
    if not queries:
        raise GoldenSetError(f"{path} holds no query")
    return GoldenSet(path.stem, tuple(queries))


def parse_golden(lines: Iterable[str]) -> tuple[list[GoldenQuery], list[Problem]]:
    """The queries that can be read, and a problem for each line that cannot; blanks are passed."""
    queries: list[GoldenQuery] = []
    problems: list[Problem] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            query = GoldenQuery.model_validate(json.loads(line))
        except ValidationError as error:
            problems.append(Problem(number, _told(error)))
        except (ValueError, RecursionError) as error:
            problems.append(Problem(number, f"not JSON: {error}"))
        else:
            if query.id in seen:
                problems.append(Problem(number, f"id {query.id!r} stands in line {seen[query.id]}"))
            seen.setdefault(query.id, number)
            queries.append(query)
    return queries, problems


def read_lines(path: Path) -> list[str]:
    """The lines of a JSON Lines file; raises :class:`GoldenSetError` when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8-sig").split("\n")  # not U+2028, as JSON allows it
    except OSError as error:
        raise GoldenSetError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise GoldenSetError(f"{path} is not UTF-8 text: {error}") from error


def _told(error: ValidationError) -> str:
    parts = []
    for one in error.errors(include_url=False):
        place = ".".join(map(str, one["loc"]))
        message = one["msg"].removeprefix("Value error, ")
        parts.append(f"{place}: {message}" if place else message)
    return "; ".join(parts)
