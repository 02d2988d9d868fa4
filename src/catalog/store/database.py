"""Open the store, run transactions on it, and read and write its own small settings.

The store is one SQLite file, or a database of a Postgres server.
Readers never wait. A writer takes the store's write lock when its transaction begins, so that a
transaction never fails half-way because the lock is taken.
"""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from filelock import FileLock, Timeout
from sqlalchemy import Connection, delete, event, insert, inspect, select
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from catalog.core.bounded_calls import check_time
from catalog.core.errors import (
    ConfigError,
    ForkedError,
    InputError,
    NoStoreError,
    StoreBusyError,
    StoreDamagedError,
    StoreError,
)
from catalog.core.files import describe_os_error, home_folder, make_folder
from catalog.core.settings import RAGv2Settings, Settings
from catalog.store.schema import FULL_TEXT, KEPT_META, KEPT_STAMPS, meta, metadata
from catalog.store.sqlite import SqliteFile

if TYPE_CHECKING:
    from catalog.store.postgres import PostgresServer

T = TypeVar("T")
SCHEMA = "5"
_UPGRADED = (None, "2", "3", "4")  # None: an empty database; 2: without a note of its version
RESTORE_LOCK = ".restore.lock"  # in the folder of dataset locks, whose names begin with no dot
_ADDRESSES = "write sqlite:////folder/catalog.db or postgresql://user@host/database"


def read_meta(connection: Connection, key: str) -> str | None:
    """Return the value of a key, ``None`` if it has none."""
    kept: dict[str, str] | None = connection.get_execution_options().get(KEPT_META)
    if kept is not None:
        return kept.get(key)
    value: str | None = connection.scalar(select(meta.c.value).where(meta.c.key == key))
    return value


def set_meta(connection: Connection, key: str, value: str) -> None:
    """Set the value of a key."""
    connection.execute(delete(meta).where(meta.c.key == key))
    connection.execute(insert(meta).values(key=key, value=value))


class Database:
    """The store's connection pool; use ``read()`` and ``write()`` for every access.

    Opening creates the schema or brings it up to date; several processes may do so at once.
    ``file`` is the store's file; for a store on a server, it is the beginning of the names of its
    local files, in the folder ``home``. Raises :class:`StoreError` kinds.
    """

    def __init__(self, url: str | URL, home: Path | None = None) -> None:
        self.url = _read_url(url)
        if _is_file(self.url):
            place: SqliteFile | PostgresServer = SqliteFile(self.url)
        else:
            from catalog.store.postgres import PostgresServer

            place = PostgresServer(self.url, home or home_folder())
        self.engine, self.file, self._place = place.engine, place.file, place
        self.address = place.address  # without a password
        self.describe_unfit = place.describe_unfit
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
        return cls(URL.create("sqlite", database=str(store_file(home))))

    @contextmanager
    def read(self, *, latest: bool = False) -> Iterator[Connection]:
        """Give a connection that sees one consistent state of the store until the context ends.

        Within a :meth:`snapshot` that is the snapshot's state; ``latest`` asks for the current one.
        """
        self._require_process()
        snapshot: Connection | None = getattr(self._thread, "connection", None)
        with self._place.translate_errors():
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
            rows = connection.execute(select(meta.c.key, meta.c.value)).all()
            kept = {row[0]: row[1] for row in rows}
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
        self._require_process()
        with self._place.translate_errors():
            self._follow_replacement()
            with self._place.begin_write(wait=wait) as connection:
                yield connection

    def hold_dataset(
        self, dataset: str, *, seconds: float, busy: str, on_wait: Callable[[], None]
    ) -> AbstractContextManager[None]:
        """Hold the lock for indexing the dataset, against processes with another home.

        ``on_wait`` is called once before waiting. After ``seconds`` (-1: never), raises
        :class:`StoreBusyError` with the message ``busy``.
        """
        return self._place.hold_dataset(dataset, seconds=seconds, busy=busy, on_wait=on_wait)

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
        """Return ``make(**value)`` for a key whose value is a JSON object; ``None`` if not set.

        Raises :class:`StoreDamagedError` for any other value; its message calls the value ``what``.
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

    def _require_process(self) -> None:
        if self.is_of_parent:
            raise ForkedError(
                f"the store was opened in process {self._process}, of which this process "
                f"({os.getpid()}) is a fork: open the library or the service after the fork"
            )

    def _prepare(self) -> None:
        """Bring the schema to :data:`SCHEMA`; for a store that has it, this is one query."""
        with self._place.translate_errors():
            with self.engine.connect() as connection:
                version = _read_version(connection)
            if version != SCHEMA:
                with self._place.begin_write(wait=True) as connection:
                    if (version := _read_version(connection)) != SCHEMA:  # nobody was faster
                        create_schema(connection)
                        if version is None:  # derived indexes record whose they are
                            set_meta(connection, "store_id", uuid.uuid4().hex)
                        set_meta(connection, "schema", SCHEMA)
        self._place.identity = self._place.identify()

    def _follow_replacement(self) -> None:
        """Open the store again when another file, such as a restored copy, replaced it.

        If the file is gone, the open connections stay the store.
        """
        if self._place.identify() not in (None, self._place.identity):
            with self._following:
                if self._place.identify() not in (None, self._place.identity):
                    self.engine.dispose()
                    self._prepare()


@dataclass(frozen=True, slots=True)
class EngineSetup:
    """The arguments of an engine; later versions may add some.

    ``folder`` is for its derived files and need not exist yet. ``dim`` and ``fingerprint`` describe
    the embedding model, for vector engines.
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
    version = read_meta(connection, "schema") or "2"
    if version != SCHEMA and version not in _UPGRADED:
        raise StoreError(
            f"the store has schema {version}, but this release reads {SCHEMA}: use the release "
            "that made it, or build it again in another home"
        )
    return version


