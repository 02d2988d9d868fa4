"""One query's part of a report: both ranked lists, what moved, and what the labels say."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from catalog.core.user_search import RankedHit
from catalog.evaluation.golden import Expected, GoldenQuery
from catalog.evaluation.report_charts import side_of
from catalog.evaluation.report_text import (
    TextPiece,
    excerpt,
    filters_text,
    score,
    shortened,
    signed,
    told,
    word_pattern,
)
from catalog.evaluation.runs import BackendRun, QueryOutcome

SHOWN = 10  # documents of a list
_MOST_LABELS = 20
_MOST_EXPLAINED = 12
_SPAN_CHARS = 160


@dataclass(frozen=True, slots=True)
class Badge:
    """What the labels say of a document: ``kind`` is relevant, wrong or unjudged."""

    kind: str
    text: str
    said: str


@dataclass(frozen=True, slots=True)
class Row:
    """A document in a list, and how it moved between the two: ``way`` is up, down, same or none.

    ``said`` are the words for a ``move`` that the lines do not show.
    """

    rank: int
    folder: str
    name: str
    path: str
    badge: Badge
    way: str
    move: str
    said: str


@dataclass(frozen=True, slots=True)
class MovedRow:
    """A document standing in both lists: its rows, from 0, and which way it went."""

    start: int
    end: int
    way: str
    relevant: bool


@dataclass(frozen=True, slots=True)
class HitRow:
    """The passage that brought its document into the list."""

    rank: int
    path: str
    place: str
    score: str
    badge: Badge
    segments: tuple[TextPiece, ...]
    explain: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """What one search answered: its list, its passages (none in a brief view) or its failure."""

    name: str
    error: str
    rows: tuple[Row, ...]
    hits: tuple[HitRow, ...]


@dataclass(frozen=True, slots=True)
class Label:
    """A relevant document and its rank in both lists, a dash where it is in neither's depth."""

    path: str
    grade: int
    words: str
    baseline: str
    candidate: str
    found: bool


@dataclass(frozen=True, slots=True)
class QueryView:
    """All that a report shows of one query; ``delta`` is empty for an unanswerable one."""

    anchor: str
    id: str
    query: str
    tags: tuple[str, ...]
    note: str
    filters: str
    baseline: str
    candidate: str
    delta: str
    side: str
    left: Column
    right: Column
    lines: tuple[MovedRow, ...]
    labels: tuple[Label, ...]
    unlisted: int

    @property
    def height(self) -> int:
        """Rows of the longer list."""
        return max(len(self.left.rows), len(self.right.rows))


def query_view(
    query: GoldenQuery,
    baseline: BackendRun,
    candidate: BackendRun,
    anchor: str,
    *,
    scores: tuple[float, float] | None = None,
    brief: bool = False,
) -> QueryView:
    """A query's view; ``scores`` are of the deciding metric, ``brief`` leaves out the passages."""
    asked = baseline.outcomes[query.id], candidate.outcomes[query.id]
    before, after = (_ranks(run, query.id) for run in (baseline, candidate))
    grades = {one.path: one.grade for one in query.expected}
    words = None if brief else word_pattern(query.query)
    left = [_row(path, rank, grades, _departure(path, after)) for path, rank in _top(before)]
    right = [_row(path, rank, grades, _arrival(rank, path, before)) for path, rank in _top(after)]
    if any(one.error for one in asked):
        left, right = [_unmoved(row) for row in left], [_unmoved(row) for row in right]
    delta = None if scores is None else scores[1] - scores[0]
    labels = [one for one in query.expected if one.grade > 0]
    return QueryView(
        anchor=anchor,
        id=query.id,
        query=shortened(query.query, 500),
        tags=tuple(filter(None, (query.kind, query.difficulty))),
        note=shortened(query.note, 600),
        filters=filters_text(query.filters),
        baseline="" if scores is None else score(scores[0]),
        candidate="" if scores is None else score(scores[1]),
        delta="" if delta is None else signed(delta),
        side="" if delta is None else side_of(delta),
        left=_column(baseline.name, asked[0], left, words, brief),
        right=_column(candidate.name, asked[1], right, words, brief),
        lines=tuple(_lines(before, after, grades)),
        labels=tuple(_label(one, before, after) for one in labels[:_MOST_LABELS]),
        unlisted=max(0, len(labels) - _MOST_LABELS),
    )


