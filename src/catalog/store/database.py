"""Open the store, run transactions on it, and read and write its own small settings.

The store is one SQLite file, or a database of a Postgres server. Readers never wait: the file has a
write-ahead log. A writer takes the store's write lock when its transaction begins, so that a
transaction never fails half-way because the lock is taken.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, inspect, select
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError

from catalog.core.bounded_calls import check_time, time_left
from catalog.core.errors import (
    ConfigError,
    ForkedError,
    InputError,
    NoStoreError,
    StoreBusyError,
    StoreDamagedError,
    StoreError,
)
from catalog.core.files import describe_os_error, home_folder, make_folder, make_private
from catalog.core.settings import RAGv2Settings, Settings
from catalog.store.schema import BUSY_TIMEOUT_MS, FULL_TEXT, KEPT_META, KEPT_STAMPS, meta, metadata
from catalog.store.sql_forms import put_rows

if TYPE_CHECKING:
    from catalog.store.postgres import PostgresServer

T = TypeVar("T")
SCHEMA = "5"
_READABLE = ("4", SCHEMA)  # 4 has a table more, which nothing uses
WRITE = "catalog_write"  # execution option of a connection: to "wait" for the lock, or "try"
POINTS_LOCK = "lock"  # in the folder of an index of points
RESTORE_LOCK = ".restore.lock"  # in the folder of dataset locks, whose names begin with no dot
_ADDRESSES = "write sqlite:////folder/catalog.db or postgresql://user@host/database"
_PRAGMAS = (
    f"busy_timeout = {BUSY_TIMEOUT_MS}",
    "foreign_keys = ON",
    "temp_store = MEMORY",
    "mmap_size = 0",  # if another process truncated a mapped file, this one would die (SIGBUS)
    "synchronous = NORMAL",
)
_META = select(meta.c.key, meta.c.value)  # made once: a search begins with it
_STEPS = 100_000  # of SQLite's machine, about a millisecond, between two looks at the clock
_DAMAGE = ("not a database", "malformed", "corrupt", "could not decode", "vtable constructor")


def read_meta(connection: Connection, key: str) -> str | None:
    """Return the value of a key, ``None`` if it has none."""
    kept: dict[str, str] | None = connection.get_execution_options().get(KEPT_META)
    if kept is not None:
        return kept.get(key)
    value: str | None = connection.scalar(select(meta.c.value).where(meta.c.key == key))
    return value


def set_meta(connection: Connection, key: str, value: str) -> None:
    """Set the value of a key."""
    put_rows(connection, meta, [{"key": key, "value": value}])


class Database:
    """The store's connection pool; use ``read()`` and ``write()`` for every access.

    Opening creates the tables if there are none; several processes may do so at once. ``file`` is
    the store's file; for a store on a server, it is the beginning of the names of its local files,
    in the folder ``home``. ``address`` has no password. ``hold_dataset`` holds the lock for
    indexing a dataset against processes with another home. Raises :class:`StoreError` kinds.
    """

    def __init__(self, url: str | URL, home: Path | None = None) -> None:
        self.url = _read_url(url)
        if self.url.get_backend_name() == "sqlite":
            place: _SqliteFile | PostgresServer = _SqliteFile(self.url)
        else:
            from catalog.store.postgres import PostgresServer

            place = PostgresServer(self.url, home or home_folder())
        self.engine, self.file, self._place = place.engine, place.file, place
        self.address, self.hold_dataset = place.address, place.hold_dataset
        self._process = os.getpid()
        self._following, self._thread = threading.Lock(), threading.local()
        event.listen(self.engine, "before_cursor_execute", lambda *_: check_time())
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    @classmethod
    def at(cls, home: Path) -> Database:
        """Open the embedded store of an ``IDX_HOME`` folder; create both if missing."""
        return cls(_url_of(home))

    @contextmanager
    def read(self, *, latest: bool = False) -> Iterator[Connection]:
        """Give a connection that sees one consistent state of the store until the context ends.

        Within a :meth:`snapshot` that is the snapshot's state; ``latest`` asks for the current one.
        """
        snapshot: Connection | None = getattr(self._thread, "connection", None)
        with self._use():
            if snapshot is not None and not latest:
                yield snapshot
                return
            self._follow_replacement()
            with self.engine.connect() as connection, connection.begin():
                yield connection

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let every ``read()`` of this thread see the present state until the context ends."""
        with self.read() as connection:
            if hasattr(self._thread, "connection"):  # within another snapshot: keep its state
                yield
                return
            # BEGIN alone is lazy: the first statement fixes the state
            kept = {row[0]: row[1] for row in connection.execute(_META)}
            connection = connection.execution_options(**{KEPT_META: kept, KEPT_STAMPS: {}})
            self._thread.connection = connection
            try:
                yield
            finally:
                del self._thread.connection

    @contextmanager
    def write(self, *, wait: bool = True) -> Iterator[Connection]:
        """Hold the write lock in a transaction; commit on leaving, roll back on an exception.

        Raises :class:`StoreBusyError` if another process keeps the lock; without ``wait``, at once.
        """
        with self._use():
            self._follow_replacement()
            with self._place.begin_write(wait=wait) as connection:
                yield connection

    @property
    def is_of_parent(self) -> bool:
        """Whether this process was forked from the one that opened the store."""
        return self._process != os.getpid()

    def close(self) -> None:
        """Close every pooled connection; the object may be used again."""
        self.engine.dispose()

    def meta(self, key: str) -> str | None:
        """Return one of the store's own settings, such as its embedding fingerprint."""
        with self.read() as connection:
            return read_meta(connection, key)

    def note(self, key: str, what: str, make: Callable[..., T]) -> T | None:
        """Return ``make(**value)`` of a JSON object, called ``what``; ``None`` if it is not set.

        Raises :class:`StoreDamagedError` for any other value.
        """
        try:
            value = json.loads(self.meta(key) or "null")
            return None if value is None else make(**value)
        except (ValueError, TypeError, RecursionError) as error:
            message = f"the store's record of {what} is damaged: create it again"
            raise StoreDamagedError(message) from error

    def set_meta(self, key: str, value: str) -> None:
        """Set one of the store's own settings; raises as :meth:`write` does."""
        with self.write() as connection:
            set_meta(connection, key, value)

    def _use(self) -> AbstractContextManager[None]:
        if self.is_of_parent:
            raise ForkedError(
                f"the store was opened in process {self._process}, of which this process "
                f"({os.getpid()}) is a fork: open the library or the service after the fork"
            )
        return self._place.translate_errors()

    def _prepare(self) -> None:
        """Create the tables unless they are there; then this is one query."""
        with self._place.translate_errors():
            with self.engine.connect() as connection:
                is_new = _read_version(connection) is None
            if is_new:
                with self._place.begin_write(wait=True) as connection:
                    if _read_version(connection) is None:  # nobody was faster
                        create_schema(connection)
                        set_meta(connection, "store_id", uuid.uuid4().hex)  # indexes note theirs
                        set_meta(connection, "schema", SCHEMA)
        self._place.identity = self._place.identify()

    def _follow_replacement(self) -> None:
        """Open the store again when another file, such as a restored copy, replaced it.

        If the file is gone, the open connections stay the store.
        """
        if self._place.identify() in (None, self._place.identity):
            return
        with self._following:
            if self._place.identify() != self._place.identity:  # no other thread was faster
                self.engine.dispose()
                self._prepare()


