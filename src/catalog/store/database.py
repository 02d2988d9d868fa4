"""Opening the SQL truth, running transactions on it, and its small settings by key.

SQLite in WAL mode writes beside the store even to read it. Where it cannot, for want of rights or
room, and no log of another process lies there, the file is read as it is (``immutable``, see
https://sqlite.org/uri.html). SQLite watches no such file for changes, so that is done here.

Readers never wait (SQLite in WAL mode); one writer at a time takes the write lock when its
transaction begins, so it never fails half-way for want of it.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from sqlalchemy import (
    Connection,
    Engine,
    bindparam,
    create_engine,
    delete,
    event,
    insert,
    select,
    update,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from catalog.core.errors import ConfigError, NoStoreError, StoreDamagedError, StoreError
from catalog.core.os_errors import describe_os_error
from catalog.core.private_files import make_folder, make_private
from catalog.core.settings import Settings
from catalog.store import schema
from catalog.store.migrate import migrate
from catalog.store.schema import meta
from catalog.store.sql_errors import is_unwritable, translate_errors

INDEX_TOKENS = "vectors:"  # the keys under which stands what vector indexes are held against


_VALUE = select(meta.c.value).where(meta.c.key == bindparam("key"))


def read_meta(connection: Connection, key: str) -> str | None:
    """Return the value of a key, if it has one."""
    value: str | None = connection.scalar(_VALUE, {"key": key})
    return value


def set_meta(connection: Connection, key: str, value: str, *, replace: bool = True) -> None:
    """Set a key; one that has a value keeps it unless ``replace``."""
    present = read_meta(connection, key) is not None
    if present and replace:
        connection.execute(update(meta).where(meta.c.key == key).values(value=value))
    elif not present:
        connection.execute(insert(meta).values(key=key, value=value))


def forget_indexes(connection: Connection) -> None:
    """Have every vector index filled anew before it is used again."""
    connection.execute(delete(meta).where(meta.c.key.startswith(INDEX_TOKENS)))


BUSY_TIMEOUT_MS = 30_000
WRITE = "catalog_write"  # execution option of a connection: to "wait" for the lock, or "try"

_PRAGMAS = (
    f"busy_timeout = {BUSY_TIMEOUT_MS}",
    "foreign_keys = ON",
    "temp_store = MEMORY",
    "mmap_size = 0",  # a mapped file that another truncates ends the process (SIGBUS)
)
_WRITER_PRAGMAS = ("journal_mode = WAL", "synchronous = NORMAL")
_State = tuple[int, ...]


class ConnectionPool:
    """Hold the pool of one store's connections."""

    def __init__(self, url: URL, file: Path) -> None:
        self._file = file
        self._frozen_state: _State | None = None
        self._identity: _State | None = None
        timeout = {"timeout": BUSY_TIMEOUT_MS / 1000}
        self.engine: Engine = create_engine(url, connect_args=timeout)
        event.listen(self.engine, "do_connect", self._connect)
        event.listen(self.engine, "begin", _begin)

    def follow(self, *, to_write: bool = False) -> None:
        """Drop connections that read the file as it was, if it changed or shall be written to."""
        if self._frozen_state is not None and (to_write or self._state() != self._frozen_state):
            self._frozen_state = None
            self.engine.dispose()

    def find_replacement(self) -> bool:
        """Tell whether the path leads to another file than :meth:`note_identity` saw.

        Where no file is, what is held open stays the store.
        """
        identity = self._read_identity()
        return None not in (identity, self._identity) and identity != self._identity

    def note_identity(self) -> None:
        """Note which file the connections are to."""
        self._identity = self._read_identity()

    def _read_identity(self) -> _State | None:
        try:
            stat = os.stat(self._file)  # noqa: PTH116 - at each read, and faster than Path's
        except OSError:
            return None
        return stat.st_dev, stat.st_ino

    def _connect(
        self, dialect: object, record: object, arguments: list[Any], options: dict[str, Any]
    ) -> sqlite3.Connection:
        del dialect, record  # SQLAlchemy gives them
        is_new = not self._file.exists()
        try:
            connection = _connect(arguments, options, _WRITER_PRAGMAS)
        except sqlite3.OperationalError as error:
            if not is_unwritable(error, self._file) or not self._is_whole():
                raise
        else:
            if is_new:  # SQLite gives files that it makes later the same rights
                make_private(*(Path(f"{self._file}{ending}") for ending in ("", "-wal", "-shm")))
            return connection
        self._frozen_state = self._state()
        unchanging = f"{self._file.absolute().as_uri()}?mode=ro&immutable=1"
        return _connect([unchanging], options | {"uri": True}, ())

    def _is_whole(self) -> bool:
        """Tell whether the file holds all: what is in a log beside it would be missed."""
        try:
            return self._file.stat().st_size > 0 and self._log_size() == 0
        except OSError:
            return False

    def _state(self) -> _State:
        """Return what differs once another process writes."""
        try:
            stat = self._file.stat()
            return stat.st_ino, stat.st_size, stat.st_mtime_ns, self._log_size()
        except OSError:
            return ()

    def _log_size(self) -> int:
        try:
            return Path(f"{self._file}-wal").stat().st_size
        except FileNotFoundError:
            return 0


