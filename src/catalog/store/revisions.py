"""Publish and remove documents; remove datasets and damaged rows.

Every function except :func:`remove_stored` is one step of the caller's transaction. A document
becomes visible when its transaction commits; until then the old revision answers.

A removed dataset leaves a note until all its derived files are removed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Table, column, delete, func, insert, select, table, text, update
from sqlalchemy.exc import IntegrityError

from catalog.core import ids
from catalog.core.documents import ChunkSpan, MetadataValue, ParsedDocument
from catalog.core.errors import StoreDamagedError
from catalog.store import embedding_cache, llm_cache
from catalog.store.checksums import (
    find_damaged_documents,
    find_damaged_vectors,
    passage_checksum,
    text_checksum,
)
from catalog.store.chunks import write_headings
from catalog.store.database import read_meta
from catalog.store.document_names import document_date, field_rows
from catalog.store.embedding_cache import note_waiting, settle_waiting
from catalog.store.engine_types import change_stamp
from catalog.store.filter_sql import among
from catalog.store.phrases import CARDS, command_full_text, is_postgres
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

_NOTE = "removed:"  # prefix of a removed dataset's key, while derived files may still exist
_OF_DATASET = ("agreement:", "answers:", "waiting:", _NOTE)


@dataclass(frozen=True, slots=True)
class NewChunk:
    """A chunk to publish: its span of the document and the cache keys of its windows, in order."""

    chunk_id: str
    span: ChunkSpan
    embed_keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NewRevision:
    """A content of a document that is cut and embedded, ready to be published.

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

    @property
    def source_doc_id(self) -> str:
        """Return the document's stable id."""
        return ids.source_doc_id(self.dataset, self.document.path)

    @property
    def revision_id(self) -> str:
        """Return the id of this content."""
        return ids.revision_id(self.source_doc_id, self.content_hash)


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
    existing = connection.scalar(select(datasets.c.name).where(datasets.c.name == name))
    if existing is None:
        row = {"name": name, "root": "", "generation": 0, "created_at": now, "updated_at": now}
        connection.execute(insert(datasets).values(row))
        forget_removal(connection, name)


def set_source(
    connection: Connection, name: str, root: str, include: Sequence[str], exclude: Sequence[str]
) -> None:
    """Record the dataset's folder and file patterns, for later updates."""
    source = {"root": root, "include": json.dumps(include), "exclude": json.dumps(exclude)}
    connection.execute(update(datasets).where(datasets.c.name == name).values(source))


def publish(connection: Connection, revision: NewRevision, now: float) -> None:
    """Replace the revision of one document; see :func:`publish_all`."""
    publish_all(connection, [revision], now)


