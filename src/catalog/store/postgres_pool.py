"""The connections to a store in a Postgres database, and its transactions.

A reader sees one state of the store until it is done (REPEATABLE READ). A writer takes an advisory
lock first (https://www.postgresql.org/docs/current/explicit-locking.html#ADVISORY-LOCKS), which
every process of every machine sees, and then reads what is committed at each statement (READ
COMMITTED): with one writer at a time that is what it would see in SQLite.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError

from catalog.core.errors import (
    ConfigError,
    MissingExtraError,
    StoreBusyError,
    StoreUnreachableError,
)
from catalog.core.files import make_folder
from catalog.core.ids import sha1_hex
from catalog.store.migrate import LOCK_SECONDS, PREPARING
from catalog.store.postgres_claims import Claims
from catalog.store.postgres_errors import address_of, translate_errors
from catalog.store.sqlite_pool import BUSY_TIMEOUT_MS

_BUSY = "another process is writing to the store; try again"
# An advisory lock is of the whole database, which may have a store in each of its schemas.
_LOCK = "hashtext('catalog ' || :purpose || current_schema())::bigint"
_WAIT = text(
    f"SELECT set_config('lock_timeout', :milliseconds, true), pg_advisory_xact_lock({_LOCK})"
)
_TRY = text(f"SELECT pg_try_advisory_xact_lock({_LOCK})")
_TRY_LONG = text(f"SELECT pg_try_advisory_lock({_LOCK})")  # until it is released, or the end
_HOLD_LONG = text(f"SELECT pg_advisory_lock({_LOCK})")
_RELEASE = text(f"SELECT pg_advisory_unlock({_LOCK})")
_HOLDER = text(f"SELECT pg_backend_pid() AS holder, {_LOCK} & 4294967295 AS number")
_IS_HELD = text(
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = :holder "
    "AND objid::bigint = :number"
)
_TIMEOUT = text("SELECT set_config('lock_timeout', :milliseconds, false)")
_POOL = 5  # connections that are kept
_MOST_MORE = 60  # a server answers on 40 threads
_PATIENCE = {  # without these a host that is gone is waited for without end, or for hours
    "connect_timeout": "10",  # seconds, for each address of a host
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",  # milliseconds
}
logging.getLogger("psycopg").addHandler(logging.NullHandler())  # its errors are raised, too
_WORD = re.compile(r"[^A-Za-z0-9_.-]+")


class PostgresPool:
    """Hold the connections to one database; ``home`` is for what belongs beside the store."""

    shares_embedding = True

    def __init__(self, url: URL, home: Path) -> None:
        self._url = url
        name = _WORD.sub("-", url.database or "postgres")
        self.file = home / f"{name}-{sha1_hex(address_of(url))[:12]}"
        with suppress(OSError):  # who uses it will say so
            make_folder(home)
        self.engine: Engine = make_engine(url)
        self._thread = threading.local()  # of the thread that holds them: locks of datasets
        self._claims = Claims(self.engine, self.hold_preparation)

    @contextmanager
    def begin_write(self, *, wait: bool) -> Iterator[Connection]:
        """Give a connection in a transaction that holds the write lock; commit on leaving."""
        with self.engine.connect() as connection:
            writing = connection.execution_options(isolation_level="READ COMMITTED")
            with writing.begin():
                if wait:
                    _wait_for_lock(writing, "write", BUSY_TIMEOUT_MS)
                elif not writing.scalar(_TRY, {"purpose": "write"}):
                    raise StoreBusyError(_BUSY)
                self._require_dataset_lock(writing)
                yield writing

    @contextmanager
    def hold_preparation(self) -> Iterator[None]:
        """Hold the lock of whoever brings the schema up to date."""
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
        """Hold the lock of who indexes the dataset, whatever home or machine others run in."""
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
                with suppress(DBAPIError):  # a connection that is gone took the lock along
                    alone.execute(_RELEASE, named)

    def _require_dataset_lock(self, writing: Connection) -> None:
        """Raise :class:`StoreUnreachableError` if this thread has lost the lock of a dataset.

        The server gives it up with the connection, and another run may have begun since.
        """
        for held in getattr(self._thread, "held", ()):
            if not writing.scalar(_IS_HELD, held):
                raise StoreUnreachableError(
                    f"the connection to {address_of(self._url)} that held the lock of this run "
                    "was lost: another run may have begun"
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

    @contextmanager
    def claim(self, keys: Collection[str]) -> Iterator[Collection[str]]:
        """Give those of the keys to embed that no other run has claimed, until it is left."""
        with self.translate_errors(), self._claims.take(keys) as mine:
            yield mine

    def translate_errors(self) -> AbstractContextManager[None]:
        """Turn the driver's errors into ours."""
        return translate_errors(self._url)

    def require_content(self) -> None:
        """Do nothing: a server loses no store by itself."""

    def follow(self, *, to_write: bool = False) -> None:
        """Do nothing: each connection reads what is there now."""

    def find_replacement(self) -> bool:
        """Return that the store is the same one: the connections are to a database by name."""
        return False

    def note_identity(self) -> None:
        """Do nothing, as :meth:`find_replacement` needs none."""


