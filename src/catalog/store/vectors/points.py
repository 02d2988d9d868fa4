"""Read the points of an index from the store: vectors with their payloads.

    chunk    the chunk id, by which hits are joined to the store
    doc_id   the source document id (LlamaIndex uses this key, too)
    page     the numbers of the chunk's pages, if it has pages
    kv       a token for each value of every other field, and one for each field with a value

On a server, if set, also the passage as LlamaIndex's ``QdrantVectorStore`` writes it:

    _node_content, _node_type    text, metadata and source of a ``TextNode``, as JSON
    path, title                  for its metadata filters

So one keyword index serves every field and value: dots, quotes, booleans and fields of mixed types
need no special care. ``dataset`` is the collection; ``path`` and ``source_doc_id`` are ``doc_id``;
none of them needs a token.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy import Connection, select

from catalog.core.documents import Chunk, MetadataScalar, last_page
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
    """Return the token of a field's value; tokens are equal exactly if field and value are."""
    kind = value_kind(value)
    if isinstance(value, str):
        text = value if len(value) <= _LONGEST else sha1_hex(value)
        kind = "s" if len(value) <= _LONGEST else "h"
    else:
        text = str(value).lower() if isinstance(value, bool) else repr(comparable_number(value))
    return f"{_name(field)}{_SEPARATOR}{kind}:{text}"


def presence_token(field: str) -> str:
    """Return the token of a field that has any value."""
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
    """Return the field's name in a token; a name with the separator is replaced by a hash."""
    plain = _SEPARATOR not in field and len(field) <= _LONGEST
    return field if plain else _SEPARATOR + sha1_hex(field)


@dataclass(frozen=True, slots=True)
class IndexPoint:
    """An embedded window: its deterministic id, its vector of length 1 (or 0), its payload."""

    id: str
    vector: Vector
    payload: dict[str, Any]


class PointIndex(Protocol):
    """A place for points; the engines that use points differ in it."""

    def upsert(self, points: Sequence[IndexPoint]) -> None:
        """Add points, or replace those of the same id."""
        ...

    def delete(self, point_ids: Sequence[str]) -> None:
        """Remove points; ids that do not exist are ignored."""
        ...

    @property
    def count(self) -> int:
        """Return the number of points."""
        ...

    def retrieve(self, point_ids: Sequence[str]) -> dict[str, tuple[Any, dict[str, Any]]]:
        """Return vector and payload of the points that exist, by id."""
        ...

    def flush(self) -> None:
        """Return when everything done so far survives the end of this process."""
        ...


class ListedPointIndex(PointIndex, Protocol):
    """A :class:`PointIndex` that can list all its points."""

    def pages(self) -> Iterator[list[str]]:
        """Yield the ids of all points in batches."""
        ...


def load_points(
    connection: Connection,
    seqs: Sequence[int],
    dim: int,
    damaged: set[str],
) -> list[IndexPoint]:
    """Return the points of these chunks, by chunk and window.

    Chunks that are gone and windows without a vector are left out. So are damaged windows; the ids
    of their documents are added to ``damaged``. Raises :class:`EmbeddingMismatchError` for a stored
    vector of another dimension.
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


def add_texts(points: Iterable[IndexPoint], loaded: Mapping[str, Chunk]) -> None:
    """Add to the points the passages with these ids, in LlamaIndex's form."""
    for point in points:
        chunk = loaded.get(point.payload[CHUNK])
        if chunk is None:
            continue
        metadata = {
            **chunk.metadata,
            "dataset": chunk.dataset,
            "path": chunk.path,
            "title": chunk.title,
            "heading_path": list(chunk.heading_path),
            **{
                name: value
                for name in ("page", "line_start", "line_end", "time_start", "time_end")
                if (value := getattr(chunk.locator, name)) is not None
            },
        }
        node = {
            "class_name": "TextNode",
            "id_": chunk.chunk_id,
            "text": chunk.text,
            "metadata": metadata,
            "start_char_idx": chunk.start_offset,
            "end_char_idx": chunk.end_offset,
            "relationships": {_SOURCE: {"node_id": chunk.source_doc_id}},
        }
        point.payload["_node_type"] = "TextNode"
        point.payload["_node_content"] = json.dumps(node, ensure_ascii=False)
        point.payload.update(path=chunk.path, title=chunk.title)


_SOURCE = "1"  # NodeRelationship.SOURCE


def unit(vector: Vector) -> Vector:
    """Return the vector scaled to length 1; a vector of zeros stays."""
    import numpy as np

    length = float(np.linalg.norm(vector))
    return np.asarray(vector / length if length > 0 else vector, dtype=np.float32)


def query_vector(vector: Vector, dim: int) -> Vector:
    """Check a query's vector and scale it to length 1.

    Raises :class:`EmbeddingMismatchError` for another dimension than ``dim``, and
    :class:`EmbeddingError` for NaN or infinity.
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
    """Return the tokens of chunks by row number; each document's tokens are computed once."""
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
    of_the_chunk = ("modality", "section")  # a document's own fields of these names are ignored
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
