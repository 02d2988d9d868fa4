"""Publishing and removing documents: each is one step of the caller's transaction.

Nothing of a document is visible before its transaction commits, and the old revision answers
until then. What the vector index must do follows in the outbox, in the same transaction.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Table, delete, func, insert, select, update

from catalog.core import ids
from catalog.core.documents import ChunkSpan, MetadataValue, ParsedDocument
from catalog.store import embedding_cache
from catalog.store.checksums import seal_all, seal_rows
from catalog.store.engine_types import change_stamp
from catalog.store.field_rows import document_date, field_rows
from catalog.store.filter_sql import among
from catalog.store.full_text import index_chunks
from catalog.store.removals import forget_removal
from catalog.store.row_numbers import last_number, note_numbers
from catalog.store.schema import (
    chunk_sections,
    chunk_windows,
    chunks,
    datasets,
    document_fields,
    documents,
    embeddings,
    outbox,
    revisions,
)
from catalog.store.waiting import note_waiting

if TYPE_CHECKING:
    from catalog.store.embedding_cache import Vector


@dataclass(frozen=True, slots=True)
class NewChunk:
    """A chunk to publish: its span of the document and the cache keys of its windows, in order."""

    chunk_id: str
    span: ChunkSpan
    embed_keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NewRevision:
    """One content of one document, cut and embedded, ready to be published.

    ``vectors`` are those of its windows by cache key, as the model with the fingerprint
    ``embedded_by`` gave them; the other windows have those the store keeps, or wait for theirs.
    """

    dataset: str
    file: str
    document: ParsedDocument
    content_hash: str
    chunks: tuple[NewChunk, ...]
    pipeline: str = ""
    modified: str | None = None  # ISO 8601, for a document that does not say itself
    vectors: Mapping[str, Vector] = field(default_factory=dict)
    embedded_by: str = ""

    @property
    def source_doc_id(self) -> str:
        """Return the document's stable id."""
        return ids.source_doc_id(self.dataset, self.document.path)

    @property
    def revision_id(self) -> str:
        """Return the id of this content."""
        return ids.revision_id(self.source_doc_id, self.content_hash)


def content_hash(document: ParsedDocument) -> str:
    """Return the SHA-256 over everything of a document that a search can show or ask about."""
    content: list[object] = [document.title, document.file_type, dict(document.metadata)]
    if document.headings:
        content.append({"headings": [astuple(heading) for heading in document.headings]})
    if document.pages:
        content.append({"pages": document.pages})
    if document.segments:
        content.append({"segments": [astuple(segment) for segment in document.segments]})
    return ids.sha256_hex(f"{json.dumps(content, sort_keys=True)}\0{document.text}")


def ensure_dataset(connection: Connection, name: str, now: float) -> None:
    """Make the dataset unless it is there."""
    existing = connection.scalar(select(datasets.c.name).where(datasets.c.name == name))
    if existing is None:
        row = {"name": name, "root": "", "generation": 0, "created_at": now, "updated_at": now}
        connection.execute(insert(datasets).values(row))
        forget_removal(connection, name)
        seal_rows(connection, datasets, datasets.c.name == name)


def set_source(
    connection: Connection, name: str, root: str, include: Sequence[str], exclude: Sequence[str]
) -> None:
    """Note where the dataset's files are and which of them belong to it, for later updates."""
    source = {"root": root, "include": json.dumps(include), "exclude": json.dumps(exclude)}
    connection.execute(update(datasets).where(datasets.c.name == name).values(source))
    seal_rows(connection, datasets, datasets.c.name == name)


def publish(connection: Connection, revision: NewRevision, now: float) -> None:
    """Replace whatever revision one document has by this one; see :func:`publish_all`."""
    publish_all(connection, [revision], now)


