"""Evaluation runs."""

from alembic import op

from catalog.store.schema import eval_runs

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    eval_runs.create(op.get_bind())
