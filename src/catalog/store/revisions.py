"""Publishing and removing documents: each is one step of the caller's transaction.

Nothing of a document is visible before its transaction commits, and the old revision answers
until then. What the vector index must do follows in the outbox, in the same transaction.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Table, column, delete, func, insert, select, table, update

from catalog.core import ids
from catalog.core.documents import ChunkSpan, MetadataValue, ParsedDocument
from catalog.store import embedding_cache, llm_cache
from catalog.store.cards import CARDS_FTS
from catalog.store.checksums import find_damaged_documents, find_damaged_vectors, seal, seal_rows
from catalog.store.engine_types import change_stamp
from catalog.store.field_rows import document_date, field_rows
from catalog.store.filter_sql import among
from catalog.store.schema import (
    chunk_sections,
    chunk_windows,
    chunks,
    datasets,
    document_cards,
    document_fields,
    documents,
    embeddings,
    outbox,
    revisions,
)
from catalog.store.statistics import rebuild_full_text
from catalog.store.waiting import note_waiting, settle_waiting

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
        seal_rows(connection, datasets, datasets.c.name == name)


def set_source(
    connection: Connection, name: str, root: str, include: Sequence[str], exclude: Sequence[str]
) -> None:
    """Note where the dataset's files are and which of them belong to it, for later updates."""
    source = {"root": root, "include": json.dumps(include), "exclude": json.dumps(exclude)}
    connection.execute(update(datasets).where(datasets.c.name == name).values(source))
    seal_rows(connection, datasets, datasets.c.name == name)


def publish(connection: Connection, revision: NewRevision, now: float) -> None:
    """Replace whatever revision the document has by this one.

    Its vectors are stored with it, if it has any: another run may have purged them since they were
    embedded. What has none yet is found by its words. Raises ``EmbeddingMismatchError`` if it was
    cut for another model than the store's.
    """
    if revision.embedded_by:
        embedding_cache.require_fingerprint(connection, revision.embedded_by)
    remove_documents(connection, revision.dataset, [revision.document.path], now)
    fields = _fields(revision)
    document_id = _insert_document(connection, revision, fields, now)
    _insert_all(connection, document_fields, [row | {"document_id": document_id} for row in fields])
    embedding_cache.save(
        connection,
        revision.vectors,
        fingerprint=revision.embedded_by,
        side="document",
        now=now,
    )
    _insert_chunks(connection, document_id, revision)
    note_waiting(connection, revision.dataset, document_id)
    seal(connection, document_id)
    change_stamp(connection, revision.dataset, now)


def remove_documents(connection: Connection, dataset: str, paths: Sequence[str], now: float) -> int:
    """Remove documents by path, with all that hangs on them; return the number removed."""
    where = (documents.c.dataset == dataset) & among(documents.c.path, paths)
    document_ids = list(connection.scalars(select(documents.c.id).where(where)))
    if document_ids:
        _note_deletions(connection, dataset, document_ids)
        connection.execute(delete(documents).where(among(documents.c.id, document_ids)))
        change_stamp(connection, dataset, now)
    return len(document_ids)


def drop_damaged(connection: Connection, dataset: str, now: float) -> int:
    """Remove what is not what was stored, so that it can be made anew from its files.

    That is the dataset's damaged documents, whose number is returned, every damaged vector and
    answer of a model, documents of no dataset, and all cards. Passages of other datasets that lose
    a vector are noted as waiting for one.
    """
    rebuild_full_text(connection)  # as the rows are: else none could go
    for derived in (document_cards, CARDS_FTS):
        connection.execute(delete(derived))
    llm_cache.drop_damaged(connection)
    connection.execute(delete(documents).where(documents.c.dataset.not_in(select(datasets.c.name))))
    document_ids = [number for number, _ in find_damaged_documents(connection, dataset)]
    if document_ids:
        _note_deletions(connection, dataset, document_ids)
        connection.execute(delete(documents).where(among(documents.c.id, document_ids)))
        change_stamp(connection, dataset, now)
    keys = list(find_damaged_vectors(connection))
    connection.execute(delete(embeddings).where(among(embeddings.c.embed_key, keys)))
    for name in _datasets_of_vectors(connection, keys):
        settle_waiting(connection, name)
        change_stamp(connection, name, now)
    return len(document_ids)


