"""Opening the SQL truth and running transactions on it.

Readers never wait (SQLite in WAL mode); one writer at a time takes the write lock when its
transaction begins, so it never fails half-way for want of it.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, select
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DatabaseError, OperationalError

from catalog.core.errors import ConfigError, StoreBusyError, StoreDamagedError, StoreError
from catalog.store import schema
from catalog.store.meta import read_meta, set_meta
from catalog.store.migrate import migrate

BUSY_TIMEOUT_MS = 30_000
_WRITE = "catalog_write"


class Database:
    """The store's connection pool; ``read()`` and ``write()`` are its only doors.

    Opening creates the schema or brings it up to date; several processes may do so at once.
    Raises :class:`StoreDamagedError`, :class:`StoreVersionError` or :class:`StoreBusyError`.
    """

    def __init__(self, url: str | URL) -> None:
        self.url = make_url(url)
        if self.url.get_backend_name() != "sqlite":
            raise ConfigError(f"database {self.url.drivername!r} is not supported yet; use sqlite")
        self.engine = _sqlite_engine(self.url)
        self._held = threading.local()
        with _translated():
            migrate(self.engine, lock=Path(f"{self.url.database}.init-lock"))

    @classmethod
    def at(cls, home: Path) -> Database:
        """The embedded store of an ``IDX_HOME`` folder, made if absent."""
        try:
            home.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot create the store folder {home}: {error.strerror}") from error
        return cls(URL.create("sqlite", database=str(store_file(home))))

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection that sees one consistent state of the store until it is left."""
        held: Connection | None = getattr(self._held, "connection", None)
        if held is not None:
            with _translated():
                yield held
            return
        with _translated(), self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Until it is left, every ``read()`` of this thread sees the state there is now."""
        with self.read() as connection:
            if hasattr(self._held, "connection"):  # within another: that one's state
                yield
                return
            connection.execute(select(schema.meta.c.key).limit(1)).all()  # BEGIN alone is lazy
            self._held.connection = connection
            try:
                yield
            finally:
                del self._held.connection

    @contextmanager
    def write(self, *, wait: bool = True) -> Iterator[Connection]:
        """A transaction holding the write lock; commits on leaving, rolls back on an exception.

        Raises :class:`StoreBusyError` when the lock is not to be had, at once if not to ``wait``.
        """
        with _translated(), self.engine.connect() as connection:
            writing = connection.execution_options(**{_WRITE: "wait" if wait else "try"})
            with writing.begin():
                yield writing

    def close(self) -> None:
        """Close every pooled connection; the object may be used again."""
        self.engine.dispose()

    def meta(self, key: str) -> str | None:
        """One value of the store's own settings, such as its embedding fingerprint."""
        with self.read() as connection:
            return read_meta(connection, key)

    def set_meta(self, key: str, value: str) -> None:
        """Set such a value; raises as :meth:`write` does."""
        with self.write() as connection:
            set_meta(connection, key, value)


def store_file(home: Path) -> Path:
    """The file that is the embedded store of a home."""
    return home / "catalog.db"


def _sqlite_engine(url: URL) -> Engine:
    engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_MS / 1000})

    @event.listens_for(engine, "connect")
    def _prepare(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None  # the begin event below starts transactions
        connection.create_function("casefold", 1, _casefold, deterministic=True)
        for pragma in (
            f"busy_timeout = {BUSY_TIMEOUT_MS}",
            "journal_mode = WAL",
            "synchronous = NORMAL",
            "foreign_keys = ON",
            "temp_store = MEMORY",
            "mmap_size = 67108864",
        ):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        writing = connection.get_execution_options().get(_WRITE)
        if writing is None:
            connection.exec_driver_sql("BEGIN")
            return
        patience = BUSY_TIMEOUT_MS if writing == "wait" else 0
        connection.exec_driver_sql(f"PRAGMA busy_timeout = {patience}")
        try:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        finally:
            connection.exec_driver_sql(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")

    return engine


def _casefold(value: object) -> str | None:
    return value.casefold() if isinstance(value, str) else None


@contextmanager
def _translated() -> Iterator[None]:
    """Turn the driver's errors into ours, so that callers can tell what to do."""
    try:
        yield
    except (OperationalError, sqlite3.OperationalError) as error:
        raise _typed(error) from error
    except (DatabaseError, sqlite3.DatabaseError) as error:
        if isinstance(error, DatabaseError) and not _is_damage(error):
            raise
        raise StoreDamagedError(f"the store cannot be read: {_text(error)}") from error


def _typed(error: Exception) -> StoreError:
    text = _text(error)
    if "locked" in text or "busy" in text:
        return StoreBusyError("another process is writing to the store; try again")
    if _is_damage(error):
        return StoreDamagedError(f"the store cannot be read: {text}")
    if "readonly" in text or "unable to open" in text:
        return StoreError(
            f"the store cannot be written to ({text}): what it must write at this release, and "
            "what it keeps beside, needs its owner to run a command once"
        )
    return StoreError(f"the store failed: {text}")


def _is_damage(error: Exception) -> bool:
    return any(word in _text(error) for word in ("not a database", "malformed", "corrupt"))


def _text(error: Exception) -> str:
    original: Any = getattr(error, "orig", None) or error
    return str(original)
