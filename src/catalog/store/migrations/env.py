"""Alembic's entry: runs the migrations on the connection ``catalog.store.database`` gives."""

from alembic import context

from catalog.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
