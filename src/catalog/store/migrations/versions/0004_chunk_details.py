"""What a chunk knows of its inside: its size, its timed parts, its page breaks."""

from alembic import op
from sqlalchemy import Column, Integer, Text, inspect

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_ADDED = {"tokens": Integer, "cues": Text, "page_breaks": Text}


def upgrade() -> None:
    # A new store has them already: the first migration makes the tables as they are today.
    present = {column["name"] for column in inspect(op.get_bind()).get_columns("chunks")}
    for name, kind in _ADDED.items():
        if name not in present:
            op.add_column("chunks", Column(name, kind()))
