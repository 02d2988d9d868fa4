"""The connections to a store in Postgres, its transactions and errors.

A reader sees one state of the store until it is done (REPEATABLE READ). A writer first takes an
advisory lock (https://www.postgresql.org/docs/current/explicit-locking.html#ADVISORY-LOCKS), which
excludes writers on all machines. Each of its statements then reads what is committed (READ
COMMITTED). With one writer at a time it sees the same as in SQLite.

Errors are recognised by their SQLSTATE
(https://www.postgresql.org/docs/current/errcodes-appendix.html) or, if there is no connection yet,
by the message of the client library.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError

from catalog.core.bounded_calls import check_time
from catalog.core.errors import (
    CatalogError,
    ConfigError,
    MissingExtraError,
    StoreBusyError,
    StoreDamagedError,
    StoreError,
    StoreUnreachableError,
)
from catalog.core.files import make_folder
from catalog.core.ids import sha1_hex
from catalog.store.locks import LOCK_SECONDS, PREPARING
from catalog.store.sqlite_pool import BUSY_TIMEOUT_MS

_log = logging.getLogger(__name__)

_BUSY = {
    "55P03": "another process is writing to the store; try again",
    "40001": "another process changed the same rows; try again",
    "40P01": "another process changed the same rows; try again",
    "53300": "the database server has too many connections; try again, or raise its limit",
    "57P03": "the database server is starting or stopping; try again",
}
_REFUSED = {
    "53100": "the disk of the database server is full: free some space there",
    "53200": "the database server is out of memory",
    "25006": "the database is read-only: use the address of a writable one",
    "42501": "the user has no right to do that: grant rights on the tables of the store",
    "57014": "the database server cancelled the statement: it took longer than statement_timeout",
}
_BUSY_AT_CONNECTING = (  # the client library gives no SQLSTATE for these
    ("too many", "53300"),
    ("remaining connection slots", "53300"),
    ("the database system is", "57P03"),
)
_AT_CONNECTING = (
    ("password authentication failed", "it refuses the user or the password"),
    ("no password supplied", "it needs a password, but the address has none"),
    ("pg_hba.conf", "it accepts no connection of that user from this machine"),
    ("role", "that user does not exist"),
    ("database", "that database does not exist: run createdb, or correct the name"),
)
_DAMAGE = ("XX001", "XX002")
_MISSING = ("42P01", "42703")  # a table, a column
_WRITER_BUSY = "another process is writing to the store; try again"
# An advisory lock is for the whole database, which may have a store in each of its schemas.
_LOCK = "hashtext('catalog ' || :purpose || current_schema())::bigint"
_WAIT = text(
    f"SELECT set_config('lock_timeout', :milliseconds, true), pg_advisory_xact_lock({_LOCK})"
)
_TRY = text(f"SELECT pg_try_advisory_xact_lock({_LOCK})")
_TRY_LONG = text(f"SELECT pg_try_advisory_lock({_LOCK})")  # until release or disconnection
_HOLD_LONG = text(f"SELECT pg_advisory_lock({_LOCK})")
_RELEASE = text(f"SELECT pg_advisory_unlock({_LOCK})")
_HOLDER = text(f"SELECT pg_backend_pid() AS holder, {_LOCK} & 4294967295 AS number")
_IS_HELD = text(
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = :holder "
    "AND objid::bigint = :number"
)
_TIMEOUT = text("SELECT set_config('lock_timeout', :milliseconds, false)")
_POOL = 5  # connections that are kept
_MOST_MORE = 60  # additional ones: our server answers on 40 threads
_PATIENCE = {  # without these a connection to a host that is gone waits for hours or for ever
    "connect_timeout": "10",  # seconds, for each address of a host
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",  # milliseconds
}
_WORD = re.compile(r"[^A-Za-z0-9_.-]+")


def address_of(url: URL) -> str:
    """Return the address of a database without its password."""
    shown = URL.create(
        "postgresql",
        username=url.username,
        host=url.host or str(url.query.get("host", "")) or None,
        port=url.port,
        database=url.database,
    )
    return shown.render_as_string()


@contextmanager
def translate_errors(url: URL) -> Iterator[None]:
    """Turn the driver's errors into ours, which name the cause and what to do."""
    try:
        yield
    except DBAPIError as error:
        known = _store_error(error, url)
        if known is None:
            raise
        is_secret = _tells_secret(error, url) or _may_quote(error)
        raise known from (None if is_secret else error)