def create_schema(connection: Connection) -> None:
    """Create the tables and the full text, or what an older store lacks of them."""
    if connection.dialect.name == "postgresql":
        from catalog.store.postgres_schema import create_own

        metadata.create_all(connection)
        create_own(connection)
    else:
        metadata.create_all(connection)
        for statement in FULL_TEXT.split(";\n\n"):
            connection.exec_driver_sql(statement)
    for table in ("alembic_version", "outbox"):  # of schema 2, and of all before 5
        connection.exec_driver_sql(f"DROP TABLE IF EXISTS {table}")


@contextmanager
def hold_lock(
    file: Path, *, seconds: float, busy: str, on_wait: Callable[[], None] | None = None
) -> Iterator[None]:
    """Hold the lock of a file until the context ends; create the file's folder if it is missing.

    If another process holds the lock, ``on_wait`` is called once before waiting. Raises
    :class:`StoreBusyError` with the message ``busy`` after ``seconds`` (-1: never), and
    :class:`StoreError` if the file cannot be opened.
    """
    lock = FileLock(file, mode=0o600)
    try:
        make_folder(file.parent)
        try:
            lock.acquire(timeout=0)
        except Timeout:
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


def _is_file(url: URL) -> bool:
    return url.get_backend_name() == "sqlite"


def store_file(home: Path) -> Path:
    """Return the path of a home's embedded store."""
    return home / "catalog.db"


def find_store(settings: Settings) -> Path:
    """Return the path of the store's file under these settings, whether or not it exists.

    Raises :class:`InputError` for a store on a server.
    """
    if settings.database_url is None:
        return store_file(settings.home)
    url = _read_url(settings.database_url)
    if not _is_file(url):
        raise InputError(
            "the store is in Postgres: copy it with pg_dump and pg_restore, or into a file with "
            "catalog export"
        )
    return Path(url.database or "")


def has_store(settings: Settings) -> bool:
    """Return whether there is a store, even one that cannot be opened."""
    url = _read_url(settings.database_url or "sqlite://")
    if not _is_file(url):
        from catalog.store.postgres import has_schema

        return has_schema(url)
    try:
        find_store(settings).stat()
    except FileNotFoundError:
        return False
    except OSError:
        pass
    return True


def require_store(settings: Settings) -> None:
    """Raise :class:`NoStoreError` if there is no store; other problems show when it is opened."""
    if has_store(settings):
        return
    url = _read_url(settings.database_url or "sqlite://")
    if _is_file(url):
        place, check = str(find_store(settings).parent), "--home (IDX_HOME)"
    else:
        from catalog.store.postgres import address_of

        place, check = address_of(url), "IDX_DATABASE_URL"
    raise NoStoreError(
        f"there is no store at {place}: check {check}, or make one with 'catalog index build "
        "FOLDER'"
    )
