"""What Postgres and its driver say went wrong, as errors that tell what to do about it.

Errors are told apart by their SQLSTATE (https://www.postgresql.org/docs/current/errcodes-appendix.html)
and, where there is no connection that could give one, by the words of the client's library.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError

from catalog.core.errors import (
    CatalogError,
    ConfigError,
    StoreBusyError,
    StoreDamagedError,
    StoreError,
    StoreUnreachableError,
)

_log = logging.getLogger(__name__)

_BUSY = {
    "55P03": "another process is writing to the store; try again",
    "40001": "another process changed the same rows; try again",
    "40P01": "another process changed the same rows; try again",
    "53300": "the database server has too many connections; try again, or allow it more",
    "57P03": "the database server is starting or stopping; try again",
}
_REFUSED = {
    "53100": "the disk of the database server is full: make room there",
    "53200": "the database server is out of memory",
    "25006": "the database is read-only: give the address of one that can be written to",
    "42501": "its user may not do that: grant the rights to the tables of the store",
    "57014": "the database server cancelled it: it took longer than statement_timeout allows",
}
_BUSY_AT_CONNECTING = (  # where the client's library gives no SQLSTATE
    ("too many", "53300"),
    ("remaining connection slots", "53300"),
    ("the database system is", "57P03"),
)
_AT_CONNECTING = (
    ("password authentication failed", "it refuses the user or the password"),
    ("no password supplied", "it wants a password, and the address has none"),
    ("pg_hba.conf", "it lets nobody in from here with that user"),
    ("role", "it has no such user"),
    ("database", "it has no such database: createdb, or correct the name"),
)
_DAMAGE = ("XX001", "XX002")
_MISSING = ("42P01", "42703")  # a table, a column


def address_of(url: URL) -> str:
    """Return where a database is, without password."""
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
    """Turn the driver's errors on that database into ours, so that callers can tell what to do."""
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
        return StoreDamagedError(f"the store {place} cannot be read: {text}; put a copy back")
    if error.connection_invalidated or state is None or state.startswith(("08", "57P")):
        return _connection_error(str(original), place) if _is_connection(error) else None
    if _may_quote(error):
        _log.error("Postgres says %s of: %s", state, error.statement)  # no value is in it
        if state in _MISSING:
            return StoreDamagedError(
                f"the store {place} lacks a table or a column ({state}): put a copy back"
            )
        return StoreError(f"the store {place} failed: {type(original).__name__} ({state})")
    return StoreError(f"the store {place} failed: {text}")


def _may_quote(error: DBAPIError) -> bool:
    """Tell whether what the server says of a statement may repeat what is in a document."""
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
