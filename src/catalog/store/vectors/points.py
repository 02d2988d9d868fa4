"""The points an engine must hold, read from the truth, and what each carries beside its vector.

    chunk    the chunk id: every hit is joined to the truth by it
    doc_id   the source document id (LlamaIndex's own key for it)
    page     the numbers of the pages it stands on, where there are any
    kv       one token per value of every other field, and one per field that has a value

Any field name and any value thus filter by one keyword index: dots, quotes, booleans and
fields of mixed types need no care of their own. ``dataset`` is the collection, ``path`` and
``source_doc_id`` are ``doc_id``, so none of them needs a token.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy import Connection, select

from catalog.core.documents import MetadataScalar, last_page
from catalog.core.errors import DamagedDocumentError, EmbeddingError, EmbeddingMismatchError
from catalog.core.filters import comparable_number, value_kind
from catalog.core.ids import point_id, sha1_hex
from catalog.store.checksums import is_whole_vector
from catalog.store.embedding_cache import decode
from catalog.store.filter_sql import among, decoded_value
from catalog.store.schema import (
    chunk_sections,
    chunk_windows,
    chunks,
    document_fields,
    documents,
    embedded_windows,
    embeddings,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vector = npt.NDArray[np.float32]


CHUNK = "chunk"
DOC = "doc_id"
PAGE = "page"
TOKENS = "kv"
UNTOKENED = frozenset({"dataset", "source_doc_id", "path", "page"})
_LONGEST = 256  # characters; longer values are known by their hash
_SEPARATOR = "\x1f"


def value_token(field: str, value: MetadataScalar) -> str:
    """Return the token of one value of a field; equal values, and only they, have equal tokens."""
    kind = value_kind(value)
    if isinstance(value, str):
        text = value if len(value) <= _LONGEST else sha1_hex(value)
        kind = "s" if len(value) <= _LONGEST else "h"
    else:
        text = str(value).lower() if isinstance(value, bool) else repr(comparable_number(value))
    return f"{_name(field)}{_SEPARATOR}{kind}:{text}"


def presence_token(field: str) -> str:
    """Return the token of a field that has a value at all."""
    return f"{_name(field)}{_SEPARATOR}*"


def tokens(fields: Mapping[str, Iterable[MetadataScalar]]) -> list[str]:
    """Return every token of these fields, without repetition."""
    all_tokens = [
        token
        for field, values in fields.items()
        if field not in UNTOKENED
        for value in values
        for token in (value_token(field, value), presence_token(field))
    ]
    return list(dict.fromkeys(all_tokens))


def _name(field: str) -> str:
    """Return the field in a token: the separator occurs in it only in front of a hash."""
    plain = _SEPARATOR not in field and len(field) <= _LONGEST
    return field if plain else _SEPARATOR + sha1_hex(field)


@dataclass(frozen=True, slots=True)
class IndexPoint:
    """One embedded window: its deterministic id, its vector of length 1 (or 0), its payload."""

    id: str
    vector: Vector
    payload: dict[str, Any]


class PointIndex(Protocol):
    """Where points are kept: the part in which the Qdrant engines differ."""

    def upsert(self, points: Sequence[IndexPoint]) -> None:
        """Add points, or replace those of the same id."""
        ...

    def delete(self, point_ids: Sequence[str]) -> None:
        """Remove points; ids that are not there are fine."""
        ...

    @property
    def count(self) -> int:
        """Return the number of points."""
        ...

    def retrieve(self, point_ids: Sequence[str]) -> dict[str, tuple[Any, dict[str, Any]]]:
        """Return vector and payload of the points that exist, by id."""
        ...

    def flush(self) -> None:
        """Return when everything done so far survives the loss of this process."""
        ...


class ListedPointIndex(PointIndex, Protocol):
    """A :class:`PointIndex` that can tell all its points."""

    def pages(self) -> Iterator[list[str]]:
        """Yield the ids of all points, some at a time."""
        ...


def load_points(
    connection: Connection,
    seqs: Sequence[int],
    dim: int,
    damaged: set[str],
) -> list[IndexPoint]:
    """Return the points of these chunks, by chunk and window.

    There are none for a chunk that is gone or a window that has no vector, nor for one that is
    not what was stored: the id of its document is added to ``damaged``.
    Raises :class:`EmbeddingMismatchError` for a stored vector of another dimension.
    """
    columns = (
        chunks.c.seq,
        chunks.c.chunk_id,
        chunks.c.document_id,
        documents.c.source_doc_id,
        chunks.c.page,
        chunks.c.page_breaks,
        chunks.c.modality,
        chunk_windows.c.window,
        embeddings.c.embed_key,
        embeddings.c.vector,
        embeddings.c.checksum,
    )
    joined = embedded_windows.join(documents, documents.c.id == chunks.c.document_id)
    query = select(*columns).select_from(joined).where(among(chunks.c.seq, seqs))
    rows = connection.execute(query.order_by(chunks.c.seq, chunk_windows.c.window)).all()
    tokens_of = _read_tokens(connection, rows, seqs)
    points = []
    for row in rows:
        try:
            points.append(_point(row, tokens_of[row.seq], dim))
        except DamagedDocumentError as error:
            damaged.add(error.document)
    return points


def unit(vector: Vector) -> Vector:
    """Return the vector scaled to length 1; a vector of zeros stays."""
    import numpy as np

    length = float(np.linalg.norm(vector))
    return np.asarray(vector / length if length > 0 else vector, dtype=np.float32)


def query_vector(vector: Vector, dim: int) -> Vector:
    """Return a query's vector, checked and scaled to length 1.

    Raises :class:`EmbeddingMismatchError` for another dimension than ``dim``, and
    :class:`EmbeddingError` for one that holds NaN or infinity.
    """
    import numpy as np

    if vector.shape != (dim,):
        raise EmbeddingMismatchError(
            f"the query vector has shape {vector.shape}, the index ({dim},): "
            "search with the model that embedded the documents, or rebuild the index"
        )
    if not np.isfinite(vector).all():
        raise EmbeddingError("the embedding of the query holds NaN or infinity")
    return unit(vector)


def _point(row: Any, kv: list[str], dim: int) -> IndexPoint:
    if not is_whole_vector(row.embed_key, row.vector, row.checksum):
        raise DamagedDocumentError(row.source_doc_id, "a vector")
    vector = decode(row.vector)
    if vector.shape != (dim,):
        raise EmbeddingMismatchError(
            f"the store holds vectors of {vector.shape[0]} dimensions, the index expects {dim}: "
            "rebuild the dataset with one embedding model"
        )
    payload: dict[str, Any] = {CHUNK: row.chunk_id, DOC: row.source_doc_id, TOKENS: kv}
    try:
        last = last_page(row.page, json.loads(row.page_breaks or "[]"))
    except (ValueError, TypeError, RecursionError) as error:
        raise DamagedDocumentError(row.source_doc_id, "a passage") from error
    if last is not None:
        payload[PAGE] = list(range(row.page, last + 1))
    return IndexPoint(point_id(row.chunk_id, row.window), unit(vector), payload)


def _read_tokens(
    connection: Connection, rows: Sequence[Any], seqs: Sequence[int]
) -> dict[int, list[str]]:
    """Return the tokens of chunks by row number; those of a document are worked out once."""
    of_document = {
        document: tokens(fields)
        for document, fields in _document_fields(connection, {row.document_id for row in rows})
    }
    sections: dict[int, list[MetadataScalar]] = {}
    query = select(chunk_sections.c.seq, chunk_sections.c.heading)
    for seq, heading in connection.execute(query.where(among(chunk_sections.c.seq, seqs))).all():
        sections.setdefault(seq, []).append(heading)
    return {
        row.seq: of_document.get(row.document_id, [])
        + tokens({"modality": [row.modality], "section": sections.get(row.seq, [])})
        for row in rows
    }


def _document_fields(
    connection: Connection, document_ids: set[int]
) -> Iterable[tuple[int, dict[str, list[MetadataScalar]]]]:
    of_the_chunk = ("modality", "section")  # whatever a document calls so
    values: dict[int, dict[str, list[MetadataScalar]]] = {}
    fields = document_fields.c
    query = select(
        fields.document_id, fields.field, fields.kind, fields.text_value, fields.number_value
    )
    is_wanted = among(fields.document_id, sorted(document_ids)) & fields.field.not_in(of_the_chunk)
    for document, field, kind, text, value in connection.execute(query.where(is_wanted)).all():
        decoded = decoded_value(kind, text, value)
        values.setdefault(document, {}).setdefault(field, []).append(decoded)
    return values.items()
