"""The connections to an SQLite store: a pool that follows the file, its transactions and errors.

In WAL mode SQLite writes files next to the store even to read it. If it cannot (no permission, full
disk) and no log of another process is there, the file is opened as unchanging (``immutable``, see
https://sqlite.org/uri.html). SQLite does not watch such a file for changes, so this module does.

Readers never wait. A writer takes the write lock when its transaction begins, so that a transaction
never fails half-way because the lock is taken.

Errors of the driver become our errors, which say what to do.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DatabaseError, OperationalError

from catalog.core.bounded_calls import check_time, is_out_of_time
from catalog.core.errors import StoreBusyError, StoreDamagedError, StoreError, StoreFullError
from catalog.core.files import make_private, remedy
from catalog.store.locks import LOCK_SECONDS, PREPARING, hold_lock
from catalog.store.sql_forms import as_shown

_LEAST_ROOM = 1 << 20  # bytes; to open a store takes 32 KB next to it, to write takes more
_DAMAGE = ("not a database", "malformed", "corrupt", "could not decode", "vtable constructor")
_CLOSED = ("readonly", "unable to open")
BUSY_TIMEOUT_MS = 30_000
WRITE = "catalog_write"  # execution option of a connection: to "wait" for the lock, or "try"
_PRAGMAS = (
    f"busy_timeout = {BUSY_TIMEOUT_MS}",
    "foreign_keys = ON",
    "temp_store = MEMORY",
    "mmap_size = 0",  # if another process truncated a mapped file, this one would die (SIGBUS)
)
_PAUSE = 0.01  # seconds
_WRITER_PRAGMAS = ("journal_mode = WAL", "synchronous = NORMAL")
_STEPS = 100_000  # of SQLite's machine, about a millisecond, between two looks at the clock
_State = tuple[int, ...]


@contextmanager
def translate_errors(file: Path) -> Iterator[None]:
    """Turn the driver's errors into ours, which name the cause and what to do."""
    try:
        yield
    except (OperationalError, sqlite3.OperationalError) as error:
        raise _store_error(_text(error), file) from error
    except (DatabaseError, sqlite3.DatabaseError) as error:
        driver_error = error.orig if isinstance(error, DatabaseError) else error
        if type(driver_error) is not sqlite3.DatabaseError:  # such as a broken constraint
            raise
        raise _damage_error(_text(error), file) from error
    except UnicodeDecodeError as error:  # in the driver's message about a damaged schema
        raise _damage_error("its text is not UTF-8", file) from error


def is_unwritable(error: sqlite3.OperationalError, file: Path) -> bool:
    """Return whether the store's folder cannot be written to: no permission, or no space."""
    text = _text(error)
    return any(word in text for word in _CLOSED) or ("disk I/O" in text and _is_full(file))


def _store_error(text: str, file: Path) -> StoreError:
    check_time()  # it interrupts a statement
    if _is_busy(text):
        return StoreBusyError("another process is writing to the store; try again")
    if _is_damage(text):
        return _damage_error(text, file)
    if os.access(file, os.F_OK) and file.is_dir():
        return StoreError(f"the store cannot be read: {file} is a folder")
    if "is full" in text or ("disk I/O" in text and _is_full(file)):
        return _no_room(text, file)
    if any(word in text for word in _CLOSED):
        return _unwritable_error(text, file)
    return StoreError(f"the store {file} failed: {text}")


def _unwritable_error(text: str, file: Path) -> StoreError:
    is_there = os.access(file, os.F_OK) or not os.access(file.parent, os.X_OK)
    if is_there and not os.access(file, os.R_OK):
        return StoreError(f"the store cannot be read: {remedy(errno.EACCES, file)}")
    for path in (file, file.parent):
        if path.exists() and not os.access(path, os.W_OK):
            reason = remedy(_why_not_writable(path), path)
            return StoreError(f"the store {file} cannot be written to ({text}): {reason}")
    if _is_full(file):
        return _no_room(text, file)
    return StoreError(f"the store {file} cannot be written to ({text})")


def _no_room(text: str, file: Path) -> StoreFullError:
    room = remedy(errno.ENOSPC, file)
    return StoreFullError(f"no space to write {file} or its journal ({text}): {room}")


def _why_not_writable(path: Path) -> int:
    """Return ``EROFS`` or ``EACCES``."""
    with suppress(OSError, AttributeError):  # Windows has no statvfs
        if os.statvfs(path).f_flag & os.ST_RDONLY:
            return errno.EROFS
    return errno.EACCES


def _is_full(file: Path) -> bool:
    try:
        return shutil.disk_usage(file.parent).free < _LEAST_ROOM
    except OSError:
        return False


def _damage_error(text: str, file: Path) -> StoreDamagedError:
    return StoreDamagedError(
        f"the store cannot be read: {file}: {text}; restore a copy: catalog restore FILE"
    )


def is_damage(error: Exception) -> bool:
    """Return whether the driver found bytes that SQLite would not write."""
    return isinstance(error, UnicodeDecodeError) or _is_damage(_text(error))


def is_busy(error: Exception) -> bool:
    """Return whether another connection holds the lock."""
    return _is_busy(_text(error))


def _is_busy(text: str) -> bool:
    return "locked" in text or "busy" in text


def _is_damage(text: str) -> bool:
    return any(word in text.lower() for word in _DAMAGE)


