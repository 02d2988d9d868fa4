"""What another embedding model would embed of the passages, beside the live vectors."""

from alembic import op

from catalog.store.schema import tried_models, tried_windows

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in (tried_models, tried_windows):
        table.create(op.get_bind(), checkfirst=True)
