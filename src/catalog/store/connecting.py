"""Connections to the SQL truth: how each is set up, and what is done when nothing can be written.

SQLite in WAL mode writes beside the store even to read it. Where it cannot, for want of rights or
room, and no log of another process lies there, the file is read as it is (``immutable``, see
https://sqlite.org/uri.html). SQLite watches no such file for changes, so that is done here.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL

from catalog.store.failures import is_shut

BUSY_TIMEOUT_MS = 30_000
WRITE = "catalog_write"
"""Execution option of a connection that writes: ``wait`` for the lock, or ``try``."""

_ANYHOW = (
    f"busy_timeout = {BUSY_TIMEOUT_MS}",
    "foreign_keys = ON",
    "temp_store = MEMORY",
    "mmap_size = 67108864",
)
_TO_WRITE = ("journal_mode = WAL", "synchronous = NORMAL")
_State = tuple[int, ...]


class Connecting:
    """The pool of one store's connections."""

    def __init__(self, url: URL, file: Path) -> None:
        self._file = file
        self._as_it_is: _State | None = None
        patience = {"timeout": BUSY_TIMEOUT_MS / 1000}
        self.engine: Engine = create_engine(url, connect_args=patience)
        event.listen(self.engine, "do_connect", self._connect)
        event.listen(self.engine, "begin", _begin)

    def follow(self, *, to_write: bool = False) -> None:
        """Drop connections that read the file as it was, if it changed or shall be written to."""
        if self._as_it_is is not None and (to_write or self._state() != self._as_it_is):
            self._as_it_is = None
            self.engine.dispose()

    def _connect(
        self, dialect: object, record: object, place: list[Any], how: dict[str, Any]
    ) -> sqlite3.Connection:
        del dialect, record
        try:
            return _opened(place, how, _TO_WRITE)
        except sqlite3.OperationalError as error:
            if not is_shut(error, self._file) or not self._is_whole():
                raise
        self._as_it_is = self._state()
        unchanging = f"{self._file.absolute().as_uri()}?mode=ro&immutable=1"
        return _opened([unchanging], how | {"uri": True}, ())

    def _is_whole(self) -> bool:
        """Whether the file holds all: what is in a log beside it would be missed."""
        try:
            return self._file.stat().st_size > 0 and self._log_size() == 0
        except OSError:
            return False

    def _state(self) -> _State:
        """What differs once another process writes."""
        try:
            about = self._file.stat()
            return about.st_ino, about.st_size, about.st_mtime_ns, self._log_size()
        except OSError:
            return ()

    def _log_size(self) -> int:
        try:
            return Path(f"{self._file}-wal").stat().st_size
        except FileNotFoundError:
            return 0


def _opened(place: list[Any], how: dict[str, Any], more: tuple[str, ...]) -> sqlite3.Connection:
    connection: sqlite3.Connection = sqlite3.connect(*place, **how)
    try:
        connection.isolation_level = None  # the begin event starts transactions
        connection.create_function("casefold", 1, _casefold, deterministic=True)
        for pragma in (*_ANYHOW, *more):
            connection.execute(f"PRAGMA {pragma}")
    except BaseException:
        connection.close()
        raise
    return connection


def _casefold(value: object) -> str | None:
    return value.casefold() if isinstance(value, str) else None


def _begin(connection: Connection) -> None:
    writing = connection.get_execution_options().get(WRITE)
    if writing is None:
        connection.exec_driver_sql("BEGIN")
        return
    patience = BUSY_TIMEOUT_MS if writing == "wait" else 0
    connection.exec_driver_sql(f"PRAGMA busy_timeout = {patience}")
    try:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    finally:
        connection.exec_driver_sql(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
