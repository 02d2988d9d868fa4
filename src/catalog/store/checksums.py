"""CRC-32 of passages, texts and vectors, made when they are stored and compared when read.

A passage's checksum covers all that is shown of it except its document's type and date.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from sqlalchemy import Column, Connection, bindparam, select
from sqlalchemy.exc import DatabaseError, NoResultFound

from catalog.store.database import is_damage
from catalog.store.filter_sql import among
from catalog.store.schema import chunk_windows, chunks, documents, embeddings, revisions

PASSAGE: tuple[Column[Any], ...] = (
    *(column for column in chunks.c if column.name != "checksum"),
    *(documents.c[name] for name in ("path", "source_doc_id", "docid", "metadata")),
)
TEXT: tuple[Column[Any], ...] = (
    *(documents.c[name] for name in ("source_doc_id", "dataset", "path", "title", "file_type")),
    *(documents.c[name] for name in ("docid", "content_hash", "revision_id", "metadata")),
    revisions.c.text,
)
_AT_ONCE = 500  # vectors in memory


def row_checksum(values: Iterable[object]) -> int:
    """Return the CRC-32 of a row's values."""
    return zlib.crc32("\0".join(map(str, values)).encode("utf-8", "surrogatepass"))


def vector_checksum(key: str, blob: bytes) -> int:
    """Return the CRC-32 of a vector's key and bytes."""
    return zlib.crc32(blob, zlib.crc32(key.encode("utf-8", "surrogatepass")))


def is_whole_vector(key: str, blob: object, checksum: int | None) -> bool:
    """Return whether these bytes are the vector that was stored."""
    return isinstance(blob, bytes) and vector_checksum(key, blob) == checksum


def find_damaged_documents(connection: Connection, dataset: str) -> Iterator[tuple[int, str]]:
    """Yield row number and name of documents of which the text or a passage changed."""
    document, of_passages = documents.c, chunks.c.document_id == documents.c.id
    is_it = document.id == bindparam("id")
    text_of = select(*TEXT, revisions.c.checksum).join(revisions).where(is_it)
    passages_of = select(*PASSAGE, chunks.c.checksum).join(documents, of_passages).where(is_it)
    for number in connection.scalars(select(document.id).where(document.dataset == dataset)).all():
        name, is_whole = f"document {number} of {dataset!r}", False
        try:
            text = connection.execute(text_of, {"id": number}).one()
            name = str(text.source_doc_id)
            rows = [text, *connection.execute(passages_of, {"id": number})]
            is_whole = all(row_checksum(row[:-1]) == row[-1] for row in rows)
        except (DatabaseError, NoResultFound) as error:
            # bytes that are no text, or an index that names a row that is not there
            if isinstance(error, DatabaseError) and not is_damage(error):
                raise
        if not is_whole:
            yield number, name


def find_damaged_vectors(connection: Connection) -> list[str]:
    """Return the keys of vectors that changed since they were stored."""
    query = select(embeddings.c.embed_key, embeddings.c.vector, embeddings.c.checksum)
    rows = connection.execute(query.execution_options(yield_per=_AT_ONCE))
    return [row.embed_key for row in rows if not is_whole_vector(*row)]


def documents_of_vectors(connection: Connection, keys: Iterable[str]) -> list[str]:
    """Return the sorted names of the documents to which these vectors belong."""
    joined = chunk_windows.join(chunks).join(documents, documents.c.id == chunks.c.document_id)
    query = select(documents.c.source_doc_id).select_from(joined).distinct()
    return sorted(connection.scalars(query.where(among(chunk_windows.c.embed_key, keys))))