def _store_error(error: DBAPIError, url: URL) -> CatalogError | None:
    original: Any = error.orig
    state, text = getattr(original, "sqlstate", None), _first_line(original)
    place = address_of(url)
    if type(original).__name__ == "ProgrammingError" and state is None:
        hidden = text.replace(str(url.password), "…") if url.password else text
        return ConfigError(f"the address of the database {place} is wrong: {hidden}")
    if state in _BUSY:
        return StoreBusyError(_BUSY[state])
    if state in _REFUSED:
        return StoreError(f"the store {place} failed ({text}): {_REFUSED[state]}")
    if state in _DAMAGE:
        return StoreDamagedError(f"the store {place} cannot be read: {text}; restore a copy")
    if error.connection_invalidated or state is None or state.startswith(("08", "57P")):
        return _connection_error(str(original), place) if _is_connection(error) else None
    if _may_quote(error):
        _log.error("Postgres reports %s of: %s", state, error.statement)  # no value is in it
        if state in _MISSING:
            return StoreDamagedError(
                f"the store {place} lacks a table or a column ({state}): restore a copy"
            )
        return StoreError(f"the store {place} failed: {type(original).__name__} ({state})")
    return StoreError(f"the store {place} failed: {text}")


def _may_quote(error: DBAPIError) -> bool:
    """Return whether the server's error message may repeat text of a document."""
    return type(error).__name__ != "OperationalError"


def _is_connection(error: DBAPIError) -> bool:
    return type(error).__name__ in ("OperationalError", "InterfaceError")


def _connection_error(text: str, place: str) -> StoreError:
    for words, state in _BUSY_AT_CONNECTING:
        if f"FATAL:  {words}" in text or f"FATAL:  sorry, {words}" in text:
            return StoreBusyError(f"the store {place}: {_BUSY[state]}")
    for words, meaning in _AT_CONNECTING:
        if f"FATAL:  {words}" in text or (words in text and " " in words):
            return StoreError(f"the database server refuses {place}: {meaning}")
    line = " ".join(text.split())[:300]
    return StoreUnreachableError(
        f"the database {place} cannot be reached: {line}; check IDX_DATABASE_URL, and that the "
        "server runs"
    )


def _first_line(error: object) -> str:
    return next(iter(str(error).splitlines()), "")


def _tells_secret(error: DBAPIError, url: URL) -> bool:
    return url.password is not None and str(url.password) in str(error)


logging.getLogger("psycopg").addHandler(logging.NullHandler())  # its errors are raised, too


class PostgresPool:
    """Hold the connections to one database; ``home`` is the folder for local files."""

    def __init__(self, url: URL, home: Path) -> None:
        self._url = url
        name = _WORD.sub("-", url.database or "postgres")
        self.file = home / f"{name}-{sha1_hex(address_of(url))[:12]}"
        with suppress(OSError):  # the first use of the folder reports the error
            make_folder(home)
        self.engine: Engine = make_engine(url)
        self._thread = threading.local()  # the dataset locks that each thread holds

    @contextmanager
    def begin_write(self, *, wait: bool) -> Iterator[Connection]:
        """Give a connection in a transaction that holds the write lock; commit on leaving."""
        with self.engine.connect() as connection:
            writing = connection.execution_options(isolation_level="READ COMMITTED")
            with writing.begin():
                if wait:
                    _wait_for_lock(writing, "write", BUSY_TIMEOUT_MS)
                elif not writing.scalar(_TRY, {"purpose": "write"}):
                    raise StoreBusyError(_WRITER_BUSY)
                self._require_dataset_lock(writing)
                yield writing

    @contextmanager
    def hold_preparation(self) -> Iterator[None]:
        """Hold the lock under which the schema is brought up to date."""
        with self.engine.connect() as connection, connection.begin():
            try:
                with self.translate_errors():
                    _wait_for_lock(connection, "prepare", LOCK_SECONDS * 1000)
            except StoreBusyError as error:
                raise StoreBusyError(PREPARING) from error
            yield

    @contextmanager
    def hold_dataset(
        self, dataset: str, *, seconds: float, busy: str, on_wait: Callable[[], None]
    ) -> Iterator[None]:
        """Hold the lock for indexing the dataset, across homes and machines."""
        named = {"purpose": f"dataset {dataset} "}
        with self.translate_errors(), self.engine.connect() as connection:
            alone = connection.execution_options(isolation_level="AUTOCOMMIT")
            if not alone.scalar(_TRY_LONG, named):
                on_wait()
                self._wait_long(alone, named, seconds, busy)
            before = getattr(self._thread, "held", ())
            held = alone.execute(_HOLDER, named).mappings().one()
            self._thread.held = (*before, dict(held))
            try:
                yield
            finally:
                self._thread.held = before
                with suppress(DBAPIError):  # a lost connection has released the lock
                    alone.execute(_RELEASE, named)

    def _require_dataset_lock(self, writing: Connection) -> None:
        """Raise :class:`StoreUnreachableError` if this thread has lost the lock of a dataset.

        The server releases the lock with the connection, and another run may have begun since then.
        """
        for held in getattr(self._thread, "held", ()):
            if not writing.scalar(_IS_HELD, held):
                raise StoreUnreachableError(
                    f"the connection to {address_of(self._url)} that held this run's lock was "
                    "lost, so another run may have started"
                )

    def _wait_long(
        self, connection: Connection, named: dict[str, str], seconds: float, busy: str
    ) -> None:
        try:
            with self.translate_errors():
                most = max(1, round(seconds * 1000)) if seconds >= 0 else 0  # 0: for ever
                connection.execute(_TIMEOUT, {"milliseconds": str(most)})
                connection.execute(_HOLD_LONG, named)
        except StoreBusyError as error:
            raise StoreBusyError(busy) from error
        finally:
            connection.execute(_TIMEOUT, {"milliseconds": "0"})

    def translate_errors(self) -> AbstractContextManager[None]:
        """Turn the driver's errors into ours."""
        return translate_errors(self._url)

    def require_content(self) -> None:
        """Do nothing: a server does not lose a store by itself."""

    def follow(self, *, to_write: bool = False) -> None:
        """Do nothing: each connection reads the present state."""

    def find_replacement(self) -> bool:
        """Return ``False``: connections are to a database by name, which stays the same."""
        return False

    def note_identity(self) -> None:
        """Do nothing: :meth:`find_replacement` needs no identity."""


