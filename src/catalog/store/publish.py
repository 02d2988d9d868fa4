"""Publish and remove documents, remove datasets and damaged rows, as steps of a transaction.

A document becomes visible when its transaction commits; until then the old revision answers. A
removed dataset leaves a note until all its derived files are removed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, TableClause, delete, insert, select, text, update

from catalog.core import ids
from catalog.core.documents import ChunkSpan, MetadataValue, ParsedDocument
from catalog.store import embedding_cache, llm_cache
from catalog.store.cards import make_card
from catalog.store.chunks import PASSAGE, TEXT, find_damaged_documents, row_checksum, write_headings
from catalog.store.document_names import document_date, field_rows
from catalog.store.filter_sql import among
from catalog.store.phrases import CARDS, command_full_text, is_postgres
from catalog.store.restriction import change_stamp
from catalog.store.schema import (
    chunk_sections,
    chunk_windows,
    chunks,
    datasets,
    document_cards,
    document_fields,
    documents,
    embeddings,
    meta,
    revisions,
)

if TYPE_CHECKING:
    from catalog.store.embedding_cache import Vector

_NAME_BYTES = 1_500  # an entry of an index of Postgres has at most 2,704, not all for the name
_NOTE = "removed:"  # prefix of a removed dataset's key, while derived files may still exist
_OF_DATASET = ("agreement:", "answers:", "waiting:", _NOTE)


# The highest row numbers ever used, whether or not the rows are there.
_NUMBERS = {
    "sqlite": "SELECT max(CASE name WHEN 'documents' THEN seq ELSE 0 END), "
    "max(CASE name WHEN 'chunks' THEN seq ELSE 0 END) FROM sqlite_sequence",
    "postgresql": "SELECT (SELECT last_value - 1 + CAST(is_called AS int) FROM documents_id_seq), "
    "(SELECT last_value - 1 + CAST(is_called AS int) FROM chunks_seq_seq)",
}
_USED = text("SELECT setval('documents_id_seq', :document), setval('chunks_seq_seq', :chunk)")


@dataclass(frozen=True, slots=True)
class NewChunk:
    """A chunk to publish: its span of the document and the cache keys of its windows, in order."""

    chunk_id: str
    span: ChunkSpan
    embed_keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NewRevision:
    """A content of a document that is cut, ready to be published.

    ``vectors`` are those of its windows by cache key, from the model with the fingerprint
    ``embedded_by``. Windows without one here use the store's vector or wait for one.
    """

    dataset: str
    file: str
    document: ParsedDocument
    content_hash: str
    chunks: tuple[NewChunk, ...]
    pipeline: str = ""
    modified: str | None = None  # ISO 8601, for a document that states none
    vectors: Mapping[str, Vector] = field(default_factory=dict)
    embedded_by: str = ""
    summary: str = ""  # for its card

    @property
    def source_doc_id(self) -> str:
        """Return the document's stable id."""
        return ids.source_doc_id(self.dataset, self.document.path)

    @property
    def revision_id(self) -> str:
        """Return the id of this content."""
        return ids.revision_id(self.source_doc_id, self.content_hash)


def describe_unfit(*names: str) -> str | None:
    """Explain which of these names (a document's path, fields) no index of a store can hold."""
    long = (name for name in names if len(name.encode("utf-8", "replace")) > _NAME_BYTES)
    most = f"is too long: a name may have {_NAME_BYTES:,} bytes; shorten it"
    return next((f"{name[:40]}… {most}" for name in long), None)


def content_hash(document: ParsedDocument) -> str:
    """Return the SHA-256 over everything of a document that a search can show or filter by."""
    content: list[object] = [document.title, document.file_type, dict(document.metadata)]
    if document.headings:
        content.append({"headings": [astuple(heading) for heading in document.headings]})
    if document.pages:
        content.append({"pages": document.pages})
    if document.segments:
        content.append({"segments": [astuple(segment) for segment in document.segments]})
    return ids.sha256_hex(f"{json.dumps(content, sort_keys=True)}\0{document.text}")


def ensure_dataset(connection: Connection, name: str, now: float) -> None:
    """Create the dataset unless it exists."""
    if connection.scalar(select(datasets.c.name).where(datasets.c.name == name)) is None:
        row = {"name": name, "root": "", "generation": 0, "created_at": now, "updated_at": now}
        connection.execute(insert(datasets).values(row))
        forget_removal(connection, name)


def set_source(
    connection: Connection, name: str, root: str, include: Sequence[str], exclude: Sequence[str]
) -> None:
    """Record the dataset's folder and file patterns, for later updates."""
    source = {"root": root, "include": json.dumps(include), "exclude": json.dumps(exclude)}
    connection.execute(update(datasets).where(datasets.c.name == name).values(source))


