"""What each dataset was made with; the next update of one that is there already notes it."""

from alembic import op

from catalog.store.schema import dataset_settings

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    dataset_settings.create(op.get_bind(), checkfirst=True)
