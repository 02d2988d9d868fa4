"""Opening the SQL truth and running transactions on it.

Readers never wait (SQLite in WAL mode); one writer at a time takes the write lock when its
transaction begins, so it never fails half-way for want of it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sqlalchemy import Connection, select
from sqlalchemy.engine import URL, make_url

from catalog.core.errors import ConfigError, StoreError
from catalog.core.unusable import describe_os_error
from catalog.store import schema
from catalog.store.connecting import WRITE, Connecting
from catalog.store.failures import translated
from catalog.store.meta import read_meta, set_meta
from catalog.store.migrate import migrate


class Database:
    """The store's connection pool; ``read()`` and ``write()`` are its only doors.

    Opening creates the schema or brings it up to date; several processes may do so at once. A
    store that this user cannot write to, or whose disk is full, can be read.
    Raises :class:`StoreDamagedError`, :class:`StoreVersionError` or :class:`StoreBusyError`, and
    :class:`StoreError` for what can be neither read nor made.
    """

    def __init__(self, url: str | URL) -> None:
        self.url = make_url(url)
        if self.url.get_backend_name() != "sqlite":
            raise ConfigError(f"database {self.url.drivername!r} is not supported yet; use sqlite")
        self.file = _path(self.url)
        self._connecting = Connecting(self.url, self.file)
        self.engine = self._connecting.engine
        self._held = threading.local()
        with translated(self.file):
            migrate(self.engine, lock=Path(f"{self.file}.init-lock"))

    @classmethod
    def at(cls, home: Path) -> Database:
        """The embedded store of an ``IDX_HOME`` folder, made if absent."""
        try:
            home.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            told = describe_os_error(home, error)
            raise StoreError(f"cannot create the store folder {told}") from error
        return cls(URL.create("sqlite", database=str(store_file(home))))

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection that sees one consistent state of the store until it is left."""
        held: Connection | None = getattr(self._held, "connection", None)
        if held is not None:
            with translated(self.file):
                yield held
            return
        self._connecting.follow()
        with translated(self.file), self.engine.connect() as connection, connection.begin():
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
        self._connecting.follow(to_write=True)
        with translated(self.file), self.engine.connect() as connection:
            writing = connection.execution_options(**{WRITE: "wait" if wait else "try"})
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


def _path(url: URL) -> Path:
    """The file a URL names, as a path or as SQLite's own kind of URI (``file:…``)."""
    name = url.database or ":memory:"
    return Path(unquote(urlsplit(name).path) if name.startswith("file:") else name)


def store_file(home: Path) -> Path:
    """The file that is the embedded store of a home."""
    return home / "catalog.db"
