"""Checksums of stored rows, to detect bytes that changed by themselves on the disk.

Passages, documents' texts and vectors are checked whenever they are read, by a CRC-32 of all values
shown. (A passage's CRC does not cover the type and date of its document.) A document's digest
covers all its rows; ``catalog doctor`` compares digests, and the checksums of datasets, dataset
settings and the manifest.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    Column,
    Connection,
    Select,
    Table,
    and_,
    bindparam,
    nulls_first,
    select,
    update,
)
from sqlalchemy.exc import DatabaseError, NoResultFound

from catalog.store.filter_sql import among, among_bound, as_bound
from catalog.store.schema import (
    chunk_sections,
    chunk_windows,
    chunks,
    document_fields,
    documents,
    embeddings,
    revisions,
)
from catalog.store.sqlite import is_damage

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement

_DOCUMENT = ("source_doc_id", "dataset", "path", "title", "file_type", "docid")
_REVISION = ("content_hash", "revision_id", "metadata")
_OF_PASSAGE = ("path", "source_doc_id", "docid", "metadata")
PASSAGE = (
    *(column for column in chunks.c if column.name != "checksum"),
    *(documents.c[name] for name in _OF_PASSAGE),
)
TEXT = (*(documents.c[name] for name in (*_DOCUMENT, *_REVISION)), revisions.c.text)
_BATCH = 500  # rows read together
_DOCUMENTS = 50  # documents sealed together


def row_checksum(values: Iterable[object]) -> int:
    """Return the CRC-32 of a row's values."""
    return zlib.crc32(_encode(values))


def _encode(values: Iterable[object]) -> bytes:
    return "\0".join(map(str, values)).encode("utf-8", "surrogatepass")


def vector_checksum(key: str, blob: bytes) -> int:
    """Return the CRC-32 of a vector's key and bytes."""
    return zlib.crc32(blob, zlib.crc32(key.encode("utf-8", "surrogatepass")))


def is_whole_vector(key: str, blob: object, checksum: int | None) -> bool:
    """Return whether these bytes are the vector that was stored."""
    if not isinstance(blob, bytes) or len(blob) == 0 or len(blob) % 4 != 0:
        return False
    return vector_checksum(key, blob) == checksum


def seal_all(connection: Connection, document_ids: Sequence[int]) -> None:
    """Write missing checksums of the documents' rows, and the digest of each document."""
    of_these = {"ids": as_bound(document_ids)}
    passages = connection.execute(_PASSAGES, of_these).all()
    _set(connection, chunks.c.seq, ((row.seq, row_checksum(row)) for row in passages))
    texts = connection.execute(_TEXTS, of_these).all()
    sums = ((number, row_checksum(values)) for number, *values in texts)
    _set(connection, revisions.c.document_id, sums)
    _set(connection, documents.c.id, _digests(connection, document_ids).items())


def seal_rows(connection: Connection, table: Table, is_wanted: ColumnElement[bool]) -> None:
    """Write checksums of rows of the datasets or the manifest, for their present content."""
    keys = list(table.primary_key)
    query = select(*keys, *_other_columns(table)).where(is_wanted)
    is_it = and_(*(key == bindparam(f"of_{key.name}") for key in keys))
    statement = update(table).where(is_it).values(checksum=bindparam("sum"))
    sums = [
        {f"of_{key.name}": value for key, value in zip(keys, row, strict=False)}
        | {"sum": row_checksum(row)}
        for row in connection.execute(query)
    ]
    if sums:
        connection.execute(statement, sums)


def count_damaged_rows(connection: Connection, table: Table, is_wanted: ColumnElement[bool]) -> int:
    """Count rows of the datasets or the manifest that changed since they were stored."""
    query = select(*table.primary_key, *_other_columns(table), table.c.checksum)
    rows = connection.execute(query.where(is_wanted))
    return sum(row_checksum(row[:-1]) != row.checksum for row in rows)


def _other_columns(table: Table) -> list[Column[Any]]:
    return [column for column in table.c if not column.primary_key and column.name != "checksum"]


def seal_again(connection: Connection) -> None:
    """Write new digests for all documents after their windows were replaced on purpose."""
    numbers = connection.scalars(select(documents.c.id)).all()
    for start in range(0, len(numbers), _DOCUMENTS):
        digests = _digests(connection, numbers[start : start + _DOCUMENTS])
        _set(connection, documents.c.id, digests.items())


