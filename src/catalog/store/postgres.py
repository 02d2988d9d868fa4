"""A store in Postgres: its connections, transactions, locks and errors.

A reader sees one state until it is done (REPEATABLE READ). A writer first takes an advisory lock,
which excludes writers on all machines; its statements then read what is committed (READ COMMITTED).

In addition to :mod:`catalog.store.schema`, it has functions that SQLite has built in, a ``rowid``
for tables without a key (to keep the order of insertion), and the words of passages and cards.
These are generated columns, cut by a text search configuration of the store: English endings, as
FTS5's, and no stop words. Postgres stores at most 255 positions of a word in a row, and none after
the 16,383rd word; phrases beyond these limits are not found.
"""

import logging
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

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
from catalog.store.schema import BUSY_TIMEOUT_MS
from catalog.store.sql_forms import ACCENTS, CONFIGURATION

_log = logging.getLogger(__name__)
logging.getLogger("psycopg").addHandler(logging.NullHandler())  # its errors are raised, too

_WRITER_BUSY = "another process is writing to the store; try again"
_SAME_ROWS = (StoreBusyError, "another process changed the same rows; try again")
_DAMAGED = (StoreDamagedError, "it cannot be read, or lacks a table or column: restore a copy")
# https://www.postgresql.org/docs/current/errcodes-appendix.html
_BY_STATE: dict[str, tuple[type[StoreError], str]] = {
    "55P03": (StoreBusyError, _WRITER_BUSY),
    "40001": _SAME_ROWS,
    "40P01": _SAME_ROWS,
    "53100": (StoreError, "the disk of the database server is full: free some space there"),
    "53200": (StoreError, "the database server is out of memory"),
    "57014": (
        StoreError,
        "the server cancelled a statement that took longer than statement_timeout",
    ),
    "25006": (StoreError, "the database is read-only: use the address of a writable one"),
    "42501": (StoreError, "the user has no right to do that: grant rights on the store's tables"),
    **dict.fromkeys(("XX001", "XX002", "42P01", "42703"), _DAMAGED),
}
# libpq gives no SQLSTATE for what the server says at connecting.
_TRY_AGAIN = re.compile("too many (connections|clients)|connection slots|the database system is")
# An advisory lock is for the whole database, which may have a store in each of its schemas.
_LOCK = "hashtext('catalog ' || :purpose || current_schema())::bigint"
_LIMIT = "SELECT set_config('lock_timeout', :milliseconds, true)"
_WAIT = text(f"{_LIMIT}, pg_advisory_xact_lock({_LOCK})")
_TRY = text(f"SELECT pg_try_advisory_xact_lock({_LOCK})")
_HOLD = text(f"{_LIMIT}, pg_advisory_lock({_LOCK})")  # until release or disconnection
_TRY_TO_HOLD = text(f"SELECT pg_try_advisory_lock({_LOCK})")
_RELEASE = text(f"SELECT pg_advisory_unlock({_LOCK})")
_PATIENCE = {  # without these a connection to a host that is gone waits for hours or for ever
    "connect_timeout": "10",  # seconds, for each address of a host
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",  # milliseconds
}
_UNORDERED = ("document_fields", "chunk_sections")  # tables without a key
_MOST_CHARS = 200_000  # of a text, for its words: a tsvector takes a megabyte
_MARKS = r"[!-/:-@\[-`{{-¿×÷\u2000-\u206f\u3000-\u3003\u3008-\u301f\uff01-\uff0f]"
_WORDS = (
    f"setweight(to_tsvector('{CONFIGURATION}'::regconfig, regexp_replace(normalize(regexp_replace("
    f"left({{0}}, {_MOST_CHARS}), '{_MARKS}', ' ', 'g'), NFD), '{ACCENTS}', '', 'g')), '{{1}}')"
)
_WEIGHED = {
    "chunks": "title:A headings:B text:C",
    "document_cards_fts": "title:A name:B headings:C metadata:C summary:D",
}
_SETUP = """
CREATE TABLE document_cards_fts (
    rowid bigint PRIMARY KEY REFERENCES document_cards(document_id) ON DELETE CASCADE,
    title text, name text, headings text, summary text, metadata text
);

CREATE TEXT SEARCH DICTIONARY catalog_words (TEMPLATE = snowball, Language = english);

CREATE TEXT SEARCH CONFIGURATION catalog_words (COPY = pg_catalog.english);

ALTER TEXT SEARCH CONFIGURATION catalog_words
ALTER MAPPING REPLACE pg_catalog.english_stem WITH catalog_words
"""
_FOLD = """
CREATE FUNCTION catalog_casefold(word text)
RETURNS text LANGUAGE sql IMMUTABLE COST 10000 AS $$
    SELECT CASE
        WHEN octet_length(word) = length(word) THEN lower(word COLLATE "C")
        WHEN word !~ '[{several}]' THEN translate(word, '{cased}', '{folded}')
        ELSE {replaced}
    END
$$"""


