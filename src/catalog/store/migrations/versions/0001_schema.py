"""The schema: all tables, SQLite's full-text indexes with their triggers, the store's own id.

A store in Postgres has tables of words instead of full-text indexes.
"""

import uuid

from alembic import op

from catalog.store.postgres_words import create_cards_index, create_derived, create_functions
from catalog.store.schema import meta, metadata

revision = "2"
down_revision = None
branch_labels = None
depends_on = None

# External content: the text is stored once, in chunks; triggers keep the index equal to the rows.
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


# The texts of a card are in several tables or in none: this index stores its own copy.
# A trigger removes the row with its card, whatever deletes the card.
_CARDS_FTS = (
    """CREATE VIRTUAL TABLE document_cards_fts USING fts5(
        title, name, headings, summary, metadata,
        tokenize="porter unicode61 remove_diacritics 2"
    )""",
    """CREATE TRIGGER document_cards_fts_delete AFTER DELETE ON document_cards BEGIN
        DELETE FROM document_cards_fts WHERE rowid = old.document_id;
    END""",
)


def upgrade() -> None:
    connection = op.get_bind()
    is_postgres = connection.dialect.name == "postgresql"
    if is_postgres:
        create_functions(connection)
    metadata.create_all(connection)
    if is_postgres:
        create_derived(connection)
        create_cards_index(connection)
    for statement in () if is_postgres else (*_FTS, *_CARDS_FTS):
        op.execute(statement)
    # Derived indexes record this id, so that they are not used for another store.
    op.bulk_insert(meta, [{"key": "store_id", "value": uuid.uuid4().hex}])
