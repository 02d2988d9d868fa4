"""A store in an SQLite file: its connections, transactions and errors.

Readers never wait: the file has a write-ahead log.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.exc import DatabaseError

from catalog.core.bounded_calls import check_time, time_left
from catalog.core.errors import StoreBusyError, StoreDamagedError, StoreError
from catalog.core.files import describe_os_error, make_folder, make_private

BUSY_TIMEOUT_MS = 30_000
WRITE = "catalog_write"  # execution option of a connection: to "wait" for the lock, or "try"
_PRAGMAS = (
    f"busy_timeout = {BUSY_TIMEOUT_MS}",
    "foreign_keys = ON",
    "temp_store = MEMORY",
    "mmap_size = 0",  # if another process truncated a mapped file, this one would die (SIGBUS)
    "synchronous = NORMAL",
)
_STEPS = 100_000  # of SQLite's machine, about a millisecond, between two looks at the clock
_DAMAGE = ("not a database", "malformed", "corrupt", "could not decode", "vtable constructor")


class SqliteFile:
    """The connections to one file, which is made if it is missing, with its folder."""

    def __init__(self, url: URL) -> None:
        self.file = Path(url.database or "")
        self.address = str(self.file.absolute())
        self.identity: tuple[int, int] | None = None  # of the store that is open
        self._check()
        timeout = {"timeout": BUSY_TIMEOUT_MS / 1000}
        self.engine: Engine = create_engine(url, connect_args=timeout, hide_parameters=True)
        event.listen(self.engine, "do_connect", self._connect)
        event.listen(self.engine, "begin", _begin)

    def _check(self) -> None:
        """Make the folder; raise :class:`StoreDamagedError` if the file was visibly emptied."""
        try:
            make_folder(self.file.parent)
        except OSError as error:
            detail = describe_os_error(self.file.parent, error)
            raise StoreError(f"cannot create the store folder {detail}") from error
        has_indexes = (self.file.parent / "indexes").is_dir()
        if has_indexes and self.file.is_file() and not self.file.stat().st_size:
            raise StoreDamagedError(
                f"the store cannot be read: {self.file} is empty, but its indexes are not: run "
                "catalog restore FILE, or remove the folder 'indexes' to start again"
            )

    def identify(self) -> tuple[int, int] | None:
        """Return what tells this file from one that replaces it; ``None`` if it is gone."""
        try:
            stat = os.stat(self.file)  # noqa: PTH116 - at each read, and faster than Path's
        except OSError:
            return None
        return stat.st_dev, stat.st_ino

    @contextmanager
    def begin_write(self, *, wait: bool) -> Iterator[Connection]:
        """Give a connection in a transaction that holds the write lock; commit on leaving."""
        with self.engine.connect() as connection:
            writing = connection.execution_options(**{WRITE: "wait" if wait else "try"})
            with writing.begin():
                yield writing

    def hold_dataset(self, dataset: str, **_: Any) -> AbstractContextManager[None]:
        """Do nothing: processes with the same file have the same home, which has a lock already."""
        del dataset
        return nullcontext()

    def describe_unfit(self, *names: str) -> str | None:
        """Return ``None``: no name is too long."""
        del names
        return None

    def translate_errors(self) -> AbstractContextManager[None]:
        """Turn SQLite's errors into ours."""
        return translate_errors(self.file)

    def _connect(
        self, _dialect: object, _record: object, arguments: list[Any], options: dict[str, Any]
    ) -> sqlite3.Connection:
        is_new = not self.file.exists()
        if is_new and self.identity is not None:  # SQLite would create an empty file
            raise StoreError(
                f"the store {self.file} was removed while it was open: put it back, or run "
                "catalog restore with a copy"
            )
        connection: sqlite3.Connection = sqlite3.connect(*arguments, **options)
        try:
            connection.isolation_level = None  # the begin event starts transactions
            connection.set_progress_handler(lambda: time_left() < 0, _STEPS)
            connection.create_function("casefold", 1, _casefold, deterministic=True)
            for pragma in _PRAGMAS:
                connection.execute(f"PRAGMA {pragma}")
            _use_log(connection)
        except BaseException:
            connection.close()
            raise
        if is_new:  # SQLite gives later files of this store the same permissions
            make_private(*(Path(f"{self.file}{ending}") for ending in ("", "-wal", "-shm")))
        return connection


def _use_log(connection: sqlite3.Connection) -> None:
    """Switch to the write-ahead log; SQLite itself does not wait there for another process."""
    deadline = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _casefold(value: object) -> str | None:
    return value.casefold() if isinstance(value, str) else None


def _begin(connection: Connection) -> None:
    run = connection.connection.cursor().execute  # SQLAlchemy's takes longer than most reads
    writing = connection.get_execution_options().get(WRITE)
    if writing is None:
        run("BEGIN")
        return
    run(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS if writing == 'wait' else 0}")
    try:
        run("BEGIN IMMEDIATE")
    finally:
        run(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")


@contextmanager
def translate_errors(file: Path) -> Iterator[None]:
    """Turn SQLite's errors into ours, which name the cause and what to do."""
    try:
        yield
    except (DatabaseError, sqlite3.DatabaseError, UnicodeDecodeError) as error:
        check_time()  # it interrupts a statement
        known = _store_error(error, file)
        if known is None:
            raise
        raise known from error


def _store_error(error: Exception, file: Path) -> StoreError | None:
    original = getattr(error, "orig", None) or error
    told = str(original)
    if is_damage(error) or type(original) is sqlite3.DatabaseError:
        return StoreDamagedError(
            f"the store cannot be read: {file}: {told}; restore a copy: catalog restore FILE"
        )
    if not isinstance(original, sqlite3.OperationalError):
        return None  # such as a broken constraint
    if "locked" in told or "busy" in told:
        return StoreBusyError("another process is writing to the store; try again")
    is_closed = "readonly" in told or "unable to open" in told
    if "is full" in told or ((is_closed or "disk I/O" in told) and _is_full(file)):
        return StoreError(f"no space to write to {file} ({told}): free some space on its disk")
    if is_closed:
        return StoreError(
            f"the store {file} cannot be opened or written to ({told}): let this user read and "
            "write that file and its folder"
        )
    return StoreError(f"the store {file} failed: {told}")


def is_damage(error: Exception) -> bool:
    """Return whether the driver found bytes that SQLite would not write."""
    told = str(getattr(error, "orig", None) or error).lower()
    return isinstance(error, UnicodeDecodeError) or any(word in told for word in _DAMAGE)


def _is_full(file: Path) -> bool:
    """Return whether the disk lacks the little room that SQLite needs even to read."""
    try:
        return shutil.disk_usage(file.parent).free < 1 << 20
    except OSError:
        return False
