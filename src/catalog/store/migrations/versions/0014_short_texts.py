"""Indexes of texts of any length: in Postgres they hold the beginning of each."""

from alembic import op

from catalog.store.schema import chunk_sections, document_fields

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_NAMES = ("document_fields_texts", "chunk_sections_heading")


def upgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name != "postgresql":
        return  # SQLite's indexes are the same as before
    for table in (document_fields, chunk_sections):
        for index in table.indexes:
            if index.name in _NAMES:
                index.drop(connection, checkfirst=True)
                index.create(connection)
