"""What a listing asks of every document, stored: its date, and its fields in folded case."""

import json

from alembic import op
from sqlalchemy import Column, Connection, Float, Text, inspect, text

from catalog.store.field_rows import document_date, folded_text
from catalog.store.schema import document_fields, documents

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_BATCH = 200  # documents in memory
_ADDED = (("documents", "dated", Float), ("document_fields", "folded", Text))
_INDEXES = {
    documents: ("documents_type", "documents_name", "documents_dated"),
    document_fields: ("document_fields_of", "document_fields_texts"),
}
_REPLACED = ("document_fields_document", "document_fields_text")
_DOCUMENTS = text("SELECT id, metadata FROM documents WHERE id > :after ORDER BY id LIMIT :most")
_FIELDS = text(
    """SELECT rowid AS number, document_id, field, kind, text_value, number_value
    FROM document_fields WHERE document_id BETWEEN :first AND :last"""
)
_DATE = text("UPDATE documents SET dated = :dated WHERE id = :id")
_FOLD = text("UPDATE document_fields SET folded = :folded WHERE rowid = :number")


def upgrade() -> None:
    connection = op.get_bind()
    for table, name, kind in _ADDED:
        # A new store has them already: the first migration makes the tables as they are today.
        if name not in {column["name"] for column in inspect(connection).get_columns(table)}:
            op.add_column(table, Column(name, kind()))
    after = 0
    while found := connection.execute(_DOCUMENTS, {"after": after, "most": _BATCH}).all():
        _fill(connection, {row.id: row.metadata for row in found})
        after = found[-1].id
    for index in _REPLACED:
        op.execute(f"DROP INDEX IF EXISTS {index}")
    for owner, names in _INDEXES.items():
        for made in owner.indexes:
            if made.name in names:
                made.create(connection, checkfirst=True)


def _fill(connection: Connection, metadata: dict[int, str]) -> None:
    bounds = {"first": min(metadata), "last": max(metadata)}
    rows = connection.execute(_FIELDS, bounds).mappings().all()
    own: dict[int, list[object]] = {}
    for row in rows:
        own.setdefault(row["document_id"], []).append(row)
    dates = [
        {"id": id_, "dated": document_date(own.get(id_, ()), has_own=_has_modified(told))}
        for id_, told in metadata.items()
    ]
    connection.execute(_DATE, dates)
    folded = [
        {"number": row["number"], "folded": form}
        for row in rows
        if (form := folded_text(row["text_value"])) is not None
    ]
    if folded:
        connection.execute(_FOLD, folded)


def _has_modified(metadata: str) -> bool:
    try:
        told = json.loads(metadata)
    except ValueError:
        return False
    return isinstance(told, dict) and "modified" in told
