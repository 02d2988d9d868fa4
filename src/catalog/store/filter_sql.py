"""Filters in SQL: conditions on ``chunks`` rows, with every value bound, never interpolated."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import String, and_, bindparam, false, func, literal, not_, or_, select, true

from catalog.core import filters
from catalog.core.documents import MetadataScalar
from catalog.core.filters import And, Condition, Filter, Not, Op, Or, value_kind
from catalog.store import sql_forms
from catalog.store.schema import chunk_sections, chunks, document_fields, documents
from catalog.store.sql_forms import SHORT, PlainText, casefolded, contains, shortened

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection

    Clause = ColumnElement[bool]

DatasetNames = str | tuple[str, ...]
"""The name of a dataset, or the distinct, ordered names of several that are searched as one."""

_COMPARISONS = {Op.GT: operator.gt, Op.GTE: operator.ge, Op.LT: operator.lt, Op.LTE: operator.le}
_MOST_BOUND = 500  # longer lists are bound as one JSON value: SQLite limits bound parameters


class _Test(NamedTuple):
    """A test of values of one kind: ``holds`` makes a condition from a column.

    With ``folds`` the column is in folded case. With ``is_date`` the values are dates (stored as
    text) and the column has their timestamps.
    """

    kind: str
    holds: Callable[[ColumnElement[Any]], Clause]
    folds: bool = False
    is_date: bool = False


def compile_filter(tree: Filter) -> Clause:
    """Return the filter as a condition on ``chunks``; ``core.filters`` defines its meaning."""
    match tree:
        case And():
            return and_(true(), *map(compile_filter, tree.parts))
        case Or():
            return or_(false(), *map(compile_filter, tree.parts))
        case Not():
            return not_(compile_filter(tree.part))
        case Condition():
            return _condition(tree)


def among(column: ColumnElement[Any], values: Iterable[str] | Iterable[float]) -> Clause:
    """Return ``column IN values``, for any number of values."""
    items: list[str | float] = list(values)
    if len(items) <= _MOST_BOUND:
        return column.in_(items)
    fit, unfit = ([one for one in items if _fits_json(one) is fits] for fits in (True, False))
    is_fit = sql_forms.among_json(column, literal(json.dumps(fit)))
    return or_(is_fit, column.in_(unfit)) if unfit else is_fit  # no index serves an empty list


def among_bound(column: ColumnElement[Any], name: str) -> Clause:
    """Return ``column IN values`` for a prepared statement; bind ``name`` to :func:`as_bound`.

    To build a statement for each call takes longer than most statements run.
    """
    return sql_forms.among_json(column, bindparam(name, type_=String()))


def as_bound(values: Iterable[str] | Iterable[int]) -> str:
    """Return row numbers, or texts without NUL, as the JSON that :func:`among_bound` expects."""
    return json.dumps(list(values))


def of_datasets(column: ColumnElement[str], names: DatasetNames) -> Clause:
    """Return the condition that the column names the dataset, or one of the datasets."""
    return column == names if isinstance(names, str) else column.in_(names)


def text_values(connection: Connection, dataset: str, field: str, part: str) -> list[str]:
    """Return the field's distinct texts in the dataset that contain the part, in any case."""
    fields, is_here = document_fields.c, chunks.c.dataset == dataset
    if field in ("modality", "section"):
        column = chunks.c.modality if field == "modality" else chunk_sections.c.heading
        folded, query = casefolded(column), select(column).where(is_here)
        query = query.join(chunks) if field == "section" else query
    else:
        folded = func.coalesce(fields.folded, fields.text_value)
        query = select(fields.text_value).join(documents).where(documents.c.dataset == dataset)
        query = query.where(fields.field == field, fields.kind == "s")
    return list(connection.scalars(query.where(contains(folded, part.casefold())).distinct()))


def _fits_json(value: str | float) -> bool:
    return "\0" not in value if isinstance(value, str) else math.isfinite(value)