def publish_all(connection: Connection, revisions: Iterable[NewRevision], now: float) -> None:
    """Replace the revisions of these documents; if a document is there twice, the last one wins.

    Statements cover all documents where possible, because short documents cost little else. Vectors
    are stored together with the documents, as another run may have purged them since they were
    embedded. Passages without a vector are found by their words. Raises ``EmbeddingMismatchError``
    if a revision was embedded by another model than the store's.
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
    rows = _insert_documents(connection, numbered, now)
    for fingerprint in sorted({revision.embedded_by for revision in new}):
        vectors = [it.vectors for it in new if it.embedded_by == fingerprint]
        merged = {key: vector for each in vectors for key, vector in each.items()}
        embedding_cache.save(connection, merged, fingerprint=fingerprint, now=now)
    _insert_chunks(connection, numbered, rows)
    for dataset in datasets_changed:
        of_it = [number for number, revision in numbered if revision.dataset == dataset]
        note_waiting(connection, dataset, of_it)
        change_stamp(connection, dataset, now)


def remove_documents(connection: Connection, dataset: str, paths: Sequence[str], now: float) -> int:
    """Remove documents by path with all their rows; return the number removed."""
    where = (documents.c.dataset == dataset) & among(documents.c.path, paths)
    document_ids = list(connection.scalars(select(documents.c.id).where(where)))
    remove_numbered(connection, dataset, document_ids, now)
    return len(document_ids)


def remove_numbered(
    connection: Connection, dataset: str, document_ids: list[int], now: float
) -> None:
    """Remove documents of the dataset by row number with all their rows."""
    if document_ids:
        connection.execute(delete(documents).where(among(documents.c.id, document_ids)))
        change_stamp(connection, dataset, now)


def _insert_documents(
    connection: Connection, numbered: Sequence[tuple[int, NewRevision]], now: float
) -> dict[int, dict[str, Any]]:
    """Insert the documents and return their rows by number."""
    rows, fields = [], []
    for number, revision in numbered:
        values = _fields(revision)
        rows.append(_document_row(revision, values, now) | {"id": number})
        fields += [row | {"document_id": number} for row in values]
    texts = [
        {
            "document_id": number,
            "revision_id": it.revision_id,
            "text": it.document.text,
            "checksum": text_checksum(row, it.document.text),
        }
        for (number, it), row in zip(numbered, rows, strict=True)
    ]
    for target, new in ((documents, rows), (revisions, texts), (document_fields, fields)):
        _insert_all(connection, target, new)
    note_numbers(connection, documents, [number for number, _ in numbered])
    return {row["id"]: row for row in rows}


def revision_date(revision: NewRevision) -> float | None:
    """Return the date that filters compare, in seconds from 1970; ``None`` without one."""
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
    """Return whether ``modified`` takes precedence over ``created``.

    It does unless a program wrote ``modified`` and the author wrote ``created``.
    """
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


def _insert_chunks(
    connection: Connection,
    numbered: Sequence[tuple[int, NewRevision]],
    of_documents: Mapping[int, Mapping[str, Any]],
) -> None:
    cut = [
        (number, revision, position, chunk)
        for number, revision in numbered
        for position, chunk in enumerate(revision.chunks)
    ]
    rows, sections, windows = [], [], []
    first = 1 + last_number(connection, chunks)
    for seq, (number, revision, position, chunk) in enumerate(cut, start=first):
        row = _chunk_row(revision, number, seq, position, chunk)
        rows.append(row | {"checksum": passage_checksum(row, of_documents[number])})
        headings = dict.fromkeys((*chunk.span.heading_path, *chunk.span.sections))
        sections += [{"seq": seq, "heading": heading} for heading in headings]
        windows += [
            {"seq": seq, "window": window, "embed_key": key}
            for window, key in enumerate(chunk.embed_keys)
        ]
    _insert_all(connection, chunks, rows)
    note_numbers(connection, chunks, [row["seq"] for row in rows])
    _insert_all(connection, chunk_sections, sections)
    _insert_all(connection, chunk_windows, windows)


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
        "time_start": _float_or_null(span.locator.time_start),
        "time_end": _float_or_null(span.locator.time_end),
        "title": document.title,
        "headings": write_headings(span.heading_path, span.context),
        "text": text,
        "text_hash": ids.sha1_hex(text),
        "tokens": span.tokens or None,
        "cues": _json_or_null(span.cues),
        "page_breaks": _json_or_null(span.page_breaks),
        "sections": _json_or_null(span.sections),
        "places": _json_or_null(span.places.to_dict()),
        "own_metadata": _json_or_null(span.metadata),
    }


def _float_or_null(seconds: float | None) -> float | None:
    return None if seconds is None else float(seconds)  # as it is read, for its checksum


def _json_or_null(items: Sequence[object] | Mapping[str, object] | None) -> str | None:
    if isinstance(items, Mapping):
        items = dict(items)
    return json.dumps(items, ensure_ascii=False) if items else None


def _insert_all(connection: Connection, target: Table, rows: list[dict[str, Any]]) -> None:
    if rows:
        connection.execute(insert(target), rows)


def drop_damaged(connection: Connection, dataset: str, now: float) -> int:
    """Remove rows that changed since they were stored, so that they can be made again from files.

    These are the dataset's damaged documents (their number is returned), all damaged vectors,
    documents of no dataset, and all cards. Passages of other datasets that lose a
    vector are noted as waiting.
    """
    command_full_text(connection, "rebuild")  # a damaged index would prevent that rows are deleted
    for derived in (document_cards, CARDS):
        connection.execute(delete(derived))
    connection.execute(delete(documents).where(documents.c.dataset.not_in(select(datasets.c.name))))
    document_ids = [number for number, _ in find_damaged_documents(connection, dataset)]
    remove_numbered(connection, dataset, document_ids, now)
    keys = list(find_damaged_vectors(connection))
    connection.execute(delete(embeddings).where(among(embeddings.c.embed_key, keys)))
    owners = select(chunks.c.dataset).join(chunk_windows, chunks.c.seq == chunk_windows.c.seq)
    owners = owners.where(among(chunk_windows.c.embed_key, keys)).distinct()
    for name in sorted(connection.scalars(owners)):
        settle_waiting(connection, name)
        change_stamp(connection, name, now)
    return len(document_ids)


def rebuild_row_indexes(connection: Connection) -> None:
    """Rebuild SQLite's own indexes from their rows; do nothing in Postgres.

    Raises :class:`StoreDamagedError` if two rows have the same unique key.
    """
    if is_postgres(connection):
        return
    try:
        connection.execute(text("REINDEX"))
    except IntegrityError as error:
        raise StoreDamagedError(f"two rows have one key: {error.orig}") from error


def count_rows(connection: Connection, dataset: str) -> tuple[int, int]:
    """Count the documents and the chunks of a dataset."""
    queries = (
        select(func.count()).where(table.c.dataset == dataset) for table in (documents, chunks)
    )
    of_documents, of_chunks = (connection.scalar(query) or 0 for query in queries)
    return of_documents, of_chunks


def remove_stored(connection: Connection, dataset: str, now: float) -> None:
    """Remove a dataset with all its rows, and cached entries that only this dataset used.

    A note says that its derived files are to be removed, until :func:`forget_removal`. Answers that
    an interrupted evaluation cached are dropped for all datasets. Log entries and evaluation runs
    stay.
    """
    connection.execute(delete(datasets).where(datasets.c.name == dataset))
    of_it = [f"{kind}{dataset}" for kind in _OF_DATASET]
    connection.execute(delete(meta).where(among(meta.c.key, of_it)))
    connection.execute(insert(meta).values(key=f"{_NOTE}{dataset}", value="yes"))
    embedding_cache.purge_unused(connection)
    llm_cache.purge(connection, before=0.0)
    llm_cache.drop_expired(connection, "answer", before=now)


def is_removed(connection: Connection, dataset: str) -> bool:
    """Return whether derived files of a removed dataset may still exist."""
    return read_meta(connection, f"{_NOTE}{dataset}") is not None


def list_removed(connection: Connection) -> list[str]:
    """Return the names of removed datasets whose derived files may still exist."""
    keys = connection.scalars(select(meta.c.key).where(meta.c.key.startswith(_NOTE)))
    return sorted(key.removeprefix(_NOTE) for key in keys)


def forget_removal(connection: Connection, dataset: str) -> None:
    """Drop the note: all files are removed, or the name is used again with new indexes."""
    connection.execute(delete(meta).where(meta.c.key == f"{_NOTE}{dataset}"))


def last_number(connection: Connection, of: Table) -> int:
    """Return the highest row number ever used, even if its row is gone.

    SQLite stores it in a table, Postgres in the sequence of the column.
    """
    if is_postgres(connection):
        sequence = table(_sequence(of), column("last_value"), column("is_called"))
        row = connection.execute(select(sequence.c.last_value, sequence.c.is_called)).one()
        return int(row.last_value) if row.is_called else 0
    sequence = table("sqlite_sequence", column("name"), column("seq"))
    return connection.scalar(select(sequence.c.seq).where(sequence.c.name == of.name)) or 0


def note_numbers(connection: Connection, of: Table, numbers: Sequence[int]) -> None:
    """Record that rows were inserted with these numbers; SQLite does so by itself."""
    if numbers and is_postgres(connection):
        parameters = {"sequence": _sequence(of), "number": max(numbers)}
        connection.execute(text("SELECT setval(:sequence, :number)"), parameters)


def _sequence(of: Table) -> str:
    [key] = of.primary_key
    return f"{of.name}_{key.name}_seq"
