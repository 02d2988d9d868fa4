"""The connections to an SQLite store: a pool that follows the file, and its transactions.

SQLite in WAL mode writes beside the store even to read it. Where it cannot, for want of rights or
room, and no log of another process lies there, the file is read as it is (``immutable``, see
https://sqlite.org/uri.html). SQLite watches no such file for changes, so that is done here.

Readers never wait; one writer at a time takes the write lock when its transaction begins, so it
never fails half-way for want of it.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url

from catalog.core.errors import StoreDamagedError, StoreError
from catalog.core.files import make_private
from catalog.store.locks import hold_lock
from catalog.store.migrate import LOCK_SECONDS, PREPARING
from catalog.store.sql_errors import is_unwritable, translate_errors

BUSY_TIMEOUT_MS = 30_000
WRITE = "catalog_write"  # execution option of a connection: to "wait" for the lock, or "try"

_PRAGMAS = (
    f"busy_timeout = {BUSY_TIMEOUT_MS}",
    "foreign_keys = ON",
    "temp_store = MEMORY",
    "mmap_size = 0",  # a mapped file that another truncates ends the process (SIGBUS)
)
_PAUSE = 0.01  # seconds
_WRITER_PRAGMAS = ("journal_mode = WAL", "synchronous = NORMAL")
_State = tuple[int, ...]


class SqlitePool:
    """Hold the connections to one file."""

    shares_embedding = False

    def __init__(self, url: URL) -> None:
        self._file = self.file = url_file(url)
        self._frozen_state: _State | None = None
        self._identity: _State | None = None
        timeout = {"timeout": BUSY_TIMEOUT_MS / 1000}
        self.engine: Engine = create_engine(url, connect_args=timeout, hide_parameters=True)
        event.listen(self.engine, "do_connect", self._connect)
        event.listen(self.engine, "begin", _begin)

    @contextmanager
    def begin_write(self, *, wait: bool) -> Iterator[Connection]:
        """Give a connection in a transaction that holds the write lock; commit on leaving."""
        with self.engine.connect() as connection:
            writing = connection.execution_options(**{WRITE: "wait" if wait else "try"})
            with writing.begin():
                yield writing

    def hold_preparation(self) -> AbstractContextManager[None]:
        """Hold the lock of whoever brings the schema up to date."""
        lock = Path(f"{self.file}.init-lock")
        return hold_lock(lock, seconds=LOCK_SECONDS, busy=PREPARING)

    @contextmanager
    def hold_dataset(
        self, dataset: str, *, seconds: float, busy: str, on_wait: Callable[[], None]
    ) -> Iterator[None]:
        """Hold nothing more: who shares the file shares the home with the lock in it."""
        del dataset, seconds, busy, on_wait
        yield

    @contextmanager
    def claim(self, keys: Collection[str]) -> Iterator[Collection[str]]:
        """Give all of them: the lock of the dataset is held by the one run that embeds it."""
        yield keys

    def translate_errors(self) -> AbstractContextManager[None]:
        """Turn the driver's errors into ours."""
        return translate_errors(self.file)

    def require_content(self) -> None:
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
        if is_new and self._identity is not None:  # SQLite would make an empty one
            raise StoreError(
                f"the store {self._file} was removed while it was open: put it back, or give a "
                "copy to catalog restore"
            )
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
            _set(connection, pragma)
    except BaseException:
        connection.close()
        raise
    return connection


def _set(connection: sqlite3.Connection, pragma: str) -> None:
    """Set a pragma, waiting as SQLite itself does not while another process makes the log."""
    deadline = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            connection.execute(f"PRAGMA {pragma}")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE)
        else:
            return


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


def url_file(url: str | URL) -> Path:
    """Return the file a URL names, as a path or as SQLite's own kind of URI (``file:…``)."""
    name = make_url(url).database or ":memory:"
    return Path(unquote(urlsplit(name).path) if name.startswith("file:") else name)
