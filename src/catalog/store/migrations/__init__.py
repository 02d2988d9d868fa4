"""The Alembic environment of the store."""
