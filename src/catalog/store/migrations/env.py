"""Alembic's entry: run the migrations on the connection of ``catalog.store.database``."""

from alembic import context

from catalog.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