class _Store(Protocol):
    @property
    def url(self) -> URL: ...

    @property
    def engine(self) -> Engine: ...


@contextmanager
def begin_derived(database: _Store, name: str, seconds: float) -> Iterator[Connection]:
    """Give a connection in a transaction that changes what is derived, and no row of the truth.

    It needs no write lock; of one ``name`` there is one at a time. Raises
    :class:`StoreBusyError` when another holds it for longer than ``seconds``.
    """
    url = database.url
    with translate_errors(url), database.engine.connect() as connection:
        own = connection.execution_options(isolation_level="READ COMMITTED")
        with own.begin():
            _wait_for_lock(own, f"derive {name} ", max(1, round(seconds * 1000)))
            yield own


def make_engine(url: URL) -> Engine:
    """Return an engine whose transactions see one state each; raise :class:`MissingExtraError`."""
    url = url.set(drivername="postgresql+psycopg", query={**_PATIENCE, **url.query})
    try:
        engine = create_engine(
            url,
            isolation_level="REPEATABLE READ",
            pool_pre_ping=True,
            pool_size=_POOL,
            max_overflow=_MOST_MORE,
            hide_parameters=True,  # in errors: they may be of a document
        )
    except ModuleNotFoundError as error:
        raise MissingExtraError("a store in Postgres", "postgres") from error
    event.listen(engine, "connect", _require_unicode, insert=True)  # the dialect reads texts next
    event.listen(engine, "connect", _read_numbers)
    return engine


def has_schema(url: URL) -> bool:
    """Tell whether the database holds a store."""
    engine = make_engine(url)
    try:
        with translate_errors(url), engine.connect() as connection:
            return inspect(connection).has_table("alembic_version")
    finally:
        engine.dispose()


def _wait_for_lock(connection: Connection, purpose: str, milliseconds: int) -> None:
    connection.execute(_WAIT, {"purpose": purpose, "milliseconds": str(milliseconds)})


def _require_unicode(connection: Any, _record: object) -> None:
    """Raise :class:`ConfigError` for a database that cannot hold every text."""
    encoding = connection.info.parameter_status("server_encoding")
    if encoding not in ("UTF8", None):  # None: what stands between does not tell
        raise ConfigError(
            f"the database stores texts as {encoding}, which lacks characters: make one with "
            "createdb --encoding=UTF8 --template=template0"
        )


def _read_numbers(connection: Any, _record: object) -> None:
    """Have sums of whole numbers be whole numbers in Python, as SQLite gives them."""
    from psycopg.adapt import Loader

    class _NumberLoader(Loader):
        def load(self, data: Any) -> int | float:
            digits = bytes(data).decode()
            return int(digits) if digits.lstrip("-").isdigit() else float(digits)

    connection.adapters.register_loader("numeric", _NumberLoader)