def _connect(
    arguments: list[Any], options: dict[str, Any], more: tuple[str, ...]
) -> sqlite3.Connection:
    connection: sqlite3.Connection = sqlite3.connect(*arguments, **options)
    try:
        connection.isolation_level = None  # the begin event starts transactions
        connection.create_function("casefold", 1, _casefold, deterministic=True)
        for pragma in (*_PRAGMAS, *more):
            connection.execute(f"PRAGMA {pragma}")
    except BaseException:
        connection.close()
        raise
    return connection


def _casefold(value: object) -> str | None:
    return value.casefold() if isinstance(value, str) else None


def _begin(connection: Connection) -> None:
    writing = connection.get_execution_options().get(WRITE)
    if writing is None:  # past SQLAlchemy's cursor, which takes longer than most reads
        connection.connection.cursor().execute("BEGIN")
        return
    timeout = BUSY_TIMEOUT_MS if writing == "wait" else 0
    connection.exec_driver_sql(f"PRAGMA busy_timeout = {timeout}")
    try:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    finally:
        connection.exec_driver_sql(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")


class Database:
    """The store's connection pool; ``read()`` and ``write()`` are its only doors.

    Opening creates the schema or brings it up to date; several processes may do so at once. A
    store that this user cannot write to, or whose disk is full, can be read.
    Raises :class:`StoreDamagedError`, :class:`StoreVersionError` or :class:`StoreBusyError`, and
    :class:`StoreError` for what can be neither read nor made.
    """

    def __init__(self, url: str | URL) -> None:
        self.url = _read_url(url)
        self.file = url_file(self.url)
        self._pool = ConnectionPool(self.url, self.file)
        self.engine = self._pool.engine
        self.replacements = 0  # times that another file was found in the store's place
        self._following = threading.Lock()
        self._thread = threading.local()
        self._require_content()
        self._migrate()

    def _require_content(self) -> None:
        """Raise :class:`StoreDamagedError` for an empty file where a store was."""
        log = Path(f"{self.file}-wal")
        try:
            is_empty = self.file.stat().st_size == 0
            was_used = (self.file.parent / "indexes").is_dir() or log.stat().st_size > 0
        except OSError:
            return
        if is_empty and was_used:
            raise StoreDamagedError(
                f"the store cannot be read: {self.file} is empty, and what was derived from it is "
                "not: catalog restore FILE, or remove the folder 'indexes' to begin anew"
            )

    @classmethod
    def at(cls, home: Path) -> Database:
        """Open the embedded store of an ``IDX_HOME`` folder, made if absent."""
        try:
            make_folder(home)
        except OSError as error:
            detail = describe_os_error(home, error)
            raise StoreError(f"cannot create the store folder {detail}") from error
        return cls(URL.create("sqlite", database=str(store_file(home))))

    @contextmanager
    def read(self, *, latest: bool = False) -> Iterator[Connection]:
        """Give a connection that sees one consistent state of the store until it is left.

        Within a :meth:`snapshot` that is its state, unless the ``latest`` one is asked for.
        """
        snapshot: Connection | None = getattr(self._thread, "connection", None)
        if snapshot is not None and not latest:
            with translate_errors(self.file):
                yield snapshot
            return
        self._follow_replacement()
        self._pool.follow()
        with translate_errors(self.file), self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let every ``read()`` of this thread see the state there is now, until it is left."""
        with self.read() as connection:
            if hasattr(self._thread, "connection"):  # within another: that one's state
                yield
                return
            connection.execute(select(schema.meta.c.key).limit(1)).all()  # BEGIN alone is lazy
            self._thread.connection = connection
            try:
                yield
            finally:
                del self._thread.connection

    @contextmanager
    def write(self, *, wait: bool = True) -> Iterator[Connection]:
        """Hold the write lock in a transaction; commit on leaving, roll back on an exception.

        Raises :class:`StoreBusyError` when the lock is not to be had, at once if not to ``wait``.
        """
        self._follow_replacement()
        self._pool.follow(to_write=True)
        with translate_errors(self.file), self.engine.connect() as connection:
            writing = connection.execution_options(**{WRITE: "wait" if wait else "try"})
            with writing.begin():
                yield writing

    def _follow_replacement(self) -> None:
        """Open the store anew when another file was put in its place, by a restored copy say."""
        if not self._pool.find_replacement():
            return
        with self._following:
            if self._pool.find_replacement():
                self.engine.dispose()
                self._migrate()
                self.replacements += 1

    def _migrate(self) -> None:
        with translate_errors(self.file):
            migrate(self.engine, lock=Path(f"{self.file}.init-lock"))
        self._pool.note_identity()

    def close(self) -> None:
        """Close every pooled connection; the object may be used again."""
        self.engine.dispose()

    def meta(self, key: str) -> str | None:
        """Return one value of the store's own settings, such as its embedding fingerprint."""
        with self.read() as connection:
            return read_meta(connection, key)

    def set_meta(self, key: str, value: str) -> None:
        """Set such a value; raises as :meth:`write` does."""
        with self.write() as connection:
            set_meta(connection, key, value)


def _read_url(url: str | URL) -> URL:
    """Return the address of an SQLite database; raise :class:`ConfigError` for any other."""
    try:
        url = make_url(url)
    except ArgumentError:  # whose cause may hold a password
        message = "the address of the database is none: write sqlite:////folder/catalog.db"
        raise ConfigError(message) from None
    if url.get_backend_name() != "sqlite":
        raise ConfigError(f"database {url.drivername!r} is not supported yet; use sqlite")
    return url


def url_file(url: str | URL) -> Path:
    """Return the file a URL names, as a path or as SQLite's own kind of URI (``file:…``)."""
    name = make_url(url).database or ":memory:"
    return Path(unquote(urlsplit(name).path) if name.startswith("file:") else name)


def find_store(settings: Settings) -> Path:
    """Return the file that is the store of these settings, whether it is there or not."""
    return url_file(_read_url(url)) if (url := settings.database_url) else store_file(settings.home)


def require_store(settings: Settings) -> None:
    """Raise :class:`NoStoreError` if no store is there; what else is wrong shows on opening it."""
    file = find_store(settings)
    try:
        file.stat()
    except FileNotFoundError:
        raise NoStoreError(
            f"there is no store at {file.parent}: check --home (IDX_HOME), or make one with "
            "'catalog index build FOLDER --dataset NAME'"
        ) from None
    except OSError:
        return


def store_file(home: Path) -> Path:
    """Return the file that is the embedded store of a home."""
    return home / "catalog.db"
