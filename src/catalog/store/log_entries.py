"""The rows of the log: requests at an edge and their outcome, without text of documents."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, true

from catalog.core.ids import sha256_hex
from catalog.core.text import compose, storable
from catalog.store.schema import query_log

_DROPPED_AT_ONCE = 200  # entries of either kind, with each write
_JSON = ("datasets", "passages", "stages", "errors")


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A question or search and its outcome.

    ``query`` is ``None`` if words are not logged; ``query_hash`` is equal for queries that differ
    in case and white space. ``passages`` are (chunk id, score), best first; ``stages`` (name,
    status, milliseconds); ``errors`` class names, preceded by the stage's name if there was one.
    Times are in milliseconds, ``asked_at`` in seconds from 1970. ``abstained`` is the reason of an
    abstention. ``cost`` is in the currency of the settings' prices. ``None`` is unknown or missing.
    ``id`` numbers the entries of a store; it is 0 before the entry is written.
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


def add_entries(connection: Connection, entries: Iterable[LogEntry], *, keep_text: bool) -> None:
    """Write entries with the hash of their query; its words are stored only with ``keep_text``."""
    for entry in entries:
        query, values = entry.query or "", asdict(entry)
        del values["id"]
        values |= {name: json.dumps(values[name]) for name in _JSON}
        hashed = sha256_hex(storable(" ".join(compose(query).casefold().split())))[:32]
        values |= {"query": storable(query) if keep_text else None, "query_hash": hashed}
        connection.execute(insert(query_log).values(values))


def drop_old_entries(connection: Connection, *, before: float, at_most: int) -> int:
    """Drop entries before a time and entries beyond ``at_most``; return the number dropped.

    One call drops a few hundred, oldest first, so that no write is slow. Later calls drop the rest.
    """
    number = query_log.c.id
    last = connection.scalar(select(func.max(number))) or 0
    expired = select(number).where(query_log.c.asked_at < before).order_by(query_log.c.asked_at)
    surplus = select(number).where(number <= last - at_most).order_by(number)
    old = (
        delete(query_log).where(number.in_(some.limit(_DROPPED_AT_ONCE)))
        for some in (expired, surplus)
    )
    return sum(connection.execute(statement).rowcount for statement in old)


def read_entries(
    connection: Connection, *, since: float = 0.0, limit: int | None = None
) -> Iterator[LogEntry]:
    """Yield the entries since that time, newest first."""
    query = select(query_log).where(query_log.c.asked_at >= since)
    order = query.order_by(query_log.c.asked_at.desc(), query_log.c.id.desc())
    return map(_entry, connection.execute(order.limit(limit)).all())


def find_entry(connection: Connection, number: int) -> LogEntry | None:
    """Return the entry of that number, ``None`` if it is missing."""
    row = connection.execute(select(query_log).where(query_log.c.id == number)).first()
    return None if row is None else _entry(row)


def clear_entries(connection: Connection, *, before: float | None = None) -> int:
    """Drop all entries, or those before a time; return the number dropped."""
    wanted = true() if before is None else query_log.c.asked_at < before
    return connection.execute(delete(query_log).where(wanted)).rowcount


def _entry(row: Row[Any]) -> LogEntry:
    read = {name: json.loads(getattr(row, name)) for name in _JSON}
    lists = {
        name: tuple(tuple(one) if isinstance(one, list) else one for one in items)
        for name, items in read.items()
    }
    return LogEntry(**dict(row._mapping) | lists)
