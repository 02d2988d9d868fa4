"""The rows of the log: calls at an edge and their outcome, without text of documents."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, true

from catalog.core.text import compose, storable
from catalog.store.checksums import count_damaged_rows, row_checksum, seal_rows
from catalog.store.database import read_meta, set_meta
from catalog.store.schema import query_log

_KEY = "log_key"
_HASH_DIGITS = 32
_DROPPED_AT_ONCE = 200  # entries of either kind, with each write
_JSON = ("datasets", "passages", "stages", "errors")


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One question or search, and how it went.

    ``query`` is ``None`` where its words are not kept, and ``query_hash`` tells in either case that
    the same was asked. ``passages`` are (chunk id, score), best first; ``stages`` (name, status,
    milliseconds); ``errors`` class names, after the name of their stage if in one. Times are in
    milliseconds, ``asked_at`` in seconds since 1970. ``abstained`` is the reason of an answer that
    is none. ``cost`` is in the currency of the settings' prices. ``None`` is unknown, or not there.
    ``id`` counts the entries of a store; 0 before it is written.
    """

    asked_at: float
    verb: str
    edge: str
    elapsed_ms: float
    query: str | None = None
    query_hash: str = ""
    datasets: tuple[str, ...] = ()
    role: str | None = None
    agent: str | None = None
    passages: tuple[tuple[str, float], ...] = ()
    confidence: float | None = None
    abstained: str | None = None
    model: str | None = None
    profile: str | None = None
    retrieval_ms: float | None = None
    generation_ms: float | None = None
    prompt_tokens: int | None = None
    reply_tokens: int | None = None
    cost: float | None = None
    stages: tuple[tuple[str, str, float], ...] = ()
    errors: tuple[str, ...] = ()
    id: int = 0


def hash_query(connection: Connection, query: str) -> str:
    """Return 32 hexadecimal digits: equal for questions of one store that differ in case or blanks.

    HMAC-SHA-256 with a key that the store makes for itself: equal questions of other stores have
    other hashes, and nobody without the store can try guesses.
    """
    set_meta(connection, _KEY, secrets.token_hex(32), replace=False)
    key = bytes.fromhex(read_meta(connection, _KEY) or "")
    words = " ".join(compose(query).casefold().split())
    return hmac.new(key, storable(words).encode(), hashlib.sha256).hexdigest()[:_HASH_DIGITS]


def add_entries(connection: Connection, entries: Iterable[LogEntry], *, keep_text: bool) -> None:
    """Write entries, each with the hash of its query, and with its words only to ``keep_text``."""
    for entry in entries:
        query = entry.query or ""
        values = asdict(entry) | {
            "query": storable(query) if keep_text else None,
            "query_hash": hash_query(connection, query),
        }
        del values["id"]
        values |= {name: json.dumps(values[name]) for name in _JSON}
        key = connection.execute(insert(query_log).values(values)).inserted_primary_key
        seal_rows(connection, query_log, query_log.c.id == (key[0] if key else 0))


def drop_old_entries(connection: Connection, *, before: float, at_most: int) -> int:
    """Drop some entries of before that time and beyond that number; return how many.

    It drops a few hundred at once, oldest first, so that no write is slow: what is left of them
    goes with the next ones.
    """
    last = connection.scalar(select(func.max(query_log.c.id))) or 0
    expired = select(query_log.c.id).where(query_log.c.asked_at < before)
    surplus = select(query_log.c.id).where(query_log.c.id <= last - at_most)
    return sum(
        connection.execute(
            delete(query_log).where(query_log.c.id.in_(some.limit(_DROPPED_AT_ONCE)))
        ).rowcount
        for some in (
            expired.order_by(query_log.c.asked_at),
            surplus.order_by(query_log.c.id),
        )
    )


def read_entries(
    connection: Connection, *, since: float = 0.0, limit: int | None = None
) -> Iterator[LogEntry]:
    """Yield the entries since that time, newest first; one that is damaged is left out."""
    query = select(query_log).where(query_log.c.asked_at >= since)
    order = query.order_by(query_log.c.asked_at.desc(), query_log.c.id.desc())
    return _whole(connection.execute(order.limit(limit)).all())


def find_entry(connection: Connection, number: int) -> LogEntry | None:
    """Return the entry of that number, ``None`` without one or if it is damaged."""
    query = select(query_log).where(query_log.c.id == number)
    return next(_whole(connection.execute(query).all()), None)


def clear_entries(connection: Connection, *, before: float | None = None) -> int:
    """Drop all entries, or those of before that time; return how many."""
    wanted = true() if before is None else query_log.c.asked_at < before
    return connection.execute(delete(query_log).where(wanted)).rowcount


def count_damaged_entries(connection: Connection) -> int:
    """Count the entries that are not as they were written."""
    return count_damaged_rows(connection, query_log, true())


def _whole(rows: Sequence[Row[Any]]) -> Iterator[LogEntry]:
    for row in rows:
        if row_checksum(row[:-1]) == row.checksum:
            yield _entry(row)


def _entry(row: Row[Any]) -> LogEntry:
    values = dict(row._mapping)
    del values["checksum"]
    for name in _JSON:
        values[name] = tuple(
            tuple(item) if isinstance(item, list) else item for item in json.loads(values[name])
        )
    return LogEntry(**values)
