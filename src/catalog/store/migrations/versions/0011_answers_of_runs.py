"""What was answered to the questions of a run that asked for answers."""

from alembic import op
from sqlalchemy import Column, LargeBinary, inspect

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A store made since has it already: its first migrations make the tables as they are today.
    present = {column["name"] for column in inspect(op.get_bind()).get_columns("eval_runs")}
    if "answers" not in present:
        op.add_column("eval_runs", Column("answers", LargeBinary()))