def publish_all(connection: Connection, revisions: Iterable[NewRevision], now: float) -> None:
    """Replace the revisions of these documents of one dataset; of two of one, the last one wins.

    Vectors are stored together with the documents, as another run may have purged them since they
    were embedded. Passages without a vector are found by their words. Raises
    ``EmbeddingMismatchError`` if a revision was embedded by another model than the store's.
    """
    new = list({revision.source_doc_id: revision for revision in revisions}.values())
    if not new:
        return
    [dataset] = {revision.dataset for revision in new}
    _remove(connection, dataset, [revision.document.path for revision in new])
    vectors = {key: vector for revision in new for key, vector in revision.vectors.items()}
    for fingerprint in {revision.embedded_by for revision in new} - {""}:
        embedding_cache.save(connection, vectors, fingerprint=fingerprint, now=now)
    numbers = connection.exec_driver_sql(_NUMBERS[connection.dialect.name]).one()
    numbered = dict(enumerate(new, start=1 + (numbers[0] or 0)))
    rows = _insert_documents(connection, numbered, now)
    last = _insert_chunks(connection, numbered, rows, numbers[1] or 0)
    if is_postgres(connection):  # SQLite notes the numbers by itself
        connection.execute(_USED, {"document": max(numbered), "chunk": max(1, last)})
    embedding_cache.note_waiting(connection, dataset, numbered)
    change_stamp(connection, dataset, now)


def remove_documents(connection: Connection, dataset: str, paths: Iterable[str], now: float) -> int:
    """Remove documents by path with all their rows; return the number removed."""
    count = _remove(connection, dataset, paths)
    if count:
        change_stamp(connection, dataset, now)
    return count


def _remove(connection: Connection, dataset: str, paths: Iterable[str]) -> int:
    here = (documents.c.dataset == dataset) & among(documents.c.path, paths)
    return connection.execute(delete(documents).where(here)).rowcount


def _insert_documents(
    connection: Connection, numbered: Mapping[int, NewRevision], now: float
) -> dict[int, dict[str, Any]]:
    """Insert the documents with their texts, fields and cards; return their rows by number."""
    rows: dict[int, dict[str, Any]] = {}
    texts, fields, summaries, cards = [], [], [], []
    for number, revision in numbered.items():
        of_it, document = {"document_id": number}, revision.document
        values = _fields(revision)
        row = rows[number] = _names(revision) | {
            "id": number,
            "file": revision.file,
            "metadata": json.dumps(dict(document.metadata), ensure_ascii=False),
            "dated": revision_date(revision, values),
            "revision_id": revision.revision_id,
            "content_hash": revision.content_hash,
            "characters": len(document.text),
            "pipeline": revision.pipeline,
            "indexed_at": now,
        }
        text = of_it | {"revision_id": revision.revision_id, "text": document.text}
        known = row | text
        texts.append(text | {"checksum": row_checksum(known[one.name] for one in TEXT)})
        fields += [value | of_it for value in values]
        summaries.append(of_it | {"summary": revision.summary})
        headings = dict.fromkeys(one for cut in revision.chunks for one in _headings(cut.span))
        cards.append(make_card(row, headings, revision.summary, values))
    _insert_all(connection, documents, list(rows.values()))
    _insert_all(connection, revisions, texts)
    _insert_all(connection, document_fields, fields)
    _insert_all(connection, document_cards, summaries)
    _insert_all(connection, CARDS, cards)
    return rows


def _headings(span: ChunkSpan) -> dict[str, None]:
    return dict.fromkeys((*span.heading_path, *span.sections))


def revision_date(
    revision: NewRevision, fields: Sequence[dict[str, Any]] | None = None
) -> float | None:
    """Return the date that filters compare, in seconds from 1970; ``None`` without one."""
    # ``modified`` comes first, unless a program wrote it and the author wrote ``created``
    stated, written = revision.document.metadata, revision.document.written
    has_own = "modified" in stated and ("modified" in written or "created" not in written)
    return document_date(fields or _fields(revision), has_own=has_own)


def _names(revision: NewRevision) -> dict[str, str]:
    document = revision.document
    return {
        "dataset": revision.dataset,
        "source_doc_id": revision.source_doc_id,
        "docid": ids.docid(revision.content_hash),
        "path": document.path,
        "title": document.title,
        "file_type": document.file_type,
        "source_type": document.source_type,
    }


def _fields(revision: NewRevision) -> list[dict[str, Any]]:
    document, fields = revision.document, dict[str, MetadataValue]()
    if revision.modified is not None:
        fields["modified"] = revision.modified
    return field_rows(
        fields | {"page_title": document.title} | dict(document.metadata) | _names(revision)
    )