def _condition(condition: Condition) -> Clause:
    items = condition.value if isinstance(condition.value, tuple) else (condition.value,)
    values = tuple(item for item in items if item is not None)
    match condition.op:
        case Op.EQ | Op.CONTAINS | Op.IN | Op.ANY:
            return _some(condition.field, values)
        case Op.NE | Op.NIN:
            return not_(_some(condition.field, values))
        case Op.ALL:
            return and_(true(), *(_some(condition.field, (value,)) for value in values))
        case Op.IS_EMPTY:
            return not_(_exists(condition.field, None))
    if (dates := filters.date_comparison(condition)) is not None:
        test = _Test("s", lambda column: _compare(column, *dates), is_date=True)
    elif not values:
        return false()
    else:
        stored, op = _stored(values[0]), condition.op
        if folds := op is Op.TEXT_MATCH_INSENSITIVE:
            stored = str(stored).casefold()
        test = _Test(value_kind(values[0]), lambda column: _compare(column, op, stored), folds)
    return _exists(condition.field, test)


def _some(field: str, values: Sequence[MetadataScalar]) -> Clause:
    """Require that some value of the field equals one of these."""
    by_kind: dict[str, list[Any]] = {}
    for value in values:
        by_kind.setdefault(value_kind(value), []).append(_stored(value))
    tests = [_Test(kind, _equals(stored)) for kind, stored in by_kind.items()]
    for span in filter(None, (filters.whole_date(field, value) for value in values)):
        is_then: Any = lambda it, at=span: and_(it >= at[0], it < at[1])  # noqa: E731
        tests.append(_Test("s", is_then, is_date=True))
    return or_(false(), *(_exists(field, test) for test in tests))


def _exists(field: str, test: _Test | None) -> Clause:
    """Require that the field has a value, with a test: one that passes it."""
    if field == "modality":
        return _on_column(chunks.c.modality, "s", test)
    if field == "page":
        return and_(chunks.c.page.is_not(None), _on_pages(test))
    if field == "section":
        rows = select(chunk_sections.c.seq)
        return chunks.c.seq.in_(rows.where(_on_column(chunk_sections.c.heading, "s", test)))
    fields = document_fields.c
    rows = select(fields.document_id).where(fields.field == field)
    if test is not None:
        is_number = test.kind == "n" or test.is_date
        column: ColumnElement[Any] = fields.number_value if is_number else fields.text_value
        column = func.coalesce(fields.folded, column) if test.folds else column
        rows = rows.where(fields.kind == test.kind, test.holds(column))
    return chunks.c.document_id.in_(rows)


def _on_column(column: ColumnElement[Any], kind: str, test: _Test | None) -> Clause:
    if test is None:
        return true()
    if test.kind != kind:
        return false()
    return test.holds(casefolded(column) if test.folds else column)


def _on_pages(test: _Test | None) -> Clause:
    """Test the first page of a passage and all later ones."""
    first = _on_column(chunks.c.page, "n", test)
    if test is None or test.kind != "n":
        return first
    breaks = sql_forms.json_items(chunks.c.page_breaks)  # a page begins at each
    later = (
        select(literal(1)).select_from(breaks).where(test.holds(chunks.c.page + breaks.c.key + 1))
    )
    return or_(first, later.correlate(chunks).exists())


def _equals(values: list[Any]) -> Callable[[ColumnElement[Any]], Clause]:
    def holds(column: ColumnElement[Any]) -> Clause:
        if column is not document_fields.c.text_value and column is not chunk_sections.c.heading:
            return among(column, values)
        # the indexes of these columns hold only the beginning of each text
        if all(len(text) < SHORT for text in values):
            return among(shortened(column), values)
        if len(values) > _MOST_BOUND:
            return among(column, values)
        beginnings = [shortened(literal(text, PlainText)) for text in values]
        return and_(shortened(column).in_(beginnings), column.in_(values))

    return holds


def _compare(column: ColumnElement[Any], op: Op, value: str | float) -> Clause:
    if op in (Op.TEXT_MATCH, Op.TEXT_MATCH_INSENSITIVE):
        return contains(column, value)
    compare: Callable[[Any, Any], Clause] = _COMPARISONS.get(op, operator.eq)
    return compare(column, value)


def _stored(value: MetadataScalar) -> str | float:
    if isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, bool) else filters.comparable_number(value)