def find_damaged_documents(connection: Connection, dataset: str) -> Iterator[tuple[int, str]]:
    """Yield row number and name of the dataset's documents that changed since they were stored."""
    ids = connection.scalars(select(documents.c.id).where(documents.c.dataset == dataset)).all()
    for document_id in ids:
        try:
            row = connection.execute(_NAME, {"id": document_id}).one()
            name = str(row.source_doc_id)
            is_damaged = _digests(connection, [document_id])[document_id] != row.checksum
        except (DatabaseError, KeyError, NoResultFound, UnicodeDecodeError) as error:
            # bytes that are no text, or an index that names a row that is not there
            if isinstance(error, DatabaseError) and not is_damage(error):
                raise
            name, is_damaged = f"document {document_id} of {dataset!r}", True
        if is_damaged:
            yield document_id, name


def find_damaged_vectors(
    connection: Connection, dim: int | None = None, *, fingerprint: str | None = None
) -> Iterator[str]:
    """Yield the keys of vectors that changed since they were stored or are not of length ``dim``.

    With a ``fingerprint``, only vectors of that model must have this length.
    """
    stored = embeddings.c
    columns = (stored.embed_key, stored.vector, stored.checksum, stored.fingerprint)
    query = select(*columns).execution_options(yield_per=_BATCH)
    for key, blob, checksum, model in connection.execute(query):
        expected = dim if fingerprint in (None, model) else None
        if not is_whole_vector(key, blob, checksum) or expected not in (None, len(blob) // 4):
            yield key


def documents_of_vectors(connection: Connection, keys: Iterable[str]) -> list[str]:
    """Return the sorted names of the documents to which these vectors belong."""
    joined = chunk_windows.join(chunks).join(documents, documents.c.id == chunks.c.document_id)
    query = select(documents.c.source_doc_id).select_from(joined).distinct()
    return sorted(connection.scalars(query.where(among(chunk_windows.c.embed_key, keys))))


def _digests(connection: Connection, document_ids: Iterable[int]) -> dict[int, str]:
    """Return each document's SHA-1 over all its stored rows, except for its own checksum."""
    digests = {number: hashlib.sha1(usedforsecurity=False) for number in document_ids}
    of_these = {"ids": as_bound(digests)}
    for query in _ALL_ROWS:
        for number, *values in connection.execute(query, of_these).all():
            digests[number].update(_encode(values) + b"\0")
        for digest in digests.values():
            digest.update(b"\1")
    return {number: digest.hexdigest() for number, digest in digests.items()}


def _set(
    connection: Connection, key: Column[object], sums: Iterable[tuple[object, object]]
) -> None:
    rows = [{"row": id_, "sum": checksum} for id_, checksum in sums]
    if rows:
        statement = (
            update(key.table).where(key == bindparam("row")).values(checksum=bindparam("sum"))
        )
        connection.execute(statement, rows)


def _rows_of(table: Table, *order: str) -> Select[Any]:
    """Select a table's rows of documents, each preceded by its document's number.

    The order is always the same, because a digest depends on it.
    """
    if "document_id" in table.c:
        number, rows = table.c.document_id, select(table.c.document_id, *table.c)
    else:
        number = chunks.c.document_id
        rows = select(number, *table.c).join(chunks, chunks.c.seq == table.c.seq)
    return rows.where(among_bound(number, "ids")).order_by(
        number, *(_null_first(table.c[name]) for name in order)
    )


def _null_first(column: Column[Any]) -> ColumnElement[Any]:
    """Order by a column with nulls first, so that all databases sort alike."""
    return nulls_first(column.asc()) if column.nullable else column


_NAME = select(documents.c.source_doc_id, documents.c.checksum).where(
    documents.c.id == bindparam("id")
)
_OF_THESE = among_bound(documents.c.id, "ids")
_PASSAGES = (
    select(*PASSAGE)
    .join(documents, documents.c.id == chunks.c.document_id)
    .where(_OF_THESE, chunks.c.checksum.is_(None))
)
_TEXTS = (
    select(documents.c.id, *TEXT)
    .join(revisions, revisions.c.document_id == documents.c.id)
    .where(_OF_THESE, revisions.c.checksum.is_(None))
)
_DOCUMENT_VALUES = (column for column in documents.c if column.name != "checksum")
_ALL_ROWS = (
    select(documents.c.id, *_DOCUMENT_VALUES).where(_OF_THESE),
    _rows_of(revisions, "document_id"),
    _rows_of(document_fields, "field", "kind", "text_value", "number_value", "folded"),
    _rows_of(chunks, "seq"),
    _rows_of(chunk_sections, "seq", "heading"),
    _rows_of(chunk_windows, "seq", "window"),
)
