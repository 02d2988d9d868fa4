"""CRC-32 of passages, texts and vectors, made when they are stored and compared when read.

A passage's checksum covers all that is shown of it except its document's type and date.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy import Connection, bindparam, select
from sqlalchemy.exc import DatabaseError, NoResultFound

from catalog.store.database import is_damage
from catalog.store.filter_sql import among
from catalog.store.schema import chunk_windows, chunks, documents, embeddings, revisions

_OF_PASSAGE = ("path", "source_doc_id", "docid", "metadata")
_OF_TEXT = (
    *("source_doc_id", "dataset", "path", "title", "file_type", "docid"),
    *("content_hash", "revision_id", "metadata"),
)
PASSAGE = (
    *(column for column in chunks.c if column.name != "checksum"),
    *(documents.c[name] for name in _OF_PASSAGE),
)
TEXT = (*(documents.c[name] for name in _OF_TEXT), revisions.c.text)
_BATCH = 500  # vectors read together


def row_checksum(values: Iterable[object]) -> int:
    """Return the CRC-32 of a row's values."""
    return zlib.crc32("\0".join(map(str, values)).encode("utf-8", "surrogatepass"))


def passage_checksum(chunk: Mapping[str, Any], document: Mapping[str, Any]) -> int:
    """Return the checksum of a new passage, equal to that of its row when it is read."""
    own = (chunk[column.name] for column in chunks.c if column.name != "checksum")
    return row_checksum((*own, *(document[name] for name in _OF_PASSAGE)))


def text_checksum(document: Mapping[str, Any], text: str) -> int:
    """Return the checksum of a new document's text."""
    return row_checksum((*(document[name] for name in _OF_TEXT), text))


def vector_checksum(key: str, blob: bytes) -> int:
    """Return the CRC-32 of a vector's key and bytes."""
    return zlib.crc32(blob, zlib.crc32(key.encode("utf-8", "surrogatepass")))


def is_whole_vector(key: str, blob: object, checksum: int | None) -> bool:
    """Return whether these bytes are the vector that was stored."""
    if not isinstance(blob, bytes) or len(blob) == 0 or len(blob) % 4 != 0:
        return False
    return vector_checksum(key, blob) == checksum


def find_damaged_documents(connection: Connection, dataset: str) -> Iterator[tuple[int, str]]:
    """Yield row number and name of documents of which the text or a passage changed."""
    ids = connection.scalars(select(documents.c.id).where(documents.c.dataset == dataset)).all()
    for number in ids:
        name = f"document {number} of {dataset!r}"
        try:
            text = connection.execute(_TEXT_OF, {"id": number}).one()
            name = str(text.source_doc_id)
            rows = [text, *connection.execute(_PASSAGES_OF, {"id": number})]
            is_whole = all(row_checksum(row[:-1]) == row[-1] for row in rows)
        except (DatabaseError, NoResultFound, UnicodeDecodeError) as error:
            # bytes that are no text, or an index that names a row that is not there
            if isinstance(error, DatabaseError) and not is_damage(error):
                raise
            is_whole = False
        if not is_whole:
            yield number, name


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


_TEXT_OF = (
    select(*TEXT, revisions.c.checksum)
    .join(revisions, revisions.c.document_id == documents.c.id)
    .where(documents.c.id == bindparam("id"))
)
_PASSAGES_OF = (
    select(*PASSAGE, chunks.c.checksum)
    .join(documents, documents.c.id == chunks.c.document_id)
    .where(documents.c.id == bindparam("id"))
)