def _insert_chunks(
    connection: Connection,
    numbered: Mapping[int, NewRevision],
    of_documents: Mapping[int, Mapping[str, Any]],
    seq: int,
) -> int:
    """Insert the chunks with row numbers after ``seq``; return the last one used."""
    rows, sections, windows = [], [], []
    for number, revision in numbered.items():
        for position, chunk in enumerate(revision.chunks):
            seq += 1
            row = _chunk_row(revision, number, seq, position, chunk)
            known = {**of_documents[number], **row}
            rows.append(row | {"checksum": row_checksum(known[one.name] for one in PASSAGE)})
            sections += [{"seq": seq, "heading": one} for one in _headings(chunk.span)]
            windows += [
                {"seq": seq, "window": window, "embed_key": key}
                for window, key in enumerate(chunk.embed_keys)
            ]
    _insert_all(connection, chunks, rows)
    _insert_all(connection, chunk_sections, sections)
    _insert_all(connection, chunk_windows, windows)
    return seq


def _chunk_row(
    revision: NewRevision, document_id: int, seq: int, position: int, chunk: NewChunk
) -> dict[str, Any]:
    span, document = chunk.span, revision.document
    text, at = document.text[span.start : span.end], span.locator
    return {
        "seq": seq,
        "chunk_id": chunk.chunk_id,
        "document_id": document_id,
        "dataset": revision.dataset,
        "position": position,
        "modality": span.modality,
        "start_offset": span.start,
        "end_offset": span.end,
        "page": at.page,
        "line_start": at.line_start,
        "line_end": at.line_end,
        # floats, as they are read, for their checksum
        "time_start": None if at.time_start is None else float(at.time_start),
        "time_end": None if at.time_end is None else float(at.time_end),
        "title": document.title,
        "headings": write_headings(span.heading_path, span.context),
        "text": text,
        "text_hash": ids.sha1_hex(text),
        "tokens": span.tokens or None,
        "cues": _json_or_null(span.cues),
        "page_breaks": _json_or_null(span.page_breaks),
        "sections": _json_or_null(span.sections),
        "places": _json_or_null(span.places.to_dict()),
        "own_metadata": _json_or_null(dict(span.metadata)),
    }


def _json_or_null(items: Sequence[object] | dict[str, Any] | None) -> str | None:
    return json.dumps(items, ensure_ascii=False) if items else None


def _insert_all(connection: Connection, target: TableClause, rows: list[dict[str, Any]]) -> None:
    if rows:
        connection.execute(insert(target), rows)


def drop_damaged(connection: Connection, dataset: str, now: float) -> int:
    """Remove rows that changed since they were stored, so that they can be made again from files.

    These are the dataset's damaged documents (their number is returned) and all damaged vectors.
    Passages of other datasets that lose a vector are noted as waiting.
    """
    command_full_text(connection, "rebuild")  # a damaged index would prevent that rows are deleted
    numbers = [number for number, _ in find_damaged_documents(connection, dataset)]
    connection.execute(delete(documents).where(among(documents.c.id, numbers)))
    keys = embedding_cache.find_damaged_vectors(connection)
    connection.execute(delete(embeddings).where(among(embeddings.c.embed_key, keys)))
    for name in {dataset, *connection.scalars(embedding_cache.users_of(keys))}:
        embedding_cache.settle_waiting(connection, name)
        change_stamp(connection, name, now)
    return len(numbers)


def remove_stored(connection: Connection, dataset: str, now: float) -> None:
    """Remove a dataset with all its rows, and cached entries that only this dataset used.

    A note says that its derived files are to be removed, until :func:`forget_removal`. Cached
    answers are dropped for all datasets. Log entries and evaluation runs stay.
    """
    connection.execute(delete(datasets).where(datasets.c.name == dataset))
    of_it = [f"{kind}{dataset}" for kind in _OF_DATASET]
    connection.execute(delete(meta).where(among(meta.c.key, of_it)))
    connection.execute(insert(meta).values(key=f"{_NOTE}{dataset}", value="yes"))
    embedding_cache.purge_unused(connection)
    llm_cache.purge(connection)
    llm_cache.clear(connection, "answer", before=now)


def list_removed(connection: Connection) -> list[str]:
    """Return the names of removed datasets whose derived files may still exist."""
    keys = connection.scalars(select(meta.c.key).where(meta.c.key.startswith(_NOTE)))
    return sorted(key.removeprefix(_NOTE) for key in keys)


def forget_removal(connection: Connection, dataset: str) -> None:
    """Drop the note: all files are removed, or the name is used again with new indexes."""
    connection.execute(delete(meta).where(meta.c.key == f"{_NOTE}{dataset}"))
