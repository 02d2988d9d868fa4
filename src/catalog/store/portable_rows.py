"""Write the lines of ``chunks.jsonl`` from the store, and read them as revisions to publish."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, func, select

from catalog.core import ids
from catalog.core.documents import ChunkSpan, Cue, Locator, ParsedDocument
from catalog.core.errors import DamagedDocumentError, InputError
from catalog.core.portable_lines import (
    ChunkLine,
    DatasetLine,
    DocumentLine,
    FileLine,
    ModelLine,
    WindowPart,
    chunk_line,
    span_of,
)
from catalog.store import embedding_cache, manifest
from catalog.store.chunks import (
    StoredDataset,
    find_by_path,
    load_chunks,
    parse_places,
    read_headings,
)
from catalog.store.filter_sql import among
from catalog.store.manifest import read_dataset_settings
from catalog.store.revisions import NewChunk, NewRevision, revision_date
from catalog.store.schema import chunk_windows, chunks, document_fields, documents

if TYPE_CHECKING:
    from catalog.store.embedding_cache import Vector

_OWN = ("file", "source_type", "dated", "pipeline")  # columns that StoredDocument lacks


def read_dataset_line(connection: Connection, dataset: StoredDataset) -> DatasetLine:
    """Return the line of a dataset."""
    made_with = read_dataset_settings(connection, dataset.name)
    return DatasetLine(
        dataset=dataset.name,
        root=dataset.root,
        include=dataset.include,
        exclude=dataset.exclude,
        preset=None if made_with is None else made_with.preset,
        settings=None if made_with is None else dict(made_with.values),
    )


def read_file_lines(connection: Connection, dataset: str) -> Iterator[FileLine]:
    """Yield the lines of a dataset's files, by name."""
    for _, entry in sorted(manifest.entries(connection, dataset).items()):
        yield FileLine(dataset=dataset, **asdict(entry))


def count_documents_of(connection: Connection, dataset: str) -> int:
    """Count the documents that :func:`read_document_lines` yields."""
    query = select(func.count()).select_from(documents)
    return connection.scalar(query.where(documents.c.dataset == dataset)) or 0


def read_document_lines(
    connection: Connection, dataset: str, *, vectors: bool
) -> Iterator[tuple[DocumentLine, list[ChunkLine]]]:
    """Yield each document with its passages in stored order, read one by one.

    With ``vectors``, windows have their vectors if they are embedded. Raises
    :class:`DamagedDocumentError` for a document that changed since it was stored.
    """
    columns = (documents.c.id, documents.c.path, *(documents.c[name] for name in _OWN))
    query = select(*columns).where(documents.c.dataset == dataset).order_by(documents.c.id)
    for row in connection.execute(query).all():
        line = _document_line(connection, dataset, row)
        passages = list(_chunk_lines(connection, dataset, row.id, line, vectors=vectors))
        yield line.model_copy(update={"chunks": len(passages)}), passages


def _document_line(connection: Connection, dataset: str, row: Any) -> DocumentLine:
    stored = find_by_path(connection, dataset, row.path)
    if stored is None:
        raise DamagedDocumentError(ids.source_doc_id(dataset, row.path), "its text")
    query = select(func.min(document_fields.c.text_value)).where(
        document_fields.c.document_id == row.id, document_fields.c.field == "modified"
    )
    values = asdict(stored)
    values["doc_id"] = values.pop("revision_id")
    values["modified"] = None if "modified" in stored.metadata else connection.scalar(query)
    own = {name: getattr(row, name) for name in _OWN}
    return DocumentLine.model_validate({**values, **own, "chunks": 0}, strict=False)


def _chunk_lines(
    connection: Connection, dataset: str, document_id: int, line: DocumentLine, *, vectors: bool
) -> Iterator[ChunkLine]:
    is_of = chunks.c.document_id == document_id
    rows = connection.execute(select(chunks).where(is_of).order_by(chunks.c.position)).all()
    load_chunks(connection, dataset, [row.seq for row in rows])  # raises for a damaged one
    of_each: dict[int, list[str]] = {}
    windows = select(chunk_windows.c.seq, chunk_windows.c.embed_key).join(chunks).where(is_of)
    for seq, key in connection.execute(windows.order_by(chunk_windows.c.window)):
        of_each.setdefault(seq, []).append(key)
    keys = {key for some in of_each.values() for key in some} if vectors else set()
    known = {key: encode_vector(it) for key, it in embedding_cache.load(connection, keys).items()}
    for row in rows:
        parts = [WindowPart(key=key, vector=known.get(key)) for key in of_each.get(row.seq, ())]
        passage = chunk_line(line, _span(row), parts)
        if (passage.chunk_id, passage.text) != (row.chunk_id, row.text):
            raise DamagedDocumentError(line.source_doc_id, "a passage")
        yield passage


def _span(row: Any) -> ChunkSpan:
    """Return a row's passage in the form in which it was cut."""
    heading_path, context = read_headings(row.headings)
    return ChunkSpan(
        row.start_offset,
        row.end_offset,
        heading_path=heading_path,
        modality=row.modality,
        locator=Locator(row.page, None, row.line_start, row.line_end, row.time_start, row.time_end),
        tokens=row.tokens or 0,
        cues=tuple(Cue(*cue) for cue in json.loads(row.cues or "[]")),
        page_breaks=tuple(json.loads(row.page_breaks or "[]")),
        sections=tuple(json.loads(row.sections or "[]")),
        places=parse_places(row.places, row.page),
        context=context,
        metadata=json.loads(row.own_metadata or "{}"),
    )


