"""The vectors of texts, the model that made them, and the passages that wait for one.

The key of a vector covers the model's fingerprint and the exact text that the model saw, prefix
included. So a text that returns is not embedded again, and another model or prefix never gets an
outdated vector. A passage without a vector is found by its words. ``meta`` notes which datasets
may have such passages; searches of all other datasets need not count them.
"""

from __future__ import annotations

import json
import secrets
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    delete,
    distinct,
    exists,
    func,
    literal,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert  # SQLite has the same form

from catalog.core.errors import EmbeddingMismatchError, StoreDamagedError
from catalog.core.ids import sha1_hex
from catalog.core.settings.loading import find_presets, load_preset
from catalog.store.database import Database, read_meta, set_meta
from catalog.store.filter_sql import DatasetNames, among
from catalog.store.restriction import Restriction, change_stamp
from catalog.store.schema import (
    chunk_windows,
    chunks,
    datasets,
    documents,
    embedded_windows,
    embeddings,
    meta,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vector = npt.NDArray[np.float32]


Side = Literal["query", "document"]
_AT_ONCE = 500  # vectors in memory
_LEAD = 16  # about the tokens of title and headings in front of a window
_MODEL = "embedding"  # key of the store's settings under which its model stands


def embed_key(fingerprint: str, text: str) -> str:
    """Return the key of a document's ``text`` exactly as the model sees it, prefix included."""
    return sha1_hex(f"{fingerprint}\0document\0{text}")


def vector_checksum(key: str, blob: bytes) -> int:
    """Return the CRC-32 of a vector's key and bytes."""
    return zlib.crc32(blob, zlib.crc32(key.encode("utf-8", "surrogatepass")))


def is_whole_vector(key: str, blob: object, checksum: int | None) -> bool:
    """Return whether these bytes are the vector that was stored."""
    return isinstance(blob, bytes) and vector_checksum(key, blob) == checksum


def load(connection: Connection, keys: Iterable[str]) -> dict[str, Vector]:
    """Return the vectors of these keys that exist and are undamaged, each of shape ``(dim,)``."""
    of = embeddings.c
    query = select(of.embed_key, of.vector, of.checksum).where(among(of.embed_key, keys))
    rows = connection.execute(query)
    return {key: decode(blob) for key, blob, crc in rows if is_whole_vector(key, blob, crc)}


def save(
    connection: Connection, vectors: Mapping[str, Vector], *, fingerprint: str, now: float
) -> None:
    """Store vectors; a key that has a vector keeps it.

    Stored chunks that waited for one are found by it from this transaction on. Raises
    :class:`EmbeddingMismatchError` where the store's vectors are of another model.
    """
    require_fingerprint(connection, fingerprint)
    made = {"fingerprint": fingerprint, "side": "document", "created_at": now}
    rows = [
        {"embed_key": key, "vector": blob, "checksum": vector_checksum(key, blob)} | made
        for key, blob in ((key, encode(vector)) for key, vector in vectors.items())
    ]
    put = insert(embeddings).on_conflict_do_nothing()
    counting = connection.execution_options(preserve_rowcount=True)
    if rows and counting.execute(put, rows).rowcount:
        change_stamp(connection, users_of(vectors), now, rows=False)


def users_of(keys: Iterable[str]) -> Select[str]:
    """Select the names of the datasets with passages that use these vectors."""
    used = select(chunks.c.dataset).join(chunk_windows).distinct()
    return used.where(among(chunk_windows.c.embed_key, keys))


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


def purge_unused(connection: Connection) -> int:
    """Drop the vectors that no chunk uses any more; return the number dropped."""
    unused = ~exists().where(chunk_windows.c.embed_key == embeddings.c.embed_key)
    return connection.execute(delete(embeddings).where(unused)).rowcount


def encode(vector: Vector) -> bytes:
    """Return the vector as little-endian float32 bytes."""
    import numpy as np

    return np.ascontiguousarray(vector, dtype="<f4").tobytes()


def decode(blob: bytes) -> Vector:
    """Return the vector that :func:`encode` turned into bytes."""
    import numpy as np

    return np.frombuffer(blob, dtype="<f4")


@dataclass(frozen=True, slots=True)
class StoredModel:
    """Name, fingerprint and dimension of the model whose vectors a store holds."""

    model: str
    fingerprint: str
    dim: int


def read_stored_model(database: Database) -> StoredModel | None:
    """Return the store's model; ``None`` until something is embedded."""
    with database.read() as connection:
        return read_model(connection)


def read_model(connection: Connection) -> StoredModel | None:
    """Return the store's model as ``connection`` sees it; see :func:`read_stored_model`."""
    value = read_meta(connection, _MODEL)
    try:
        return StoredModel(**json.loads(value)) if value is not None else None
    except (ValueError, TypeError, RecursionError) as error:
        raise StoreDamagedError(
            "the store's record of its embedding model is damaged: run 'catalog index rebuild "
            "--keep-settings'"
        ) from error


def require_model(database: Database, model: StoredModel) -> None:
    """Bind a new store to the model; raise :class:`EmbeddingMismatchError` if bound to another."""
    with database.read() as connection:
        is_bound = require_fingerprint(connection, model.fingerprint, model.model)
    if not is_bound:
        with database.write() as connection:
            if not require_fingerprint(connection, model.fingerprint, model.model):
                set_meta(connection, _MODEL, json.dumps(asdict(model)))


def require_fingerprint(connection: Connection, fingerprint: str, name: str = "") -> bool:
    """Return whether the store is bound to a model; raise if that is another model than this one.

    ``name`` is this model's name for the :class:`EmbeddingMismatchError`. Within a write
    transaction no other process can change the model until the transaction ends.
    """
    bound = read_model(connection)
    if bound is None or bound.fingerprint == fingerprint:
        return bound is not None
    other = f"{name} ({fingerprint})" if name else fingerprint
    models = {preset: load_preset(preset).get("embedding", {}) for preset in find_presets()}
    presets = [one for one, of in models.items() if of.get("model") == bound.model != name]
    how = f" with --preset {presets[0]} (IDX_PRESET={presets[0]})" if presets else ""
    raise EmbeddingMismatchError(
        f"the store has vectors of {bound.model} ({bound.fingerprint}), not of {other}. Use that "
        f"model{how}, or embed everything again (catalog index rebuild --keep-settings)"
    )


def adopt_model(database: Database, model: StoredModel) -> None:
    """Bind the store to a model; if it is another one, drop all vectors, and let all passages wait.

    Texts and the lexical index stay.
    """
    with database.write() as connection:
        bound = None
        with suppress(StoreDamagedError):
            bound = read_model(connection)
        set_meta(connection, _MODEL, json.dumps(asdict(model)))
        if bound is None or bound.fingerprint != model.fingerprint:
            connection.execute(delete(chunk_windows))
            connection.execute(delete(embeddings))
            for name in connection.scalars(select(datasets.c.name)).all():
                settle_waiting(connection, name)
            changed = {"generation": datasets.c.generation + 1, "state": secrets.token_hex(8)}
            connection.execute(update(datasets).values(changed))


@dataclass(frozen=True, slots=True)
class WaitingChunk:
    """A stored chunk, the keys of its windows that have no vector, and their size in tokens."""

    seq: int
    keys: tuple[str, ...]
    tokens: int


def waiting_key(dataset: str) -> str:
    """Return the key in ``meta`` of the note that passages of the dataset wait for vectors."""
    return f"waiting:{dataset}"


def note_waiting(connection: Connection, dataset: str, document_ids: Iterable[int]) -> None:
    """Note that passages of the dataset wait for vectors, if some of these documents' do."""
    _note_if(connection, dataset, among(chunks.c.document_id, document_ids))


def settle_waiting(connection: Connection, dataset: str, seqs: Iterable[int] | None = None) -> None:
    """Look whether passages of the dataset, or those of them that may, wait; note the result."""
    of_it = chunks.c.dataset == dataset if seqs is None else among(chunks.c.seq, seqs)
    none_waits = ~_waiting(select(chunks.c.seq)).where(of_it).exists()
    is_note = meta.c.key == waiting_key(dataset)
    if not connection.execute(delete(meta).where(is_note, none_waits)).rowcount:
        _note_if(connection, dataset, of_it)


def _note_if(connection: Connection, dataset: str, where: ColumnElement[bool]) -> None:
    waiting = _waiting(select(chunks.c.seq)).where(where).exists()
    row = select(literal(waiting_key(dataset)), literal("yes")).where(waiting)
    note = insert(meta).from_select(["key", "value"], row)
    connection.execute(note.on_conflict_do_nothing())


def list_waiting(connection: Connection, dataset: str, since: float) -> list[WaitingChunk]:
    """Return the chunks that wait for vectors, in the order in which to embed them.

    Chunks of documents indexed after ``since`` (seconds from 1970) come first, then the newest
    documents. A text for which several chunks wait is listed with the first of them only. A chunk
    without keys waits for its document to be read again.
    """
    size = func.coalesce(chunks.c.tokens, func.length(chunks.c.text) / 4)
    query = (
        _waiting(select(chunks.c.seq, chunk_windows.c.embed_key, size, chunks.c.cues.is_not(None)))
        .join(documents, documents.c.id == chunks.c.document_id)
        .where(chunks.c.dataset == dataset)
        .order_by(
            documents.c.indexed_at < since,
            documents.c.dated.desc().nulls_last(),
            documents.c.id,
            chunks.c.position,
            chunk_windows.c.window,
        )
    )
    seen = set[str]()
    waiting = []
    for seq, rows in groupby(connection.execute(query), key=lambda row: int(row[0])):
        [(_, first, tokens, has_cues), *_] = windows = list(rows)
        keys = tuple(row[1] for row in windows if first is not None and row[1] not in seen)
        seen.update(keys)
        if keys or first is None:
            # Speech is embedded as a whole and in parts, any other text once.
            tokens *= 2 if has_cues and len(keys) > 1 else 1
            waiting.append(WaitingChunk(seq, keys, int(tokens) + _LEAD * len(keys)))
    return waiting


def find_waiting_for(connection: Connection, dataset: str, keys: Iterable[str]) -> list[str]:
    """Return the ids of the dataset's chunks that wait for any of these vectors, in order."""
    of_keys = (chunks.c.dataset == dataset, among(chunk_windows.c.embed_key, keys))
    query = _waiting(select(chunks.c.chunk_id)).where(*of_keys).order_by(chunks.c.seq)
    return list(dict.fromkeys(connection.scalars(query)))


def count_waiting(connection: Connection, dataset: str) -> tuple[int, int]:
    """Count the documents, and the passages, that wait for a vector."""
    if not is_noted_waiting(connection, dataset):
        return 0, 0
    columns = select(func.count(distinct(chunks.c.document_id)), func.count(distinct(chunks.c.seq)))
    row = connection.execute(_waiting(columns).where(chunks.c.dataset == dataset)).one()
    return int(row[0]), int(row[1])


def files_waiting(connection: Connection, dataset: str) -> set[str]:
    """Return the files of the dataset that have a passage without a vector."""
    if not is_noted_waiting(connection, dataset):
        return set()
    found = _waiting(select(documents.c.file)).join(
        documents, documents.c.id == chunks.c.document_id
    )
    return set(connection.scalars(found.where(documents.c.dataset == dataset).distinct()))


def embedded_share(connection: Connection, restriction: Restriction) -> float | None:
    """Return the share of the restriction's passages that have a vector, 0 to 1.

    ``None`` if all have one or if there are no passages.
    """
    if restriction.scope.is_nothing or not is_noted_waiting(connection, restriction.dataset):
        return None
    of_them, count = restriction.clause(), func.count(distinct(chunks.c.seq))
    total = connection.scalar(select(count).where(of_them)) or 0
    done = connection.scalar(select(count).select_from(embedded_windows).where(of_them)) or 0
    return done / total if done < total else None


def find_unembedded(
    connection: Connection, names: DatasetNames, seqs: Iterable[int]
) -> frozenset[int]:
    """Return the chunks among these that have no vector for any of their windows."""
    if not is_noted_waiting(connection, names):
        return frozenset()
    wanted = set(seqs)
    query = select(chunks.c.seq).select_from(embedded_windows).where(among(chunks.c.seq, wanted))
    return frozenset(wanted.difference(connection.scalars(query)))


def is_noted_waiting(connection: Connection, names: DatasetNames) -> bool:
    """Return whether a note says that passages of the datasets wait for vectors.

    A vector that was lost later is noticed by :func:`settle_waiting`.
    """
    here = (names,) if isinstance(names, str) else names
    return any(read_meta(connection, waiting_key(name)) is not None for name in here)


def _waiting(query: Select[*tuple[Any, ...]]) -> Select[*tuple[Any, ...]]:
    """Restrict a query of chunks and their windows to windows without a vector.

    That includes chunks without windows: after a change of model, their document is read again.
    """
    windows = chunks.outerjoin(chunk_windows).outerjoin(
        embeddings, embeddings.c.embed_key == chunk_windows.c.embed_key
    )
    return query.select_from(windows).where(embeddings.c.embed_key.is_(None))
