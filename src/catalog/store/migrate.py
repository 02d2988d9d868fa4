"""Bringing a store's schema up to date, safely when several processes open it at once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from sqlalchemy import Engine, inspect, text

from catalog.core.errors import StoreVersionError

HEAD = "1"
LOCK_SECONDS = 120
PREPARING = "another process is still preparing the store; try again"


def migrate(engine: Engine, *, hold_lock: Callable[[], AbstractContextManager[None]]) -> None:
    """Bring the schema to :data:`HEAD`; a store already there costs one query.

    ``hold_lock`` keeps others from doing so. Raises :class:`StoreVersionError` for a schema this
    release does not know, and what ``hold_lock`` raises, such as :class:`StoreBusyError` when
    another process keeps migrating for too long.
    """
    if _version(engine) == HEAD:
        return
    with hold_lock():
        if _version(engine) != HEAD:
            _upgrade(engine)


def _version(engine: Engine) -> str | None:
    with engine.connect() as connection:
        if not inspect(connection).has_table("alembic_version"):
            return None
        version: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    if version not in (None, HEAD):
        raise StoreVersionError(f"the store has schema {version}; this release knows up to {HEAD}")
    return version


def _upgrade(engine: Engine) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
    config.set_main_option("path_separator", "os")
    with engine.connect() as connection, connection.begin():
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
