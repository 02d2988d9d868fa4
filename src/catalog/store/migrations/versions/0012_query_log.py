"""What was asked, and how that went."""

from alembic import op

from catalog.store.schema import query_log

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    query_log.create(op.get_bind(), checkfirst=True)
