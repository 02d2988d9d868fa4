"""Make a store in a folder, and put documents into it like indexing, with hand-made vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from sqlalchemy import select

from catalog.core import ids
from catalog.core.documents import (
    ChunkSpan,
    Locator,
    MetadataValue,
    Modality,
    ParsedDocument,
    last_page,
)
from catalog.ingest.summaries import summarise
from catalog.store.database import Database
from catalog.store.publish import (
    NewChunk,
    NewRevision,
    content_hash,
    ensure_dataset,
    publish_all,
    remove_documents,
)
from catalog.store.schema import chunks, documents

NOW = 1_700_000_000.0


def make_database(folder: Path) -> Database:
    """Return the store in ``folder``, made if absent."""
    return Database.at(folder)


def put(
    database: Database,
    dataset: str,
    path: str,
    text: str | Sequence[str],
    *,
    title: str = "",
    metadata: Mapping[str, MetadataValue] | None = None,
    sections: Sequence[str] = (),
    embed_keys: Sequence[str | Sequence[str]] = (),
    modality: Modality = "text",
    page: int | None = None,
    page_breaks: Sequence[int] = (),
) -> list[int]:
    """Publish a document with one chunk per given text; return their row numbers, in order.

    ``sections`` is the heading path of every chunk, ``page`` the page each begins on and
    ``page_breaks`` where in each the next ones begin; ``embed_keys`` has one item per chunk: its
    key, or the keys of its windows.
    """
    pieces = [text] if isinstance(text, str) else list(text)
    document = ParsedDocument(path, "\n".join(pieces), title, "md", metadata=metadata or {})
    digest = content_hash(document)
    revision = ids.revision_id(ids.source_doc_id(dataset, path), digest)
    cut, start, summary = list[NewChunk](), 0, summarise(document.text)
    for index, piece in enumerate(pieces):
        locator = Locator(page=page, page_end=last_page(page, page_breaks))
        place = start, start + len(piece), tuple(sections), modality, locator
        span = ChunkSpan(*place, page_breaks=tuple(page_breaks))
        keys: str | Sequence[str] = embed_keys[index] if index < len(embed_keys) else ()
        windows = (keys,) if isinstance(keys, str) else tuple(keys)
        cut.append(NewChunk(ids.chunk_id(revision, modality, start), span, windows))
        start += len(piece) + 1
    with database.write() as connection:
        ensure_dataset(connection, dataset, NOW)
        made = NewRevision(dataset, path, document, digest, tuple(cut), summary=summary)
        publish_all(connection, [made], NOW)
    return seqs_of(database, dataset, path)


def drop(database: Database, dataset: str, *paths: str) -> int:
    """Remove documents; return how many."""
    with database.write() as connection:
        return remove_documents(connection, dataset, paths, NOW)


def seqs_of(database: Database, dataset: str, path: str) -> list[int]:
    """Return the row numbers of a document's live chunks, in order."""
    query = (
        select(chunks.c.seq)
        .join(documents, documents.c.id == chunks.c.document_id)
        .where(documents.c.dataset == dataset, documents.c.path == path)
        .order_by(chunks.c.seq)
    )
    with database.read() as connection:
        return list(connection.scalars(query))
