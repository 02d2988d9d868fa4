"""Count the content of a dataset, and look for damage in the store."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Table, distinct, func, select, text, true
from sqlalchemy.exc import DatabaseError

from catalog.store.document_names import find_groups
from catalog.store.filter_sql import DatasetNames, of_datasets
from catalog.store.phrases import is_postgres
from catalog.store.schema import (
    chunk_sections,
    chunk_windows,
    chunks,
    dataset_settings,
    datasets,
    document_cards,
    document_fields,
    documents,
    embedded_windows,
    manifest,
    revisions,
)

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement

_SHOWN, _LOOKED_AT = 3, 100  # problems in the database
_OF_INDEX = re.compile(r"missing from index |wrong # of entries in index |differ from index ")
_PAGE = re.compile(r"\bpage (\d+)")


def find_damage(connection: Connection) -> tuple[str, bool] | None:
    """Return the damage found by SQLite's own check, and whether the rows are sound.

    Rows are sound if all damage is in their indexes. ``None`` without damage, and in Postgres,
    which has no such check.
    """
    if is_postgres(connection):
        return None
    check = connection.execute(text(f"PRAGMA integrity_check({_LOOKED_AT})"))
    lines = [line for row in check.scalars() for line in str(row).splitlines()]
    if lines == ["ok"]:
        return None
    of_pages = [line for line in lines if _OF_INDEX.search(line) is None and line[:1] != "*"]
    pages = {int(page) for line in of_pages for page in _PAGE.findall(line)}
    is_known = all(map(_PAGE.search, of_pages))
    return "; ".join(lines[:_SHOWN]), is_known and _are_of_indexes(connection, pages)


def _are_of_indexes(connection: Connection, pages: set[int]) -> bool:
    """Return whether all these pages of an SQLite file are known to belong to indexes."""
    query = text(
        "SELECT pageno FROM dbstat JOIN sqlite_master USING (name) WHERE type = 'index'"
    )  # https://sqlite.org/dbstat.html, which not every SQLite has
    try:
        return not pages or pages <= set(connection.scalars(query))
    except DatabaseError:
        return False


def count_orphans(connection: Connection) -> dict[str, int]:
    """Count rows without their owner, by table; a sound store has none."""
    owned: tuple[tuple[Table, str, Table, str], ...] = (
        (documents, "dataset", datasets, "name"),
        (revisions, "document_id", documents, "id"),
        (document_fields, "document_id", documents, "id"),
        (document_cards, "document_id", documents, "id"),
        (dataset_settings, "dataset", datasets, "name"),
        (manifest, "dataset", datasets, "name"),
        (chunks, "document_id", documents, "id"),
        (chunk_sections, "seq", chunks, "seq"),
        (chunk_windows, "seq", chunks, "seq"),
    )
    counts: dict[str, int] = {}
    for table, own, owner, key in owned:
        query = (
            select(func.count())
            .select_from(table.outerjoin(owner, table.c[own] == owner.c[key]))
            .where(owner.c[key].is_(None))
        )
        counts[table.name] = connection.scalar(query) or 0
    return counts


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


def count_totals(connection: Connection, dataset: str, *, none_waits: bool = False) -> Totals:
    """Count documents, chunks, windows, and windows that have a vector.

    ``none_waits`` promises that all windows have one, which saves most of the time.
    """
    count = func.count()
    of_dataset = chunks.c.dataset == dataset
    in_windows = select(count).select_from(chunks.outerjoin(chunk_windows)).where(of_dataset)
    windows = connection.scalar(in_windows) or 0
    passages = connection.scalar(select(count).where(of_dataset)) or 0
    embedded, vectors = passages, windows
    if not none_waits:
        embedded = count_embedded(connection, dataset)
        vectors = count_vectors(connection, dataset)
    stored = connection.scalar(select(count).where(documents.c.dataset == dataset)) or 0
    groups = find_groups(connection, dataset).values()
    return Totals(
        documents=stored - sum(len(group) - 1 for group in groups),
        chunks=passages,
        embedded=embedded,
        windows=windows,
        vectors=vectors,
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
    query = select(func.count()).select_from(embedded_windows)
    query = query.where(of_datasets(chunks.c.dataset, dataset))
    return connection.scalar(query) or 0


_PROSE = ("text", "ocr", "image_caption")


@dataclass(frozen=True, slots=True)
class ChunkSizes:
    """The sizes of a dataset's text passages (no transcripts, no frames), in the model's tokens.

    ``in_band`` is the share of passages with ``low`` to ``high`` tokens, ``None`` without passages.
    It leaves out documents that are shorter than ``low`` as a whole; ``short`` counts their
    passages. ``uncounted`` passages have no recorded size.
    """

    low: int
    high: int
    in_band: float | None
    short: int
    uncounted: int


def count_modalities(
    connection: Connection, dataset: str, allowed: ColumnElement[bool] | None = None
) -> dict[str, int]:
    """Count passages by modality, the ``allowed`` ones if given."""
    query = (
        select(chunks.c.modality, func.count())
        .where(chunks.c.dataset == dataset, true() if allowed is None else allowed)
        .group_by(chunks.c.modality)
        .order_by(chunks.c.modality)
    )
    return {row[0]: row[1] for row in connection.execute(query)}


def measure_chunk_sizes(connection: Connection, dataset: str, low: int, high: int) -> ChunkSizes:
    """Compare the sizes of the dataset's text passages with the band."""
    prose = (chunks.c.dataset == dataset) & chunks.c.modality.in_(_PROSE)
    by_size = select(chunks.c.tokens, func.count()).where(prose).group_by(chunks.c.tokens)
    by_tokens: dict[int | None, int] = {row[0]: row[1] for row in connection.execute(by_size)}
    counts = {tokens: count for tokens, count in by_tokens.items() if tokens is not None}
    per_document = (
        select(func.count().label("chunks"), func.sum(chunks.c.tokens).label("tokens"))
        .where(prose)
        .group_by(chunks.c.document_id)
        .subquery()
    )
    short_count = connection.scalar(
        select(func.coalesce(func.sum(per_document.c.chunks), 0)).where(per_document.c.tokens < low)
    )
    inside = sum(count for tokens, count in counts.items() if low <= tokens <= high)
    others = sum(counts.values()) - (short_count or 0)
    return ChunkSizes(
        low=low,
        high=high,
        in_band=inside / others if others > 0 else None,
        short=short_count or 0,
        uncounted=by_tokens.get(None, 0),
    )


def database_bytes(connection: Connection) -> int:
    """Return the size of the store's file or database in bytes, without the write-ahead log."""
    if is_postgres(connection):
        size = connection.exec_driver_sql("SELECT pg_database_size(current_database())")
        return int(size.scalar_one())
    pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
    return int(pages * connection.exec_driver_sql("PRAGMA page_size").scalar_one())
