"""The cache of what language models and rerankers answered."""

from alembic import op

from catalog.store.schema import llm_cache

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    llm_cache.create(op.get_bind())
