"""Copying a whole store into another database, of either kind, row by row.

All rows go in one transaction: a move that is cut short has moved nothing and is run again. What
came over is counted and held against its checksums before that transaction ends.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import Connection, Table, delete, func, insert, select, text, true, update

from catalog.core.errors import InputError, StoreBusyError, StoreDamagedError
from catalog.store import schema
from catalog.store.checksums import find_damaged_documents, find_damaged_vectors, seal_rows
from catalog.store.database import Database, forget_indexes
from catalog.store.full_text import CARDS, index_cards, index_chunks
from catalog.store.row_numbers import last_number, note_last_number
from catalog.store.schema import chunks, datasets, documents, outbox, query_log

Progress = Callable[[str, int], None]  # a table, and its rows that were copied
_NUMBERED = (documents, chunks, outbox, query_log)
_ORDERED = ("document_fields", "chunk_sections")  # tables without a key, in the order they came
_ROWS = 500  # read and written at once


def copy_store(
    source: Database, target: Database, progress: Progress = lambda *_: None
) -> dict[str, int]:
    """Copy every row of a store into an empty one; return the number of rows by table.

    Ids and results stay the same; indexes are derived anew from the new store, with no model.
    Raises :class:`InputError` for a target that holds something, :class:`StoreBusyError` when the
    source was written to meanwhile, and :class:`StoreDamagedError` when what came over is not
    what was there.
    """
    with source.snapshot(), source.read() as read, target.write() as write:
        _require_empty(write)
        before = _states(read)
        counts = {
            table.name: _copy_table(read, write, table, progress)
            for table in schema.metadata.sorted_tables
        }
        _copy_cards(read, write)
        for table in _NUMBERED:
            note_last_number(write, table, last_number(read, table))
        _compare(read, write, counts)
        forget_indexes(write)
        write.execute(update(datasets).values(state=secrets.token_hex(8)))
        seal_rows(write, datasets, true())
        with source.read(latest=True) as now:
            if _states(now) != before:
                raise StoreBusyError("the store was written to meanwhile; try again")
    return counts


def _require_empty(connection: Connection) -> None:
    for table in schema.metadata.sorted_tables:
        if table is schema.meta:
            continue
        if connection.execute(select(table).limit(1)).first() is not None:
            raise InputError(f"there is a store already, with {table.name}: name an empty database")
    connection.execute(delete(schema.meta))  # its own id: the store keeps the one it has


def _states(connection: Connection) -> list[Any]:
    rows = connection.execute(select(datasets).order_by(datasets.c.name)).all()
    return [tuple(row) for row in rows]


def _copy_table(read: Connection, write: Connection, table: Table, progress: Progress) -> int:
    count = 0
    for rows in _batches(read, table):
        write.execute(insert(table), rows)
        if table is chunks:
            index_chunks(write, rows)
        count += len(rows)
        progress(table.name, count)
    return count


def _batches(read: Connection, table: Table) -> Iterator[list[dict[str, Any]]]:
    order = [text(f"{table.name}.rowid")] if table.name in _ORDERED else list(table.primary_key)
    query = select(table).order_by(*order).execution_options(yield_per=_ROWS)
    with read.execute(query) as result:
        for rows in result.mappings().partitions():
            yield [dict(row) for row in rows]


def _copy_cards(read: Connection, write: Connection) -> None:
    """Copy what cards are found by: it is made of more than is stored elsewhere."""
    query = select(CARDS).order_by(CARDS.c.rowid).execution_options(yield_per=_ROWS)
    with read.execute(query) as result:
        for rows in result.mappings().partitions():
            index_cards(write, [dict(row) for row in rows])


def _compare(read: Connection, write: Connection, counts: dict[str, int]) -> None:
    """Raise :class:`StoreDamagedError` unless all rows came over as they were."""
    for table in schema.metadata.sorted_tables:
        written = write.scalar(select(func.count()).select_from(table))
        if written != counts[table.name]:
            raise StoreDamagedError(
                f"{written} rows of {counts[table.name]} came over into {table.name}"
            )
    for name in write.scalars(select(datasets.c.name)).all():
        damaged = dict(find_damaged_documents(write, name))
        if damaged and damaged != dict(find_damaged_documents(read, name)):
            raise StoreDamagedError(f"{len(damaged)} documents of {name!r} came over changed")
    vectors = set(find_damaged_vectors(write))
    if vectors and vectors != set(find_damaged_vectors(read)):
        raise StoreDamagedError(f"{len(vectors)} vectors came over changed")
