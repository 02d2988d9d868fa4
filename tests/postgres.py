"""A Postgres server for the tests, and stores on it in place of files.

It comes in a package (``pgserver``) and runs as long as the tests do; where the package is absent
or cannot run, tests of Postgres are skipped, and say so.
"""

import importlib.util
import shutil
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.engine import URL, make_url

from catalog.core.ids import sha1_hex
from catalog.store.database import Database

_TEMPLATE = "one_schema"
_FAST = ("fsync", "full_page_writes", "synchronous_commit")


@dataclass
class Stores:
    """Stores on the server, one for each folder that would hold a file."""

    admin: Engine
    url: URL
    server: Any
    opened: list[Database] = field(default_factory=list)
    made: dict[str, URL] = field(default_factory=dict)

    def new_url(self, name: str | None = None, *, empty: bool = True) -> URL:
        """The address of a new database, without a store in it unless not ``empty``."""
        name = name or f"t{uuid.uuid4().hex}"
        template = "template0" if empty else _TEMPLATE
        self.run(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
        self.made[name] = self.url.set(database=name)
        return self.made[name]

    def open(self, home: Path) -> Database:
        """The store of a home, made if absent."""
        name = f"t{sha1_hex(str(home))}"
        is_new = name not in self.made
        database = Database(self.made.get(name) or self.new_url(name, empty=False), home)
        self.opened.append(database)
        if is_new:
            database.set_meta("store_id", uuid.uuid4().hex)
        return database

    def drop(self, names: set[str], opened: list[Database]) -> None:
        """Close stores and remove databases."""
        for database in opened:
            database.close()
            self.opened.remove(database)
        for name in names:
            del self.made[name]
            self.run(f"DROP DATABASE {name} WITH (FORCE)")

    def run(self, statement: str) -> None:
        """Run a statement as the server's owner."""
        with self.admin.connect() as connection:
            connection.exec_driver_sql(statement)


@cache
def _start() -> Stores:
    """Start the server; a test is skipped where it cannot run."""
    if importlib.util.find_spec("pgserver") is None:
        pytest.skip("NO POSTGRES: the package pgserver is not installed")
    folder = tempfile.mkdtemp(prefix="catalog-postgres-")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pgserver

            server = pgserver.get_server(folder, cleanup_mode="delete")
    except Exception as error:  # noqa: BLE001 - whatever it is, there is no server
        shutil.rmtree(folder, ignore_errors=True)
        pytest.skip(f"NO POSTGRES: pgserver cannot run here: {error!r}")
    url = make_url(server.get_uri()).set(drivername="postgresql+psycopg")
    admin = create_engine(url, isolation_level="AUTOCOMMIT", pool_size=1, pool_pre_ping=True)
    with admin.connect() as connection:
        for setting in _FAST:
            connection.exec_driver_sql(f"ALTER SYSTEM SET {setting} = off")
        connection.exec_driver_sql("SELECT pg_reload_conf()")
        connection.exec_driver_sql(f"CREATE DATABASE {_TEMPLATE}")
    Database(url.set(database=_TEMPLATE), Path(folder)).close()
    return Stores(admin, url.set(drivername="postgresql"), server)


def stores() -> Stores:
    """The stores of the one server of this process."""
    return _start()


def stop() -> None:
    """Stop the server, if it was started."""
    if _start.cache_info().currsize:
        on_server = _start()
        on_server.admin.dispose()
        on_server.server.cleanup()
        _start.cache_clear()


@contextmanager
def in_place_of_files() -> Iterator[Stores]:
    """Have every home's store be on the server while inside."""
    on_server = stores()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Database, "at", on_server.open)
        with removed_after(on_server):
            yield on_server


@contextmanager
def removed_after(on_server: Stores) -> Iterator[None]:
    """Remove the stores that were made inside."""
    made, opened = set(on_server.made), list(on_server.opened)
    try:
        yield
    finally:
        new = [one for one in on_server.opened if not any(one is old for old in opened)]
        on_server.drop(set(on_server.made) - made, new)