def _datasets_of_vectors(connection: Connection, keys: Sequence[str]) -> list[str]:
    joined = chunk_windows.join(chunks, chunks.c.seq == chunk_windows.c.seq)
    query = select(chunks.c.dataset).select_from(joined).distinct()
    return sorted(connection.scalars(query.where(among(chunk_windows.c.embed_key, keys))))


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


def _insert_document(
    connection: Connection, revision: NewRevision, fields: Iterable[dict[str, Any]], now: float
) -> int:
    document = revision.document
    result = connection.execute(
        insert(documents).values(
            source_doc_id=revision.source_doc_id,
            dataset=revision.dataset,
            path=document.path,
            file=revision.file,
            title=document.title,
            file_type=document.file_type,
            source_type=document.source_type,
            metadata=json.dumps(dict(document.metadata), ensure_ascii=False),
            dated=document_date(fields, has_own=_has_own_modified(document)),
            revision_id=revision.revision_id,
            content_hash=revision.content_hash,
            docid=ids.docid(revision.content_hash),
            characters=len(document.text),
            pipeline=revision.pipeline,
            indexed_at=now,
        )
    )
    key = result.inserted_primary_key
    assert key is not None
    row = {"document_id": key[0], "revision_id": revision.revision_id, "text": document.text}
    connection.execute(insert(revisions).values(row))
    return int(key[0])


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


def _insert_chunks(connection: Connection, document_id: int, revision: NewRevision) -> None:
    first = 1 + (connection.scalar(_last_seq()) or 0)
    numbered = list(enumerate(revision.chunks, start=first))
    _insert_all(
        connection,
        chunks,
        [
            _chunk_row(revision, document_id, seq, position, chunk)
            for position, (seq, chunk) in enumerate(numbered)
        ],
    )
    sections = [
        {"seq": seq, "heading": heading}
        for seq, chunk in numbered
        for heading in dict.fromkeys((*chunk.span.heading_path, *chunk.span.sections))
    ]
    windows = [
        {"seq": seq, "window": window, "embed_key": key}
        for seq, chunk in numbered
        for window, key in enumerate(chunk.embed_keys)
    ]
    embedded = _find_embedded(
        connection, [key for _, chunk in numbered for key in chunk.embed_keys]
    )
    upserts = [
        {
            "dataset": revision.dataset,
            "action": "upsert",
            "seq": seq,
            "chunk_id": chunk.chunk_id,
            "windows": len(chunk.embed_keys),
        }
        for seq, chunk in numbered
        if not embedded.isdisjoint(chunk.embed_keys)
    ]
    for target, rows in ((chunk_sections, sections), (chunk_windows, windows), (outbox, upserts)):
        _insert_all(connection, target, rows)


def _find_embedded(connection: Connection, keys: Sequence[str]) -> set[str]:
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
        "cues": _json_or_null([astuple(cue) for cue in span.cues]),
        "page_breaks": _json_or_null(span.page_breaks),
        "sections": _json_or_null(span.sections),
        "places": _json_or_null(span.places.to_dict()),
    }


def _json_or_null(items: Sequence[object] | Mapping[str, object] | None) -> str | None:
    return json.dumps(items, ensure_ascii=False) if items else None


def _last_seq() -> Any:
    """Select the highest row number ever given: SQLite remembers it after the rows are gone."""
    sequence = table("sqlite_sequence", column("name"), column("seq"))
    return select(sequence.c.seq).where(sequence.c.name == "chunks")


def _insert_all(connection: Connection, target: Table, rows: list[dict[str, Any]]) -> None:
    if rows:
        connection.execute(insert(target), rows)
