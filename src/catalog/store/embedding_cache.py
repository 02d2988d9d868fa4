"""The vector of every text ever embedded, by what it depends on.

A key covers the model's fingerprint, the side (query or document), the exact text the model
saw, prefix included. A text that comes back costs nothing; another model or prefix never
reads a stale vector.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from sqlalchemy import Connection, delete, exists, func, insert, select, update

from catalog.core.ids import sha1_hex
from catalog.store.schema import chunk_windows, embeddings

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vector = npt.NDArray[np.float32]

Side = Literal["query", "document"]
_BATCH = 500  # bound parameters in one statement


def embed_key(fingerprint: str, side: Side, text: str) -> str:
    """Return the key of ``text`` exactly as the model sees it, prefix included."""
    return sha1_hex(f"{fingerprint}\0{side}\0{text}")


def find_missing(connection: Connection, keys: Iterable[str]) -> set[str]:
    """Return those keys that have no vector yet."""
    distinct = list(dict.fromkeys(keys))
    present: set[str] = set()
    for batch in _batches(distinct):
        query = select(embeddings.c.embed_key).where(embeddings.c.embed_key.in_(batch))
        present.update(connection.scalars(query))
    return set(distinct) - present


def load(connection: Connection, keys: Iterable[str]) -> dict[str, Vector]:
    """Return the vectors that exist, by key; each of shape ``(dim,)``."""
    vectors: dict[str, Vector] = {}
    columns = select(embeddings.c.embed_key, embeddings.c.vector)
    for batch in _batches(list(dict.fromkeys(keys))):
        for key, blob in connection.execute(columns.where(embeddings.c.embed_key.in_(batch))):
            vectors[key] = decode(blob)
    return vectors


def save(
    connection: Connection,
    vectors: Mapping[str, Vector],
    *,
    fingerprint: str,
    side: Side,
    now: float,
) -> None:
    """Keep vectors; a key that is there already stays as it is."""
    new = find_missing(connection, vectors)
    rows = [
        {
            "embed_key": key,
            "fingerprint": fingerprint,
            "side": side,
            "vector": encode(vectors[key]),
            "created_at": now,
            "hits": 0,
        }
        for key in vectors
        if key in new
    ]
    if rows:
        connection.execute(insert(embeddings), rows)


def count_hit(connection: Connection, key: str) -> None:
    """Note that a cached query vector was used once more."""
    changed = {"hits": embeddings.c.hits + 1}
    connection.execute(update(embeddings).where(embeddings.c.embed_key == key).values(changed))


def trim_queries(connection: Connection, keep: int) -> None:
    """Drop all but the ``keep`` newest query vectors."""
    newest = (
        select(embeddings.c.created_at)
        .where(embeddings.c.side == "query")
        .order_by(embeddings.c.created_at.desc())
        .offset(keep)
        .limit(1)
    )
    bound = connection.scalar(newest)
    if bound is not None:
        old = (embeddings.c.side == "query", embeddings.c.created_at <= bound)
        connection.execute(delete(embeddings).where(*old))


def query_cache_stats(connection: Connection) -> tuple[int, int]:
    """Count the query vectors kept, and how often they were used again."""
    columns = select(func.count(), func.coalesce(func.sum(embeddings.c.hits), 0))
    row = connection.execute(columns.where(embeddings.c.side == "query")).one()
    return int(row[0]), int(row[1])


def purge_unused(connection: Connection) -> int:
    """Drop document vectors that no chunk uses any more; return the number dropped."""
    used = exists().where(chunk_windows.c.embed_key == embeddings.c.embed_key)
    result = connection.execute(delete(embeddings).where(embeddings.c.side == "document", ~used))
    return result.rowcount


def encode(vector: Vector) -> bytes:
    """Return the vector as little-endian float32 bytes."""
    import numpy as np

    return np.ascontiguousarray(vector, dtype="<f4").tobytes()


def decode(blob: bytes) -> Vector:
    """Return the vector that :func:`encode` wrote."""
    import numpy as np

    return np.frombuffer(blob, dtype="<f4")


def _batches(keys: Sequence[str]) -> Iterable[Sequence[str]]:
    return (keys[start : start + _BATCH] for start in range(0, len(keys), _BATCH))