def to_revision(
    document: DocumentLine, passages: Sequence[ChunkLine], model: ModelLine
) -> NewRevision:
    """Return the revision that a document's lines describe, to publish it unchanged.

    Raises :class:`InputError` if an id does not follow from content and place, a passage does not
    belong to the document, or a vector does not fit the model.
    """
    _check_document(document)
    parsed = ParsedDocument(
        path=document.path,
        text=document.text,
        title=document.title,
        file_type=document.file_type,
        source_type=document.source_type,
        metadata=document.metadata,
    )
    revision = NewRevision(
        dataset=document.dataset,
        file=document.file,
        document=parsed,
        content_hash=document.content_hash,
        chunks=tuple(_new_chunk(document, passage) for passage in passages),
        pipeline=document.pipeline,
        modified=document.modified,
        vectors=_vectors(passages, model),
        embedded_by=model.fingerprint,
    )
    if len({chunk.chunk_id for chunk in revision.chunks}) < len(passages):
        raise InputError(f"{document.source_doc_id} has the same passage twice")
    if revision_date(revision) != document.dated:  # the author wrote created, a program modified
        other = replace(revision, document=replace(parsed, written=frozenset({"created"})))
        return other if revision_date(other) == document.dated else revision
    return revision


def find_files(connection: Connection, revisions: Iterable[NewRevision]) -> dict[str, str]:
    """Return the file of each stored document, whatever its content, by source document id."""
    names = [one.source_doc_id for one in revisions]
    query = select(documents.c.source_doc_id, documents.c.file)
    rows = connection.execute(query.where(among(documents.c.source_doc_id, names)))
    return {row.source_doc_id: row.file for row in rows}


def find_stored(connection: Connection, revisions: Iterable[NewRevision]) -> set[str]:
    """Return the ids of documents that are stored already without any difference."""
    wanted = {one.source_doc_id: one for one in revisions}
    columns = (documents.c[name] for name in ("source_doc_id", "pipeline", "file", "dated"))
    query = (
        select(*columns, chunks.c.chunk_id, chunks.c.end_offset, chunk_windows.c.embed_key)
        .outerjoin(chunks, chunks.c.document_id == documents.c.id)
        .outerjoin(chunk_windows, chunk_windows.c.seq == chunks.c.seq)
        .where(among(documents.c.source_doc_id, wanted))
        .order_by(documents.c.id, chunks.c.position, chunk_windows.c.window)
    )
    stored: dict[str, list[tuple[Any, ...]]] = {}
    for name, *rest in connection.execute(query):
        stored.setdefault(name, []).append(tuple(rest))
    return {name for name, rows in stored.items() if rows == _rows_of(wanted[name])}


def _rows_of(revision: NewRevision) -> list[tuple[Any, ...]]:
    about = (revision.pipeline, revision.file, revision_date(revision))
    if not revision.chunks:
        return [(*about, None, None, None)]
    return [
        (*about, chunk.chunk_id, chunk.span.end, key)
        for chunk in revision.chunks
        for key in chunk.embed_keys or (None,)
    ]


def encode_vector(vector: Vector) -> str:
    """Return the vector as base64 of its little-endian float32 numbers."""
    return base64.b64encode(embedding_cache.encode(vector)).decode("ascii")


def _check_document(document: DocumentLine) -> None:
    """Raise :class:`InputError` for invalid ids and names."""
    source_doc_id = ids.source_doc_id(document.dataset, document.path)
    expected = {
        "source_doc_id": source_doc_id,
        "doc_id": ids.revision_id(source_doc_id, document.content_hash),
        "docid": ids.docid(document.content_hash),
    }
    for name, value in expected.items():
        if (given := getattr(document, name)) != value:
            raise InputError(f"{name} is {given!r}, but path and content_hash give {value!r}")
    for name in (document.path, document.file):
        check_inside(name)


def check_inside(name: str) -> None:
    """Raise :class:`InputError` for a file name that leads out of its dataset's folder."""
    if name.startswith("/") or ".." in name.replace("\\", "/").split("/"):
        raise InputError(f"{name!r} leads out of the dataset's folder")


def _new_chunk(document: DocumentLine, passage: ChunkLine) -> NewChunk:
    span = span_of(passage)
    own = chunk_line(document, span, passage.windows)
    for name in ChunkLine.model_fields:
        if (given := getattr(passage, name)) != (value := getattr(own, name)):
            raise InputError(
                f"{name} of the passage {passage.chunk_id} does not fit its document: "
                f"{_shown(given)} instead of {_shown(value)}"
            )
    return NewChunk(passage.chunk_id, span, tuple(window.key for window in passage.windows))


def _vectors(passages: Iterable[ChunkLine], model: ModelLine) -> Mapping[str, Vector]:
    import numpy as np

    vectors: dict[str, Vector] = {}
    for passage in passages:
        for window in passage.windows:
            if window.vector is None:
                continue
            try:
                blob = base64.b64decode(window.vector, validate=True)
            except (binascii.Error, ValueError):
                blob = b""
            if len(blob) != 4 * model.dim:
                raise InputError(
                    f"a vector of the passage {passage.chunk_id} has {len(blob) / 4:g} numbers, "
                    f"but the header's model has {model.dim}"
                )
            vector = embedding_cache.decode(blob)
            if not np.isfinite(vector).all() or not vector.any():
                raise InputError(
                    f"a vector of the passage {passage.chunk_id} is zero, or contains NaN or "
                    "infinity"
                )
            vectors[window.key] = vector
    return vectors


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