@dataclass(frozen=True, slots=True)
class EngineSetup:
    """The arguments of an engine; ``folder`` is for its derived files and need not exist yet.

    ``dim`` and ``fingerprint`` describe the embedding model, for vector engines.
    """

    database: Database
    dataset: str
    folder: Path
    rag: RAGv2Settings
    dim: int = 0
    fingerprint: str = ""


def _read_version(connection: Connection) -> str | None:
    """Return the version of the schema, ``None`` if there is none yet."""
    if not inspect(connection).has_table("meta"):
        return None
    if (version := read_meta(connection, "schema")) in _READABLE:
        return version
    raise StoreError(
        f"the store has schema {version}, but this release reads {SCHEMA}: use the release that "
        "made it, or build it again in another home"
    )


def create_schema(connection: Connection) -> None:
    """Create the tables and the full text."""
    metadata.create_all(connection)
    if connection.dialect.name == "postgresql":
        from catalog.store.postgres import create_own

        create_own(connection)
    else:
        for statement in FULL_TEXT.split(";\n\n"):
            connection.exec_driver_sql(statement)


class _SqliteFile:
    """The connections to one file, which is made if it is missing, with its folder."""

    def __init__(self, url: URL) -> None:
        self.file = Path(url.database or "")
        self.address, self.translate_errors = (
            str(self.file.absolute()),
            partial(translate_errors, self.file),
        )
        self.identity: tuple[int, int] | None = None  # of the store that is open
        try:
            make_folder(self.file.parent)
        except OSError as error:
            detail = describe_os_error(self.file.parent, error)
            raise StoreError(f"cannot create the store folder {detail}") from error
        is_empty = self.file.is_file() and not self.file.stat().st_size
        if is_empty and (self.file.parent / "indexes").is_dir():
            raise StoreDamagedError(
                f"the store cannot be read: {self.file} is empty, but its indexes are not: run "
                "catalog restore FILE, or remove the folder 'indexes' to start again"
            )
        timeout = {"timeout": BUSY_TIMEOUT_MS / 1000}
        self.engine: Engine = create_engine(url, connect_args=timeout, hide_parameters=True)
        event.listen(self.engine, "do_connect", self._connect)
        event.listen(self.engine, "begin", _begin)

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

    def hold_dataset(self, _dataset: str, **_: Any) -> AbstractContextManager[None]:
        """Do nothing: processes with the same file have the same home, which has a lock already."""
        return nullcontext()

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
    if writing == "try":
        run("PRAGMA busy_timeout = 0")
    try:
        run("BEGIN IMMEDIATE" if writing else "BEGIN")
    finally:
        if writing == "try":
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
    is_closed, free = "readonly" in told or "unable to open" in told, 1 << 20
    with suppress(OSError):
        free = shutil.disk_usage(file.parent).free
    # SQLite needs a little room even to read.
    if "is full" in told or ((is_closed or "disk I/O" in told) and free < 1 << 20):
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