def badge(grade: int | None) -> Badge:
    """The badge of a grade; ``None`` means that nobody judged the document."""
    if grade is None:
        return Badge("unjudged", "?", "not judged")
    if grade == 0:
        return Badge("wrong", "0", "judged: does not answer")
    return Badge("relevant", str(grade), f"judged: answers, grade {grade}")


def _ranks(run: BackendRun, query: str) -> dict[str, int]:
    return {path: rank for rank, path in enumerate(run.documents(query), start=1)}


def _top(ranks: Mapping[str, int]) -> list[tuple[str, int]]:
    return list(ranks.items())[:SHOWN]


def _row(path: str, rank: int, grades: Mapping[str, int], move: tuple[str, str, str]) -> Row:
    folder, slash, name = path.rpartition("/")
    if not name:  # a path that ends in a slash, or is one
        folder, slash, name = "", "", path
    return Row(
        rank, shortened(folder + slash), shortened(name), path, badge(grades.get(path)), *move
    )


def _unmoved(row: Row) -> Row:
    return Row(row.rank, row.folder, row.name, row.path, row.badge, "none", "", "")


def _arrival(rank: int, path: str, before: Mapping[str, int]) -> tuple[str, str, str]:
    """How a document of the candidate's list got there: way, mark, in words."""
    old = before.get(path)
    if old is None:
        return "up", "new", "not found by the baseline"
    if old == rank:
        return "same", "=", ""
    way, sign = ("up", "▲") if old > rank else ("down", "▼")
    unseen = f"rank {old} in the baseline" if old > SHOWN else ""  # else the line shows it
    return way, f"{sign}{abs(old - rank)}", unseen


def _departure(path: str, after: Mapping[str, int]) -> tuple[str, str, str]:
    """What became of a document of the baseline's list, where that is not in sight."""
    new = after.get(path)
    if new is None:
        return "down", "gone", "not found by the candidate"
    if new > SHOWN:
        return "down", f"to {new}", f"rank {new} in the candidate"
    return "none", "", ""


def _lines(
    before: Mapping[str, int], after: Mapping[str, int], grades: Mapping[str, int]
) -> list[MovedRow]:
    """Lines between the first ten of both; those of relevant documents last, to lie on top."""
    lines = []
    for path, new in _top(after):
        old = before.get(path)
        if old is not None and old <= SHOWN:
            way = "same" if old == new else "up" if old > new else "down"
            lines.append(MovedRow(old - 1, new - 1, way, grades.get(path, 0) > 0))
    return sorted(lines, key=lambda line: line.relevant)


def _column(
    name: str,
    asked: QueryOutcome,
    rows: Sequence[Row],
    words: re.Pattern[str] | None,
    brief: bool,
) -> Column:
    answer = asked.answer
    first: dict[str, RankedHit] = {}
    for passage in () if answer is None else answer.hits:
        first.setdefault(passage.path, passage)
    hits = () if brief else tuple(_hit(row, first[row.path], words) for row in rows)
    return Column(name, shortened(asked.error), tuple(rows), hits)


def _hit(row: Row, passage: RankedHit, words: re.Pattern[str] | None) -> HitRow:
    times = "" if passage.times is None else "{:g}–{:g} s".format(*passage.times)
    return HitRow(
        rank=row.rank,
        path=shortened(passage.path),
        place=shortened(", ".join(filter(None, (passage.location, times))), 100),
        score="" if passage.score is None else f"{passage.score:.4g}",
        badge=row.badge,
        segments=excerpt(passage.text, words),
        explain=tuple(shortened(line, 200) for line in passage.explain[:_MOST_EXPLAINED]),
    )


def _label(one: Expected, before: Mapping[str, int], after: Mapping[str, int]) -> Label:
    return Label(
        path=shortened(one.path),
        grade=one.grade,
        words=shortened((one.span and one.span.text) or "", _SPAN_CHARS),
        baseline=told(before.get(one.path)),
        candidate=told(after.get(one.path)),
        found=one.path in before or one.path in after,
    )
