"""A document's filterable values as rows, with what SQL cannot work out of them everywhere.

Text in folded case and the document's date are stored when a document is published, so that a
listing asks columns and indexes, on any database.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from catalog.core.dates import to_timestamp
from catalog.core.documents import MetadataScalar, MetadataValue
from catalog.core.filters import DATE_FIELDS, comparable_number, value_kind
from catalog.store.checksums import seal_all
from catalog.store.engine_types import change_stamp
from catalog.store.filter_sql import among
from catalog.store.schema import document_fields, documents


def field_rows(fields: Mapping[str, MetadataValue]) -> list[dict[str, Any]]:
    """Return the rows of ``document_fields`` for these values, each value once, no document set."""
    return [
        _field_row(field, value)
        for field, values in fields.items()
        for value in _distinct(values if isinstance(values, tuple) else (values,))
    ]


def folded_text(text: str | None) -> str | None:
    """Return the text in folded case if that differs from it, as ``document_fields`` holds it."""
    folded = None if text is None else text.casefold()
    return None if folded == text else folded


def document_date(rows: Iterable[Mapping[str, Any]], *, has_own: bool) -> float | None:
    """Return a document's date by its rows of :data:`DATE_FIELDS`, or ``None`` without one.

    In seconds from 1970 (UTC). Of several values of a field the latest counts. ``has_own`` says
    that ``modified`` is the document's own; that of its file counts after ``created``.
    """
    latest: dict[str, float] = {}
    for row in rows:
        if row["field"] not in DATE_FIELDS or row["kind"] not in ("s", "n"):
            continue
        value = row["number_value"] if row["text_value"] is None else row["text_value"]
        if (at := to_timestamp(value)) is not None:
            latest[row["field"]] = max(at, latest.get(row["field"], at))
    order = DATE_FIELDS if has_own else reversed(DATE_FIELDS)
    return next((latest[field] for field in order if field in latest), None)


def set_file_dates(
    connection: Connection, dataset: str, dates: Mapping[str, str | None], now: float
) -> None:
    """Date documents that state no ``modified`` by their files (ISO 8601, ``None``: no date).

    ``dates`` are by path. Their revisions, passages and vectors stay.
    """
    field, found = document_fields.c.field, documents.c.path
    dated = document_fields.c.document_id == documents.c.id
    query = (
        select(documents.c.id, found, document_fields.c.text_value)
        .outerjoin(document_fields, dated & (field == "modified"))
        .where(documents.c.dataset == dataset, among(found, dates))
    )
    rows = connection.execute(query).all() if dates else ()
    changed = {number: dates[path] for number, path, date in rows if date != dates[path]}
    for number, date in changed.items():
        of_it = document_fields.c.document_id == number
        connection.execute(delete(document_fields).where(of_it, field == "modified"))
        new = field_rows({} if date is None else {"modified": date})
        if new:
            of_document = [row | {"document_id": number} for row in new]
            connection.execute(insert(document_fields), of_document)
        own = connection.execute(select(document_fields).where(of_it, field.in_(DATE_FIELDS)))
        at = document_date([dict(row) for row in own.mappings()], has_own=False)
        connection.execute(update(documents).where(documents.c.id == number).values(dated=at))
    if changed:
        seal_all(connection, list(changed))
        change_stamp(connection, dataset, now)


def _distinct(values: Iterable[MetadataScalar]) -> Iterable[MetadataScalar]:
    """Leave out repetitions; 1 and True are two values."""
    return {(value_kind(value), value): value for value in values}.values()


def _field_row(field: str, value: MetadataScalar) -> dict[str, Any]:
    kind = value_kind(value)
    text = None if kind == "n" else str(value).lower() if kind == "b" else str(value)
    numeric = comparable_number(value) if kind == "n" and not isinstance(value, str) else None
    if field in DATE_FIELDS and kind == "s":
        numeric = to_timestamp(text)  # what comparisons of dates are made by
    return {
        "field": field,
        "kind": kind,
        "text_value": text,
        "folded": folded_text(text),
        "number_value": numeric,
    }