class PostgresServer:
    """The connections to one database; ``home`` is the folder for local files."""

    identity = None

    def __init__(self, url: URL, home: Path) -> None:
        with suppress(OSError):  # the first use of the folder reports the error
            make_folder(home)
        self.address, self.translate_errors = address_of(url), partial(translate_errors, url)
        name = re.sub(r"[^A-Za-z0-9_.-]+", "-", url.database or "postgres")
        self.file = home / f"{name}-{sha1_hex(self.address)[:12]}"
        self.engine: Engine = _make_engine(url)
        self._thread = threading.local()  # the connections that hold a dataset's lock

    def identify(self) -> None:
        """Return nothing: connections are to a database by its name, which stays the same."""

    @contextmanager
    def begin_write(self, *, wait: bool) -> Iterator[Connection]:
        """Give a connection in a transaction that holds the write lock; commit on leaving."""
        with self.engine.connect() as connection:
            writing = connection.execution_options(isolation_level="READ COMMITTED")
            with writing.begin():
                if wait:
                    limit = {"purpose": "write", "milliseconds": str(BUSY_TIMEOUT_MS)}
                    writing.execute(_WAIT, limit)
                elif not writing.scalar(_TRY, {"purpose": "write"}):
                    raise StoreBusyError(_WRITER_BUSY)
                self._require_dataset_locks()
                yield writing

    @contextmanager
    def hold_dataset(
        self, dataset: str, *, seconds: float, busy: str, on_wait: Callable[[], None]
    ) -> Iterator[None]:
        """Hold the lock for indexing the dataset, across homes and machines."""
        named = {"purpose": f"dataset {dataset} "}
        with self.translate_errors(), self.engine.connect() as connection:
            alone = connection.execution_options(isolation_level="AUTOCOMMIT")
            if not alone.scalar(_TRY_TO_HOLD, named):
                on_wait()
                most = max(1, round(seconds * 1000)) if seconds >= 0 else 0  # 0: for ever
                try:
                    with self.translate_errors():
                        alone.execute(_HOLD, {**named, "milliseconds": str(most)})
                except StoreBusyError as error:
                    raise StoreBusyError(busy) from error
            held: list[Connection] = vars(self._thread).setdefault("held", [])
            held.append(alone)
            try:
                yield
            finally:
                held.remove(alone)
                with suppress(SQLAlchemyError):  # a lost connection has released the lock
                    alone.execute(_RELEASE, named)

    def _require_dataset_locks(self) -> None:
        """Raise :class:`StoreUnreachableError` if this thread has lost the lock of a dataset.

        The server releases the lock with the connection, and another run may have begun since then.
        """
        for connection in getattr(self._thread, "held", ()):
            with suppress(DBAPIError):
                if not connection.invalidated and connection.scalar(text("SELECT 1")):
                    continue
            raise StoreUnreachableError(
                f"the connection to {self.address} that held this run's lock was lost, so another "
                "run may have started"
            )


def address_of(url: URL) -> str:
    """Return the address of a database without its password."""
    host = url.host or str(url.query.get("host", "")) or None
    shown = URL.create("postgresql", url.username, None, host, url.port, url.database)
    return shown.render_as_string()


def has_schema(url: URL) -> bool:
    """Return whether the database contains a store."""
    engine = _make_engine(url)
    try:
        with translate_errors(url), engine.connect() as connection:
            return inspect(connection).has_table("meta")
    finally:
        engine.dispose()


