"""Where a passage stands in its file, and the headings that it holds.

Passages of older releases have neither until the next update of their dataset.
"""

from alembic import op
from sqlalchemy import Column, Text, inspect

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A new store has them already: the first migration makes the tables as they are today.
    present = {column["name"] for column in inspect(op.get_bind()).get_columns("chunks")}
    for name in ("sections", "places"):
        if name not in present:
            op.add_column("chunks", Column(name, Text()))
