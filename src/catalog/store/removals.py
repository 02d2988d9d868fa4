"""Removing a dataset from the truth, with a note of it until nothing derived is left."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable

from sqlalchemy import Connection, delete, func, insert, select

from catalog.core.errors import StoreFullError
from catalog.store import embedding_cache, llm_cache
from catalog.store.database import INDEX_TOKENS, Database, read_meta, set_meta
from catalog.store.engine_types import change_stamp
from catalog.store.filter_sql import among
from catalog.store.schema import chunks, datasets, documents, meta, outbox

_GROUP = 64  # documents
_NOTE = "removed:"  # with a dataset's name: what was derived of it may still be there
_OF_DATASET = ("agreement:", "answer_bound:", "waiting:", _NOTE, INDEX_TOKENS)
_LEARNT = "balance:"  # with a hash: the entry itself says of which dataset it is


def count_rows(connection: Connection, dataset: str) -> tuple[int, int]:
    """Count the documents and the chunks of a dataset."""
    queries = (
        select(func.count()).where(table.c.dataset == dataset) for table in (documents, chunks)
    )
    of_documents, of_chunks = (connection.scalar(query) or 0 for query in queries)
    return of_documents, of_chunks


def remove_stored(database: Database, dataset: str, make_room: Callable[[], object]) -> None:
    """Remove a dataset with all that hangs on it, and what only it needed of the caches.

    Searches see it whole, or not at all. On a full disk ``make_room`` is called, and the documents
    go in groups: SQLite's log has to hold each page that a transaction changes. A search meanwhile
    finds those that are left. Raises :class:`StoreFullError` if there is no room for one of them.
    """
    try:
        with database.write() as connection:
            _remove_whole(connection, dataset, time.time())
    except StoreFullError:
        make_room()
        _remove_in_groups(database, dataset)


def _remove_whole(connection: Connection, dataset: str, now: float) -> None:
    """Remove a dataset in one transaction.

    No index of it is of the truth any more, and a note says that it is to be removed, until
    :func:`forget_removal`. Answers that a stopped evaluation keeps go, whichever dataset they are
    from. What was asked, and what was measured on it, stays.
    """
    connection.execute(delete(datasets).where(datasets.c.name == dataset))
    connection.execute(delete(outbox).where(outbox.c.dataset == dataset))
    learnt = select(meta.c.key, meta.c.value).where(meta.c.key.startswith(_LEARNT))
    of_it = [key for key, value in connection.execute(learnt) if _owner(value) == dataset]
    of_it += [f"{kind}{dataset}" for kind in _OF_DATASET]
    connection.execute(delete(meta).where(among(meta.c.key, of_it)))
    set_meta(connection, f"{INDEX_TOKENS}{dataset}", secrets.token_hex(16))
    connection.execute(insert(meta).values(key=f"{_NOTE}{dataset}", value="yes"))
    embedding_cache.purge_unused(connection)
    llm_cache.purge(connection, before=0.0)
    llm_cache.drop_expired(connection, "answer", before=now)


def _remove_in_groups(database: Database, dataset: str) -> None:
    size, is_left = _GROUP, True
    while is_left:
        try:
            with database.write() as connection:
                is_left = _remove_some(connection, dataset, size)
        except StoreFullError:
            if size == 1:
                raise
            size //= 2
    with database.write() as connection:
        _remove_whole(connection, dataset, time.time())
    database.engine.dispose()  # its connections empty the log at each commit, which takes long


def _remove_some(connection: Connection, dataset: str, size: int) -> bool:
    """Remove some documents and their vectors; return whether there were any."""
    connection.exec_driver_sql("PRAGMA wal_autocheckpoint = 1")  # use the log's room again
    of_it = select(documents.c.id).where(documents.c.dataset == dataset)
    numbers = list(connection.scalars(of_it.order_by(documents.c.id).limit(size)))
    connection.execute(delete(documents).where(among(documents.c.id, numbers)))
    change_stamp(connection, dataset, time.time())
    embedding_cache.purge_unused(connection)
    return bool(numbers)


def is_removed(connection: Connection, dataset: str) -> bool:
    """Tell whether what was derived of a removed dataset may still be there."""
    return read_meta(connection, f"{_NOTE}{dataset}") is not None


def list_removed(connection: Connection) -> list[str]:
    """Return the names of removed datasets of which something derived may still be there."""
    keys = connection.scalars(select(meta.c.key).where(meta.c.key.startswith(_NOTE)))
    return sorted(key.removeprefix(_NOTE) for key in keys)


def forget_removal(connection: Connection, dataset: str) -> None:
    """Drop the note: nothing is left, or the name is given again and its indexes are made anew."""
    connection.execute(delete(meta).where(meta.c.key == f"{_NOTE}{dataset}"))


def _owner(learnt: str) -> object:
    try:
        return json.loads(learnt).get("of")
    except (ValueError, AttributeError):
        return None
