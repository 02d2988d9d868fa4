"""An index of the vectors without a checksum: each update asked all of them."""

from alembic import op

from catalog.store.schema import embeddings

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    [index] = [one for one in embeddings.indexes if one.name == "embeddings_unsealed"]
    index.create(op.get_bind(), checkfirst=True)