@contextmanager
def hold_lock(
    file: Path, *, seconds: float, busy: str, on_wait: Callable[[], None] | None = None
) -> Iterator[None]:
    """Hold the lock of a file until the context ends; create the file's folder if it is missing.

    If another process holds the lock, ``on_wait`` is called once before waiting. Raises
    :class:`StoreBusyError` with the message ``busy`` after ``seconds`` (-1: never), and
    :class:`StoreError` if the file cannot be opened.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(file, mode=0o600)
    try:
        make_folder(file.parent)
        with suppress(Timeout):
            lock.acquire(timeout=0)
        if not lock.is_locked:
            if on_wait is not None and seconds:
                on_wait()
            lock.acquire(timeout=seconds)
    except Timeout as error:
        raise StoreBusyError(busy) from error
    except OSError as error:
        raise StoreError(f"cannot open the lock {describe_os_error(file, error)}") from error
    try:
        yield
    finally:
        lock.release()


def _read_url(url: str | URL) -> URL:
    """Return the parsed address; raise :class:`ConfigError` unless it is SQLite's or Postgres's."""
    try:
        url = make_url(url)
    except (ArgumentError, ValueError):  # whose cause may hold a password
        raise ConfigError(f"the database's address cannot be read: {_ADDRESSES}") from None
    if "@" in (url.host or ""):  # what comes before it may be the end of a password
        raise ConfigError(
            "the address of the database has more than one @: write %40 for an @ in the password"
        )
    is_known = url.get_backend_name() in ("sqlite", "postgresql", "postgres")
    if not is_known or (url.database or "").startswith("file:"):
        raise ConfigError(f"the database {url} is not supported: {_ADDRESSES}")
    return url


def _url_of(home: Path) -> URL:
    return URL.create("sqlite", database=str(home / "catalog.db"))


def find_store(settings: Settings) -> Path:
    """Return the path of the store's file under these settings, whether or not it exists.

    Raises :class:`InputError` for a store on a server.
    """
    url = _read_url(settings.database_url or _url_of(settings.home))
    if url.get_backend_name() != "sqlite":
        raise InputError(
            "the store is in Postgres: copy it with pg_dump and pg_restore, or into a file with "
            "catalog export"
        )
    return Path(url.database or "")


def has_store(settings: Settings) -> bool:
    """Return whether there is a store, even one that cannot be opened."""
    url = _read_url(settings.database_url or _url_of(settings.home))
    if url.get_backend_name() != "sqlite":
        from catalog.store.postgres import has_schema

        return has_schema(url)
    try:
        return Path(url.database or "").exists()
    except OSError:
        return True


def require_store(settings: Settings) -> None:
    """Raise :class:`NoStoreError` if there is no store; other problems show when it is opened."""
    if not has_store(settings):
        where = f"in {settings.home}: check --home (IDX_HOME)"
        if settings.database_url is not None:
            where = "at the address: check IDX_DATABASE_URL"
        make = "or make one with 'catalog index build FOLDER'"
        raise NoStoreError(f"there is no store {where}, {make}")
