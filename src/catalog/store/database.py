"""Open the store, run transactions on it, and read and write its own small settings.

The store is one SQLite file or a database of a Postgres server; :class:`StorePool` is the common
interface. Readers never wait. A writer takes the store's write lock when its transaction begins, so
that a transaction never fails half-way because the lock is taken.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from sqlalchemy import Connection, Engine, bindparam, delete, insert, inspect, select, text, update
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, IntegrityError

from catalog.core.errors import (
    CatalogError,
    ConfigError,
    ForkedError,
    InputError,
    NoStoreError,
    StoreDamagedError,
    StoreError,
    StoreVersionError,
)
from catalog.core.files import describe_os_error, home_folder, make_folder
from catalog.core.settings import Settings
from catalog.store.schema import meta
from catalog.store.sqlite_pool import BUSY_TIMEOUT_MS, WRITE, SqlitePool, url_file

__all__ = [
    "BUSY_TIMEOUT_MS",
    "INDEX_TOKENS",
    "WRITE",
    "Database",
    "find_store",
    "forget_indexes",
    "has_store",
    "read_meta",
    "require_store",
    "set_meta",
    "store_file",
    "url_file",
]
T = TypeVar("T")
HEAD = "2"  # the schema; 1 was before the first release
POSTGRES = ("postgresql", "postgres")
_NAME_BYTES = 1500  # a Postgres index entry has at most 2,704 bytes, not all for the name
INDEX_TOKENS = "vectors:"  # prefix of the keys of the tokens that vector indexes are checked by
_VALUE = select(meta.c.value).where(meta.c.key == bindparam("key"))
# errors that the use of a damaged value can raise
_OF_DAMAGE = (ArithmeticError, AttributeError, IntegrityError, LookupError, TypeError, ValueError)
_CHECKED = "checked_for_damage"  # an attribute of such an error
_ANY = select(meta.c.key).limit(1)


def migrate(engine: Engine, *, hold_lock: Callable[[], AbstractContextManager[None]]) -> None:
    """Bring the schema to :data:`HEAD`; for a store that has it, this is one query.

    ``hold_lock`` keeps other processes from doing the same. Raises :class:`StoreVersionError` for a
    schema that this release does not know, and the errors of ``hold_lock``, such as
    :class:`StoreBusyError` if another process takes too long.
    """
    if _version(engine) == HEAD:
        return
    with hold_lock():
        if _version(engine) != HEAD:
            _upgrade(engine)


def _version(engine: Engine) -> str | None:
    with engine.connect() as connection:
        if not inspect(connection).has_table("alembic_version"):
            return None
        version: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    if version not in (None, HEAD):
        raise StoreVersionError(
            f"the store has schema {version}, but this release reads {HEAD}: use the release that "
            "made it, or build it again in another home"
        )
    return version


def _upgrade(engine: Engine) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
    config.set_main_option("path_separator", "os")
    with engine.connect() as connection, connection.begin():
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


class StorePool(Protocol):
    """Connect to a store in one kind of database.

    ``file`` is the store's file; for a store on a server, it is the beginning of the names of its
    local files.
    """

    engine: Engine
    file: Path

    def begin_write(self, *, wait: bool) -> AbstractContextManager[Connection]:
        """Give a connection in a transaction that holds the write lock; commit on leaving."""
        ...

    def hold_preparation(self) -> AbstractContextManager[None]:
        """Hold the lock under which the schema is brought up to date."""
        ...

    def hold_dataset(
        self, dataset: str, *, seconds: float, busy: str, on_wait: Callable[[], None]
    ) -> AbstractContextManager[None]:
        """Hold the lock for indexing the dataset, against other homes of the same store."""
        ...

    def translate_errors(self) -> AbstractContextManager[None]:
        """Turn the driver's errors into ours."""
        ...

    def require_content(self) -> None:
        """Raise :class:`StoreDamagedError` if the store was visibly emptied."""
        ...

    def follow(self, *, to_write: bool = False) -> None:
        """Drop connections to a store that was replaced."""
        ...

    def find_replacement(self) -> bool:
        """Return whether another store replaced the one that :meth:`note_identity` saw."""
        ...

    def note_identity(self) -> None:
        """Remember which store the connections belong to."""
        ...


def read_meta(connection: Connection, key: str) -> str | None:
    """Return the value of a key, ``None`` if it has none."""
    value: str | None = connection.scalar(_VALUE, {"key": key})
    return value


def set_meta(connection: Connection, key: str, value: str, *, replace: bool = True) -> None:
    """Set a key; without ``replace``, a key that has a value keeps it."""
    present = read_meta(connection, key) is not None
    if present and replace:
        connection.execute(update(meta).where(meta.c.key == key).values(value=value))
    elif not present:
        connection.execute(insert(meta).values(key=key, value=value))


def forget_indexes(connection: Connection) -> None:
    """Have every vector index built from scratch before its next use."""
    connection.execute(delete(meta).where(meta.c.key.startswith(INDEX_TOKENS)))