def publish_all(connection: Connection, revisions: Iterable[NewRevision], now: float) -> None:
    """Replace whatever revisions the documents have by these; of two of one document the last one.

    Each statement is for all of them, as far as it can be: for short documents the statements are
    most of the cost. Their vectors are stored with them, if they have any: another run may have
    purged them since they were embedded. What has none yet is found by its words. Raises
    ``EmbeddingMismatchError`` if one was cut for another model than the store's.
    """
    new = list({revision.source_doc_id: revision for revision in revisions}.values())
    for fingerprint in sorted({revision.embedded_by for revision in new}):
        if fingerprint:
            embedding_cache.require_fingerprint(connection, fingerprint)
    datasets_changed = sorted({revision.dataset for revision in new})
    for dataset in datasets_changed:
        paths = [revision.document.path for revision in new if revision.dataset == dataset]
        remove_documents(connection, dataset, paths, now)
    numbered = list(enumerate(new, start=1 + last_number(connection, documents)))
    _insert_documents(connection, numbered, now)
    for fingerprint in sorted({revision.embedded_by for revision in new}):
        vectors = [it.vectors for it in new if it.embedded_by == fingerprint]
        merged = {key: vector for each in vectors for key, vector in each.items()}
        embedding_cache.save(connection, merged, fingerprint=fingerprint, side="document", now=now)
    _insert_chunks(connection, numbered)
    seal_all(connection, [number for number, _ in numbered])
    for dataset in datasets_changed:
        of_it = [number for number, revision in numbered if revision.dataset == dataset]
        note_waiting(connection, dataset, of_it)
        change_stamp(connection, dataset, now)


def remove_documents(connection: Connection, dataset: str, paths: Sequence[str], now: float) -> int:
    """Remove documents by path, with all that hangs on them; return the number removed."""
    where = (documents.c.dataset == dataset) & among(documents.c.path, paths)
    document_ids = list(connection.scalars(select(documents.c.id).where(where)))
    remove_numbered(connection, dataset, document_ids, now)
    return len(document_ids)


def remove_numbered(
    connection: Connection, dataset: str, document_ids: list[int], now: float
) -> None:
    """Remove documents of the dataset by their numbers, with all that hangs on them."""
    if document_ids:
        _note_deletions(connection, dataset, document_ids)
        connection.execute(delete(documents).where(among(documents.c.id, document_ids)))
        change_stamp(connection, dataset, now)


def _note_deletions(connection: Connection, dataset: str, document_ids: list[int]) -> None:
    windows = func.count(chunk_windows.c.window).label("windows")
    query = (
        select(chunks.c.seq, chunks.c.chunk_id, windows)
        .outerjoin(chunk_windows, chunk_windows.c.seq == chunks.c.seq)
        .where(among(chunks.c.document_id, document_ids))
        .group_by(chunks.c.seq, chunks.c.chunk_id)
        .order_by(chunks.c.seq)
    )
    rows = [
        {"dataset": dataset, "action": "delete", "seq": seq, "chunk_id": chunk, "windows": count}
        for seq, chunk, count in connection.execute(query)
    ]
    _insert_all(connection, outbox, rows)


def _insert_documents(
    connection: Connection, numbered: Sequence[tuple[int, NewRevision]], now: float
) -> None:
    rows, fields = [], []
    for number, revision in numbered:
        values = _fields(revision)
        rows.append(_document_row(revision, values, now) | {"id": number})
        fields += [row | {"document_id": number} for row in values]
    texts = [
        {"document_id": number, "revision_id": it.revision_id, "text": it.document.text}
        for number, it in numbered
    ]
    for target, new in ((documents, rows), (revisions, texts), (document_fields, fields)):
        _insert_all(connection, target, new)
    note_numbers(connection, documents, [number for number, _ in numbered])


def revision_date(revision: NewRevision) -> float | None:
    """Return the timestamp that bounds will go by, in seconds from 1970; ``None`` without one."""
    return document_date(_fields(revision), has_own=_has_own_modified(revision.document))


def _document_row(
    revision: NewRevision, fields: Iterable[dict[str, Any]], now: float
) -> dict[str, Any]:
    document = revision.document
    return {
        "source_doc_id": revision.source_doc_id,
        "dataset": revision.dataset,
        "path": document.path,
        "file": revision.file,
        "title": document.title,
        "file_type": document.file_type,
        "source_type": document.source_type,
        "metadata": json.dumps(dict(document.metadata), ensure_ascii=False),
        "dated": document_date(fields, has_own=_has_own_modified(document)),
        "revision_id": revision.revision_id,
        "content_hash": revision.content_hash,
        "docid": ids.docid(revision.content_hash),
        "characters": len(document.text),
        "pipeline": revision.pipeline,
        "indexed_at": now,
    }


