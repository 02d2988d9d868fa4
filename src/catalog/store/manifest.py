"""What was read of a dataset's files, and how that went."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import Connection, delete, func, insert, select

from catalog.store.schema import chunk_windows, chunks, documents, embeddings, manifest, outbox

State = Literal["done", "partial", "failed"]
_BATCH = 500


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One listed file: its size and modification time when read, and the outcome."""

    file: str
    size: int
    mtime_ns: int
    pipeline: str
    state: State
    reason: str | None
    seen_at: float


def entries(connection: Connection, dataset: str) -> dict[str, ManifestEntry]:
    """Return every file of the dataset that was ever read and is still listed, by name."""
    columns = [manifest.c[name] for name in ManifestEntry.__dataclass_fields__]
    query = select(*columns).where(manifest.c.dataset == dataset)
    return {row.file: ManifestEntry(**row._mapping) for row in connection.execute(query)}


def record(connection: Connection, dataset: str, entry: ManifestEntry) -> None:
    """Note how reading a file went, replacing what was noted before."""
    forget(connection, dataset, [entry.file])
    values = {name: getattr(entry, name) for name in ManifestEntry.__dataclass_fields__}
    connection.execute(insert(manifest).values(dataset=dataset, **values))


def forget(connection: Connection, dataset: str, files: Iterable[str]) -> None:
    """Drop the notes on files that are no longer there."""
    names = list(files)
    for start in range(0, len(names), _BATCH):
        batch = names[start : start + _BATCH]
        where = (manifest.c.dataset == dataset) & manifest.c.file.in_(batch)
        connection.execute(delete(manifest).where(where))


def known_documents(connection: Connection, dataset: str) -> dict[str, Mapping[str, str]]:
    """Return ``content_hash``, ``pipeline`` and ``file`` of the live revisions, by path."""
    query = select(
        documents.c.path, documents.c.content_hash, documents.c.pipeline, documents.c.file
    ).where(documents.c.dataset == dataset)
    return {
        row.path: {"content_hash": row.content_hash, "pipeline": row.pipeline, "file": row.file}
        for row in connection.execute(query)
    }


def incomplete_documents(connection: Connection, dataset: str) -> dict[str, set[str]]:
    """Return the chunk ids of chunks with a window that has no vector yet, by path."""
    query = (
        select(documents.c.path, chunks.c.chunk_id)
        .distinct()
        .select_from(chunk_windows)
        .join(chunks, chunks.c.seq == chunk_windows.c.seq)
        .join(documents, documents.c.id == chunks.c.document_id)
        .outerjoin(embeddings, embeddings.c.embed_key == chunk_windows.c.embed_key)
        .where(chunks.c.dataset == dataset, embeddings.c.embed_key.is_(None))
    )
    incomplete: dict[str, set[str]] = {}
    for path, chunk_id in connection.execute(query):
        incomplete.setdefault(path, set()).add(chunk_id)
    return incomplete


@dataclass(frozen=True, slots=True)
class Totals:
    """What a dataset holds now."""

    documents: int
    chunks: int
    windows: int
    vectors: int


def totals(connection: Connection, dataset: str) -> Totals:
    """Count documents, chunks, windows, and windows that have their vector."""
    count = func.count()
    of_dataset = chunks.c.dataset == dataset
    windows = (
        select(count).select_from(chunk_windows).join(chunks, chunks.c.seq == chunk_windows.c.seq)
    )
    with_vector = windows.join(embeddings, embeddings.c.embed_key == chunk_windows.c.embed_key)
    return Totals(
        documents=connection.scalar(select(count).where(documents.c.dataset == dataset)) or 0,
        chunks=connection.scalar(select(count).where(of_dataset)) or 0,
        windows=connection.scalar(windows.where(of_dataset)) or 0,
        vectors=connection.scalar(with_vector.where(of_dataset)) or 0,
    )


def pending_points(connection: Connection, dataset: str) -> int:
    """Count the changes that the vector index has still to apply."""
    query = select(func.count()).select_from(outbox).where(outbox.c.dataset == dataset)
    return connection.scalar(query) or 0