class Database:
    """The store's connection pool; use ``read()`` and ``write()`` for every access.

    ``home`` is the folder for local files of a store on a server, by default the settings' home.
    Opening creates the schema or brings it up to date; several processes may do so at once. A store
    that cannot be written to (no permission, full disk) can still be read. Raises
    :class:`StoreDamagedError`, :class:`StoreVersionError` or :class:`StoreBusyError`, and
    :class:`StoreError` for a store that can be neither read nor created.
    """

    def __init__(self, url: str | URL, home: Path | None = None) -> None:
        self.url = _read_url(url)
        self._pool = _open_pool(self.url, home)
        self.file = self._pool.file
        self.engine = self._pool.engine
        self._process = os.getpid()
        self.replacements = 0  # how often another file has replaced the store
        self._following = threading.Lock()
        self._thread = threading.local()
        self._pool.require_content()
        try:
            self._migrate()
        except BaseException:
            self.close()
            raise

    @classmethod
    def at(cls, home: Path) -> Database:
        """Open the embedded store of an ``IDX_HOME`` folder; create both if missing."""
        try:
            make_folder(home)
        except OSError as error:
            detail = describe_os_error(home, error)
            raise StoreError(f"cannot create the store folder {detail}") from error
        return cls(URL.create("sqlite", database=str(store_file(home))))

    @contextmanager
    def read(self, *, latest: bool = False) -> Iterator[Connection]:
        """Give a connection that sees one consistent state of the store until the context ends.

        Within a :meth:`snapshot` that is the snapshot's state; ``latest`` asks for the current one.
        """
        self._require_process()
        snapshot: Connection | None = getattr(self._thread, "connection", None)
        if snapshot is not None and not latest:
            with self.tell_damage(), self._pool.translate_errors():
                yield snapshot
            return
        self._follow_replacement()
        self._pool.follow()
        with (
            self.tell_damage(),
            self._pool.translate_errors(),
            self.engine.connect() as connection,
            connection.begin(),
        ):
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let every ``read()`` of this thread see the present state until the context ends."""
        with self.read() as connection:
            if hasattr(self._thread, "connection"):  # within another snapshot: keep its state
                yield
                return
            connection.execute(_ANY).all()  # BEGIN alone is lazy
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
        self._follow_replacement()
        self._pool.follow(to_write=True)
        with (
            self.tell_damage(),
            self._pool.translate_errors(),
            self._pool.begin_write(wait=wait) as connection,
        ):
            yield connection

    @contextmanager
    def tell_damage(self) -> Iterator[None]:
        """Raise :class:`StoreDamagedError` for an error that damaged values explain.

        One changed byte can make nearly any line fail: a number turns into text, JSON loses its
        bracket. All rows are compared with their checksums, but only after such an error.
        """
        try:
            yield
        except _OF_DAMAGE as error:
            from catalog.store.statistics import describe_damage

            if isinstance(error, CatalogError) or _CHECKED in vars(error):
                raise
            vars(error)[_CHECKED] = True  # enclosing contexts need not check again
            with self._pool.translate_errors(), self.engine.connect() as connection:
                damage = describe_damage(connection)
            if damage is None:
                raise
            what = f"{type(error).__name__}: {str(error)[:200]}"
            raise StoreDamagedError(f"{damage}, see 'catalog doctor' ({what})") from error

    def hold_dataset(
        self, dataset: str, *, seconds: float, busy: str, on_wait: Callable[[], None]
    ) -> AbstractContextManager[None]:
        """Hold the lock for indexing the dataset, against processes with another home.

        ``on_wait`` is called once before waiting. After ``seconds`` (-1: never), raises
        :class:`StoreBusyError` with the message ``busy``.
        """
        return self._pool.hold_dataset(dataset, seconds=seconds, busy=busy, on_wait=on_wait)

    def describe_unfit(self, *names: str) -> str | None:
        """Explain which of these names (document's path, fields) is too long for this store."""
        if _is_file(self.url):
            return None
        long = (name for name in names if len(name.encode("utf-8", "replace")) > _NAME_BYTES)
        if (name := next(long, None)) is None:
            return None
        return (
            f"{name[:40]}… is too long: a name in Postgres may have {_NAME_BYTES} bytes; shorten it"
        )

    @property
    def is_of_parent(self) -> bool:
        """Whether this process was forked from the one that opened the store."""
        return self._process != os.getpid()

    def _require_process(self) -> None:
        if self.is_of_parent:
            raise ForkedError(
                f"the store was opened in process {self._process}, of which this process "
                f"({os.getpid()}) is a fork: open the library or the service after the fork"
            )

    def _follow_replacement(self) -> None:
        """Open the store again when another file, such as a restored copy, replaced it."""
        if not self._pool.find_replacement():
            return
        with self._following:
            if self._pool.find_replacement():
                self.engine.dispose()
                self._migrate()
                self.replacements += 1

    def _migrate(self) -> None:
        with self._pool.translate_errors():
            migrate(self.engine, hold_lock=self._pool.hold_preparation)
        self._pool.note_identity()

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
    if (name := url.get_backend_name()) not in ("sqlite", *POSTGRES):
        raise ConfigError(f"database {name!r} is not supported: {_ADDRESSES}")
    return url


_ADDRESSES = "write sqlite:////folder/catalog.db or postgresql://user@host/database"


def _open_pool(url: URL, home: Path | None) -> StorePool:
    if _is_file(url):
        folder = url_file(url).absolute().parent
        if not os.path.lexists(folder):
            raise StoreError(f"there is no folder {folder} for the store: create it first")
        return SqlitePool(url)
    from catalog.store.postgres_pool import PostgresPool

    return PostgresPool(url, home_folder() if home is None else home)


def _is_file(url: URL) -> bool:
    return url.get_backend_name() not in POSTGRES


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
    return url_file(url)


def has_store(settings: Settings) -> bool:
    """Return whether there is a store, even one that cannot be opened."""
    url = _read_url(settings.database_url or "sqlite://")
    if not _is_file(url):
        from catalog.store.postgres_pool import has_schema

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
    place, check = str(find_store(settings).parent) if _is_file(url) else "", "--home (IDX_HOME)"
    if not place:
        from catalog.store.postgres_pool import address_of

        place, check = address_of(url), "IDX_DATABASE_URL"
    raise NoStoreError(
        f"there is no store at {place}: check {check}, or make one with 'catalog index build "
        "FOLDER'"
    )


def store_file(home: Path) -> Path:
    """Return the path of a home's embedded store."""
    return home / "catalog.db"