class _Store(Protocol):
    @property
    def url(self) -> URL: ...

    @property
    def engine(self) -> Engine: ...


@contextmanager
def begin_derived(database: _Store, name: str, seconds: float) -> Iterator[Connection]:
    """Give a connection in a transaction that changes derived tables only.

    It needs no write lock. Transactions of one ``name`` run one at a time. Raises
    :class:`StoreBusyError` after waiting ``seconds`` for another one.
    """
    url = database.url
    with translate_errors(url), database.engine.connect() as connection:
        own = connection.execution_options(isolation_level="READ COMMITTED")
        with own.begin():
            _wait_for_lock(own, f"derive {name} ", max(1, round(seconds * 1000)))
            yield own


def make_engine(url: URL) -> Engine:
    """Return an engine with one snapshot per transaction; raise :class:`MissingExtraError`."""
    url = url.set(drivername="postgresql+psycopg", query={**_PATIENCE, **url.query})
    try:
        engine = create_engine(
            url,
            isolation_level="REPEATABLE READ",
            pool_pre_ping=True,
            pool_size=_POOL,
            max_overflow=_MOST_MORE,
            hide_parameters=True,  # keep text of documents out of errors
        )
    except ModuleNotFoundError as error:
        raise MissingExtraError("a store in Postgres", "postgres") from error
    event.listen(engine, "connect", _require_unicode, insert=True)  # the dialect reads texts next
    event.listen(engine, "connect", _read_numbers)
    event.listen(engine, "before_cursor_execute", lambda *_: check_time())
    return engine


def has_schema(url: URL) -> bool:
    """Return whether the database contains a store."""
    engine = make_engine(url)
    try:
        with translate_errors(url), engine.connect() as connection:
            return inspect(connection).has_table("alembic_version")
    finally:
        engine.dispose()


def _wait_for_lock(connection: Connection, purpose: str, milliseconds: int) -> None:
    connection.execute(_WAIT, {"purpose": purpose, "milliseconds": str(milliseconds)})


def _require_unicode(connection: Any, _record: object) -> None:
    """Raise :class:`ConfigError` for a database whose encoding lacks characters."""
    encoding = connection.info.parameter_status("server_encoding")
    if encoding not in ("UTF8", None):  # None: a proxy hides it
        raise ConfigError(
            f"the database stores texts as {encoding}, which lacks characters: create one with "
            "createdb --encoding=UTF8 --template=template0"
        )


def _read_numbers(connection: Any, _record: object) -> None:
    """Return sums of whole numbers as ``int``, as SQLite does."""
    from psycopg.adapt import Loader

    class _NumberLoader(Loader):
        def load(self, data: Any) -> int | float:
            digits = bytes(data).decode()
            return int(digits) if digits.lstrip("-").isdigit() else float(digits)

    connection.adapters.register_loader("numeric", _NumberLoader)
