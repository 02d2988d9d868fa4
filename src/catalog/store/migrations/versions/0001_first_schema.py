"""The first schema: all tables, SQLite's full-text index kept by triggers, the store's own id.

A store on Postgres has tables of words in its place.
"""

import uuid

from alembic import op

from catalog.store.postgres_schema import create_derived, create_functions
from catalog.store.schema import meta, metadata

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_TABLES = (
    "meta",
    "datasets",
    "documents",
    "revisions",
    "document_fields",
    "chunks",
    "chunk_sections",
    "chunk_windows",
    "embeddings",
    "manifest",
    "outbox",
)

# External content: the text is stored once, in chunks; the triggers keep index and rows one.
_FTS = (
    """CREATE VIRTUAL TABLE chunks_fts USING fts5(
        title, headings, text, content='chunks', content_rowid='seq',
        tokenize="porter unicode61 remove_diacritics 2"
    )""",
    """CREATE TRIGGER chunks_fts_insert AFTER INSERT ON chunks BEGIN
        INSERT INTO chunks_fts(rowid, title, headings, text)
        VALUES (new.seq, new.title, new.headings, new.text);
    END""",
    """CREATE TRIGGER chunks_fts_delete AFTER DELETE ON chunks BEGIN
        INSERT INTO chunks_fts(chunks_fts, rowid, title, headings, text)
        VALUES ('delete', old.seq, old.title, old.headings, old.text);
    END""",
    """CREATE TRIGGER chunks_fts_update AFTER UPDATE OF title, headings, text ON chunks BEGIN
        INSERT INTO chunks_fts(chunks_fts, rowid, title, headings, text)
        VALUES ('delete', old.seq, old.title, old.headings, old.text);
        INSERT INTO chunks_fts(rowid, title, headings, text)
        VALUES (new.seq, new.title, new.headings, new.text);
    END""",
)


def upgrade() -> None:
    connection = op.get_bind()
    is_postgres = connection.dialect.name == "postgresql"
    if is_postgres:
        create_functions(connection)
    metadata.create_all(connection, tables=[metadata.tables[name] for name in _TABLES])
    if is_postgres:
        create_derived(connection)
    for statement in () if is_postgres else _FTS:
        op.execute(statement)
    # Indexes derived from this store carry the id, to know whose they are.
    op.bulk_insert(meta, [{"key": "store_id", "value": uuid.uuid4().hex}])
