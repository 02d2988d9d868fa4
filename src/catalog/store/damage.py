"""Dropping what is damaged, so that it can be made anew from its files."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, delete, select, text
from sqlalchemy.exc import IntegrityError

from catalog.core.errors import StoreDamagedError
from catalog.store import llm_cache
from catalog.store.checksums import find_damaged_documents, find_damaged_vectors
from catalog.store.engine_types import change_stamp
from catalog.store.filter_sql import among
from catalog.store.full_text import CARDS, is_postgres, rebuild_full_text
from catalog.store.revisions import remove_numbered
from catalog.store.schema import (
    chunk_windows,
    chunks,
    datasets,
    document_cards,
    documents,
    embeddings,
)
from catalog.store.waiting import settle_waiting


def drop_damaged(connection: Connection, dataset: str, now: float) -> int:
    """Remove what is not what was stored, so that it can be made anew from its files.

    That is the dataset's damaged documents, whose number is returned, every damaged vector and
    answer of a model, documents of no dataset, and all cards. Passages of other datasets that lose
    a vector are noted as waiting for one.
    """
    rebuild_full_text(connection)  # as the rows are: else none could go
    for derived in (document_cards, CARDS):
        connection.execute(delete(derived))
    llm_cache.drop_damaged(connection)
    connection.execute(delete(documents).where(documents.c.dataset.not_in(select(datasets.c.name))))
    document_ids = [number for number, _ in find_damaged_documents(connection, dataset)]
    remove_numbered(connection, dataset, document_ids, now)
    keys = list(find_damaged_vectors(connection))
    connection.execute(delete(embeddings).where(among(embeddings.c.embed_key, keys)))
    for name in _datasets_of_vectors(connection, keys):
        settle_waiting(connection, name)
        change_stamp(connection, name, now)
    return len(document_ids)


def rebuild_row_indexes(connection: Connection) -> None:
    """Rebuild SQLite's own indexes from their rows; do nothing on Postgres.

    Raises :class:`StoreDamagedError` where two rows have a key that only one may have.
    """
    if is_postgres(connection):
        return
    try:
        connection.execute(text("REINDEX"))
    except IntegrityError as error:
        raise StoreDamagedError(f"two rows have one key: {error.orig}") from error


def _datasets_of_vectors(connection: Connection, keys: Sequence[str]) -> list[str]:
    joined = chunk_windows.join(chunks, chunks.c.seq == chunk_windows.c.seq)
    query = select(chunks.c.dataset).select_from(joined).distinct()
    return sorted(connection.scalars(query.where(among(chunk_windows.c.embed_key, keys))))
