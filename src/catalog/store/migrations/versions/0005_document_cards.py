"""Cards of documents: what each is about, and full text over title, name, headings and that."""

from alembic import op

from catalog.store.postgres_schema import create_cards_index
from catalog.store.schema import document_cards

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

# What a card's row is made of stands in other tables or nowhere: the index keeps its own copy.
# Deleting a card, by whatever way, takes its row along.
_FTS = (
    """CREATE VIRTUAL TABLE IF NOT EXISTS document_cards_fts USING fts5(
        title, name, headings, summary, metadata,
        tokenize="porter unicode61 remove_diacritics 2"
    )""",
    """CREATE TRIGGER IF NOT EXISTS document_cards_fts_delete AFTER DELETE ON document_cards BEGIN
        DELETE FROM document_cards_fts WHERE rowid = old.document_id;
    END""",
)


def upgrade() -> None:
    document_cards.create(op.get_bind(), checkfirst=True)
    if op.get_bind().dialect.name == "postgresql":
        create_cards_index(op.get_bind())
        return
    for statement in _FTS:
        op.execute(statement)