def _text(error: Exception) -> str:
    original: Any = getattr(error, "orig", None) or error
    return str(original)


class SqlitePool:
    """Hold the connections to one file."""

    def __init__(self, url: URL) -> None:
        self._file = self.file = url_file(url)
        self._frozen_state: _State | None = None
        self._identity: _State | None = None
        timeout = {"timeout": BUSY_TIMEOUT_MS / 1000}
        self.engine: Engine = create_engine(url, connect_args=timeout, hide_parameters=True)
        event.listen(self.engine, "do_connect", self._connect)
        event.listen(self.engine, "begin", _begin)
        event.listen(self.engine, "before_cursor_execute", lambda *_: check_time())

    @contextmanager
    def begin_write(self, *, wait: bool) -> Iterator[Connection]:
        """Give a connection in a transaction that holds the write lock; commit on leaving."""
        with self.engine.connect() as connection:
            writing = connection.execution_options(**{WRITE: "wait" if wait else "try"})
            with writing.begin():
                yield writing

    def hold_preparation(self) -> AbstractContextManager[None]:
        """Hold the lock under which the schema is brought up to date."""
        lock = Path(f"{self.file}.init-lock")
        return hold_lock(lock, seconds=LOCK_SECONDS, busy=PREPARING)

    @contextmanager
    def hold_dataset(
        self, dataset: str, *, seconds: float, busy: str, on_wait: Callable[[], None]
    ) -> Iterator[None]:
        """Do nothing: processes with the same file have the same home, which has a lock already."""
        del dataset, seconds, busy, on_wait
        yield

    def translate_errors(self) -> AbstractContextManager[None]:
        """Turn the driver's errors into ours."""
        return translate_errors(self.file)

    def require_content(self) -> None:
        """Raise :class:`StoreDamagedError` for an empty file that once was a store."""
        log = Path(f"{self.file}-wal")
        try:
            is_empty = self.file.stat().st_size == 0
            was_used = (self.file.parent / "indexes").is_dir() or log.stat().st_size > 0
        except OSError:
            return
        if is_empty and was_used:
            raise StoreDamagedError(
                f"the store cannot be read: {self.file} is empty, but its indexes are not: run "
                "catalog restore FILE, or remove the folder 'indexes' to start again"
            )

    def follow(self, *, to_write: bool = False) -> None:
        """Drop connections to an unchanging file if it changed, or if it is to be written to."""
        if self._frozen_state is not None and (to_write or self._state() != self._frozen_state):
            self._frozen_state = None
            self.engine.dispose()

    def find_replacement(self) -> bool:
        """Return whether the path leads to another file than :meth:`note_identity` saw.

        If the file is gone, the open connections stay the store.
        """
        identity = self._read_identity()
        return None not in (identity, self._identity) and identity != self._identity

    def note_identity(self) -> None:
        """Remember to which file the connections lead."""
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
        if is_new and self._identity is not None:  # SQLite would create an empty file
            raise StoreError(
                f"the store {self._file} was removed while it was open: put it back, or run "
                "catalog restore with a copy"
            )
        try:
            connection = _connect(arguments, options, _WRITER_PRAGMAS)
        except sqlite3.OperationalError as error:
            if not is_unwritable(error, self._file) or not self._is_whole():
                raise
        else:
            if is_new:  # SQLite gives later files of this store the same permissions
                make_private(*(Path(f"{self._file}{ending}") for ending in ("", "-wal", "-shm")))
            return connection
        self._frozen_state = self._state()
        unchanging = f"{self._file.absolute().as_uri()}?mode=ro&immutable=1"
        return _connect([unchanging], options | {"uri": True}, ())

    def _is_whole(self) -> bool:
        """Return whether the file is complete without a log, which would be ignored."""
        try:
            return self._file.stat().st_size > 0 and self._log_size() == 0
        except OSError:
            return False

    def _state(self) -> _State:
        """Return values that change when another process writes."""
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
        connection.set_progress_handler(is_out_of_time, _STEPS)
        for name, change in (("casefold", str.casefold), ("shown", as_shown)):
            connection.create_function(name, 1, _of_text(change), deterministic=True)
        for pragma in (*_PRAGMAS, *more):
            _set(connection, pragma)
    except BaseException:
        connection.close()
        raise
    return connection


def _set(connection: sqlite3.Connection, pragma: str) -> None:
    """Set a pragma; wait while another process creates the log, because SQLite itself does not."""
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


def _of_text(change: Callable[[str], str]) -> Callable[[object], str | None]:
    return lambda value: change(value) if isinstance(value, str) else None


def _begin(connection: Connection) -> None:
    writing = connection.get_execution_options().get(WRITE)
    if writing is None:  # without SQLAlchemy's cursor, which takes longer than most reads
        connection.connection.cursor().execute("BEGIN")
        return
    timeout = BUSY_TIMEOUT_MS if writing == "wait" else 0
    connection.exec_driver_sql(f"PRAGMA busy_timeout = {timeout}")
    try:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    finally:
        connection.exec_driver_sql(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")


def url_file(url: str | URL) -> Path:
    """Return the file in a URL, which has a path or SQLite's own kind of URI (``file:…``)."""
    name = make_url(url).database or ":memory:"
    return Path(unquote(urlsplit(name).path) if name.startswith("file:") else name)