def _has_own_modified(document: ParsedDocument) -> bool:
    """Return whether ``modified`` goes first: not a program's where the author says ``created``."""
    is_known = "modified" in document.metadata
    return is_known and ("modified" in document.written or "created" not in document.written)


def _fields(revision: NewRevision) -> list[dict[str, Any]]:
    document = revision.document
    fields: dict[str, MetadataValue] = {
        **({"modified": revision.modified} if revision.modified is not None else {}),
        "page_title": document.title,
        **document.metadata,
        "dataset": revision.dataset,
        "source_doc_id": revision.source_doc_id,
        "docid": ids.docid(revision.content_hash),
        "path": document.path,
        "title": document.title,
        "file_type": document.file_type,
        "source_type": document.source_type,
    }
    return field_rows(fields)


def _insert_chunks(connection: Connection, numbered: Sequence[tuple[int, NewRevision]]) -> None:
    cut = [
        (number, revision, position, chunk)
        for number, revision in numbered
        for position, chunk in enumerate(revision.chunks)
    ]
    embedded = _find_embedded(connection, {key for *_, it in cut for key in it.embed_keys})
    rows, sections, windows, upserts = [], [], [], []
    first = 1 + last_number(connection, chunks)
    for seq, (number, revision, position, chunk) in enumerate(cut, start=first):
        rows.append(_chunk_row(revision, number, seq, position, chunk))
        headings = dict.fromkeys((*chunk.span.heading_path, *chunk.span.sections))
        sections += [{"seq": seq, "heading": heading} for heading in headings]
        windows += [
            {"seq": seq, "window": window, "embed_key": key}
            for window, key in enumerate(chunk.embed_keys)
        ]
        if not embedded.isdisjoint(chunk.embed_keys):
            upserts.append(
                {
                    "dataset": revision.dataset,
                    "action": "upsert",
                    "seq": seq,
                    "chunk_id": chunk.chunk_id,
                    "windows": len(chunk.embed_keys),
                }
            )
    _insert_all(connection, chunks, rows)
    note_numbers(connection, chunks, [row["seq"] for row in rows])
    index_chunks(connection, rows)
    _insert_all(connection, chunk_sections, sections)
    _insert_all(connection, chunk_windows, windows)
    _insert_all(connection, outbox, upserts)


def _find_embedded(connection: Connection, keys: Iterable[str]) -> set[str]:
    """Return those of the keys that have a vector; the others announce it once they get it."""
    query = select(embeddings.c.embed_key).where(among(embeddings.c.embed_key, keys))
    return set(connection.scalars(query))


def _chunk_row(
    revision: NewRevision, document_id: int, seq: int, position: int, chunk: NewChunk
) -> dict[str, Any]:
    span, document = chunk.span, revision.document
    text = document.text[span.start : span.end]
    return {
        "seq": seq,
        "chunk_id": chunk.chunk_id,
        "document_id": document_id,
        "dataset": revision.dataset,
        "position": position,
        "modality": span.modality,
        "start_offset": span.start,
        "end_offset": span.end,
        "page": span.locator.page,
        "line_start": span.locator.line_start,
        "line_end": span.locator.line_end,
        "time_start": span.locator.time_start,
        "time_end": span.locator.time_end,
        "title": document.title,
        "headings": json.dumps(list(span.heading_path), ensure_ascii=False),
        "text": text,
        "text_hash": ids.sha1_hex(text),
        "tokens": span.tokens or None,
        "cues": _json_or_null(span.cues),
        "page_breaks": _json_or_null(span.page_breaks),
        "sections": _json_or_null(span.sections),
        "places": _json_or_null(span.places.to_dict()),
    }


def _json_or_null(items: Sequence[object] | Mapping[str, object] | None) -> str | None:
    return json.dumps(items, ensure_ascii=False) if items else None


def _insert_all(connection: Connection, target: Table, rows: list[dict[str, Any]]) -> None:
    if rows:
        connection.execute(insert(target), rows)
