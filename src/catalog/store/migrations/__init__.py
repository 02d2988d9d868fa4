"""Alembic's environment for the embedded store."""
