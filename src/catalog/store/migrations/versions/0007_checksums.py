"""Checksums of what answers are made of, and what a dataset's derived indexes are held against.

Rows of older releases have none until the next update of their dataset.
"""

from alembic import op
from sqlalchemy import Column, Integer, String, inspect

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_ADDED = (
    ("datasets", "state", String),
    ("datasets", "checksum", Integer),
    ("documents", "checksum", String),
    ("revisions", "checksum", Integer),
    ("chunks", "checksum", Integer),
    ("embeddings", "checksum", Integer),
    ("document_cards", "checksum", Integer),
    ("manifest", "checksum", Integer),
    ("llm_cache", "checksum", Integer),
)


def upgrade() -> None:
    for table, name, kind in _ADDED:
        # A new store has them already: the first migration makes the tables as they are today.
        if name not in {column["name"] for column in inspect(op.get_bind()).get_columns(table)}:
            op.add_column(table, Column(name, kind()))
