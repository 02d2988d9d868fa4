"""Count the content of a dataset, and look for damage in the store."""

from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, distinct, func, select, true

from catalog.store.document_names import find_groups
from catalog.store.embedding_cache import waiting_key
from catalog.store.filter_sql import DatasetNames, of_datasets
from catalog.store.phrases import is_postgres
from catalog.store.schema import (
    chunk_windows,
    chunks,
    document_fields,
    documents,
    embedded_windows,
    meta,
)

_SHOWN = 3  # problems in the database
_COUNT = func.count()


def find_damage(connection: Connection) -> str | None:
    """Return the damage found by SQLite's own checks; Postgres has none."""
    if is_postgres(connection):
        return None
    check = connection.exec_driver_sql(f"PRAGMA integrity_check({_SHOWN})").scalars().all()
    lost = connection.exec_driver_sql("PRAGMA foreign_key_check").scalars().all()
    orphans = [f"a row of {table} has no owner" for table in lost[:_SHOWN]]
    return "; ".join(orphans if check == ["ok"] else check) or None


@dataclass(frozen=True, slots=True)
class Totals:
    """The present content of a dataset; all files of one recording count as one document.

    ``embedded`` counts chunks with a vector for at least one window. After a change of model the
    windows of a chunk are not known, and it counts as one window.
    """

    documents: int
    chunks: int
    embedded: int
    windows: int
    vectors: int


def count_totals(connection: Connection, dataset: str, *, by_note: bool = False) -> Totals:
    """Count documents, chunks, windows, and windows that have a vector.

    ``by_note`` believes the store's note that none waits for one, which saves most of the time.
    """
    of_dataset = chunks.c.dataset == dataset
    outer = chunks.outerjoin(chunk_windows)
    counts = (
        select(_COUNT).select_from(outer).where(of_dataset),
        select(_COUNT).where(of_dataset),
        select(_COUNT).where(documents.c.dataset == dataset),
        select(meta.c.value).where(meta.c.key == waiting_key(dataset)),
        select(document_fields.c.field).where(document_fields.c.field == "media").limit(1),
    )
    query = select(*(one.scalar_subquery() for one in counts))
    windows, passages, stored, note, media = connection.execute(query).one()
    none_waits = by_note and note is None
    groups = find_groups(connection, dataset).values() if media else ()
    return Totals(
        documents=stored - sum(len(group) - 1 for group in groups),
        chunks=passages,
        embedded=passages if none_waits else count_embedded(connection, dataset),
        windows=windows,
        vectors=windows if none_waits else count_vectors(connection, dataset),
    )


def count_embedded(
    connection: Connection, dataset: str, allowed: ColumnElement[bool] | None = None
) -> int:
    """Count the chunks of the dataset that have a vector, the ``allowed`` ones if given."""
    query = select(func.count(distinct(chunks.c.seq))).select_from(embedded_windows)
    query = query.where(chunks.c.dataset == dataset, true() if allowed is None else allowed)
    return connection.scalar(query) or 0


def count_vectors(connection: Connection, dataset: DatasetNames) -> int:
    """Count the windows that have a vector, which is the number of points in a vector index."""
    query = select(_COUNT).select_from(embedded_windows)
    return connection.scalar(query.where(of_datasets(chunks.c.dataset, dataset))) or 0


def count_modalities(
    connection: Connection, dataset: str, allowed: ColumnElement[bool] | None = None
) -> dict[str, int]:
    """Count passages by modality, the ``allowed`` ones if given."""
    kind, is_allowed = chunks.c.modality, true() if allowed is None else allowed
    query = select(kind, _COUNT).where(chunks.c.dataset == dataset, is_allowed)
    return {row[0]: row[1] for row in connection.execute(query.group_by(kind).order_by(kind))}


def database_bytes(connection: Connection) -> int:
    """Return the size of the store's file or database in bytes, without the write-ahead log."""
    if is_postgres(connection):
        size = connection.exec_driver_sql("SELECT pg_database_size(current_database())")
        return int(size.scalar_one())
    pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
    return int(pages * connection.exec_driver_sql("PRAGMA page_size").scalar_one())
