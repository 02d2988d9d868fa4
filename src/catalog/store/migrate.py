"""Bringing a store's schema up to date, safely when several processes open it at once."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Engine, inspect, text

from catalog.core.errors import StoreVersionError
from catalog.store.locks import hold_lock

HEAD = "0012"
KNOWN = frozenset(f"{number:04}" for number in range(1, int(HEAD) + 1))
LOCK_SECONDS = 120


def migrate(engine: Engine, *, lock: Path) -> None:
    """Upgrade the schema to :data:`HEAD`; a store already there costs one query.

    Raises :class:`StoreVersionError` for a schema this release does not know, and
    :class:`StoreBusyError` when another process keeps migrating for too long, or what
    :func:`hold_lock` raises.
    """
    if _version(engine) == HEAD:
        return
    busy = "another process is still preparing the store; try again"
    with hold_lock(lock, seconds=LOCK_SECONDS, busy=busy):
        if _version(engine) != HEAD:
            _upgrade(engine)


def _version(engine: Engine) -> str | None:
    with engine.connect() as connection:
        if not inspect(connection).has_table("alembic_version"):
            return None
        version: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    if version is not None and version not in KNOWN:
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