def _make_engine(url: URL) -> Engine:
    url = url.set(drivername="postgresql+psycopg", query={**_PATIENCE, **url.query})
    try:
        engine = create_engine(
            url,
            isolation_level="REPEATABLE READ",
            pool_pre_ping=True,
            max_overflow=60,  # our server answers on 40 threads
            hide_parameters=True,  # keep text of documents out of errors
        )
    except ModuleNotFoundError as error:
        raise MissingExtraError("a store in Postgres", "postgres") from error
    event.listen(engine, "connect", _require_unicode, insert=True)  # the dialect reads texts next
    return engine


def _require_unicode(connection: Any, _record: object) -> None:
    """Raise :class:`ConfigError` for a database whose encoding lacks characters."""
    encoding = connection.info.parameter_status("server_encoding")
    if encoding not in ("UTF8", None):  # None: a proxy hides it
        raise ConfigError(
            f"the database stores texts as {encoding}, which lacks characters: create one with "
            "createdb --encoding=UTF8 --template=template0"
        )


@contextmanager
def translate_errors(url: URL) -> Iterator[None]:
    """Turn the driver's errors into ours, which name the cause and what to do.

    They quote nothing of the server but what it says at connecting: the rest may repeat documents.
    """
    try:
        yield
    except DBAPIError as error:
        raise _store_error(error, address_of(url), url.password) from None


def _store_error(error: DBAPIError, place: str, password: object) -> CatalogError:
    state, told = getattr(error.orig, "sqlstate", None), str(error.orig)
    if state in _BY_STATE:
        kind, meaning = _BY_STATE[state]
        return kind(f"the store {place}: {meaning}")
    hidden = told.replace(str(password), "…") if password else told
    told = " ".join(hidden.split())[:300]
    if state is None and type(error).__name__ == "ProgrammingError":
        return ConfigError(f"the address of the database {place} is wrong: {told}")
    if state in ("53300", "57P03") or (state is None and _TRY_AGAIN.search(told)):
        return StoreBusyError(f"the database server refuses {place}: {told}; try again")
    if state is None or error.connection_invalidated or state.startswith(("08", "57P")):
        return StoreUnreachableError(
            f"the database {place} cannot be reached: {told}; check IDX_DATABASE_URL, and that "
            "the server runs"
        )
    _log.error("Postgres reports %s of: %s", state, error.statement)  # no value is in it
    return StoreError(f"the store {place} failed: {type(error.orig).__name__} ({state})")


def create_own(connection: Connection) -> None:
    """Create these parts."""
    for statement in (*_SETUP.split(";\n\n"), _casefold_function()):
        connection.exec_driver_sql(statement.replace("%", "%%"))
    for table in _UNORDERED:
        added = "ADD COLUMN rowid bigint GENERATED ALWAYS AS IDENTITY"
        connection.exec_driver_sql(f"ALTER TABLE {table} {added}")
    for table, weights in _WEIGHED.items():
        pairs = (one.split(":") for one in weights.split())
        parts = (_WORDS.format(f"coalesce({name}, '')", weight) for name, weight in pairs)
        words = f"words tsvector GENERATED ALWAYS AS ({' || '.join(parts)}) STORED"
        connection.exec_driver_sql(f"ALTER TABLE {table} ADD COLUMN {words}")
        connection.exec_driver_sql(f"CREATE INDEX {table}_words ON {table} USING gin (words)")


def _casefold_function() -> str:
    """Return the function that folds like Python, which no collation of Postgres does."""
    folded = {
        one: whole
        for one in map(chr, range(sys.maxunicode + 1))
        if (whole := one.casefold()) != one and not 0xD800 <= ord(one) <= 0xDFFF
    }
    single = {one: whole for one, whole in folded.items() if len(whole) == 1}
    several = {one: whole for one, whole in folded.items() if len(whole) > 1}
    cased, small = "".join(single), "".join(single.values())
    replaced = f"translate(word, '{cased}', '{small}')"
    for one, whole in several.items():
        replaced = f"replace({replaced}, '{one}', '{whole}')"
    return _FOLD.format(several="".join(several), cased=cased, folded=small, replaced=replaced)
