"""Passages that are stored and have no vector yet: found by their words until they get it.

``meta`` notes the datasets that may hold such, so that a search of any other counts nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, delete, distinct, func, select

from catalog.store.database import read_meta, set_meta
from catalog.store.engine_types import Restriction
from catalog.store.filter_sql import (
    DatasetNames,
    among,
    among_bound,
    as_bound,
)
from catalog.store.schema import (
    chunk_windows,
    chunks,
    documents,
    embedded_windows,
    embeddings,
    meta,
)

_NOTE = "waiting:"  # with a dataset's name: the key of its note
_NOTED = select(meta.c.key).where(among_bound(meta.c.key, "keys")).limit(1)
_LEAD = 16  # tokens before a window that say where it stands, about


@dataclass(frozen=True, slots=True)
class WaitingChunk:
    """A stored chunk, the keys of those of its windows to embed, and their size in tokens."""

    seq: int
    keys: tuple[str, ...]
    tokens: int


def note_waiting(connection: Connection, dataset: str, document_ids: Iterable[int]) -> None:
    """Note that passages of the dataset wait for vectors, if some of the documents do."""
    if read_meta(connection, _key(dataset)) is None and _is_any(
        connection, among(chunks.c.document_id, document_ids)
    ):
        set_meta(connection, _key(dataset), "yes")


def settle_waiting(connection: Connection, dataset: str) -> bool:
    """Note whether passages of the dataset wait for vectors, and return it."""
    is_waiting = _is_any(connection, chunks.c.dataset == dataset)
    if is_waiting:
        set_meta(connection, _key(dataset), "yes")
    else:
        connection.execute(delete(meta).where(meta.c.key == _key(dataset)))
    return is_waiting


def list_waiting(connection: Connection, dataset: str, since: float) -> list[WaitingChunk]:
    """Return the chunks that wait: those of documents indexed ``since`` first, the newest first.

    ``since`` is in seconds from 1970. A text that several chunks wait for is one's only.
    """
    size = func.coalesce(chunks.c.tokens, func.length(chunks.c.text) / 4)
    query = (
        _waiting(select(chunks.c.seq, chunk_windows.c.embed_key, size, chunks.c.cues.is_not(None)))
        .join(documents, documents.c.id == chunks.c.document_id)
        .where(chunks.c.dataset == dataset, chunk_windows.c.embed_key.is_not(None))
        .order_by(
            documents.c.indexed_at < since,
            documents.c.dated.desc().nulls_last(),
            documents.c.id,
            chunks.c.position,
            chunk_windows.c.window,
        )
    )
    seen: set[str] = set()
    waiting = []
    for seq, rows in groupby(connection.execute(query), key=lambda row: int(row[0])):
        windows = [row for row in rows if row[1] not in seen]
        seen.update(row[1] for row in windows)
        if windows:
            # Speech is embedded as a whole and in parts, any other text once.
            tokens = windows[0][2] * (2 if windows[0][3] and len(windows) > 1 else 1)
            keys = tuple(row[1] for row in windows)
            waiting.append(WaitingChunk(seq, keys, int(tokens) + _LEAD * len(keys)))
    return waiting


def find_waiting_for(connection: Connection, dataset: str, keys: Iterable[str]) -> list[str]:
    """Return the ids of the dataset's chunks that wait for any of these vectors, in order."""
    wanted = set(keys)
    if not wanted:
        return []
    query = _waiting(select(chunks.c.chunk_id)).where(
        chunks.c.dataset == dataset, among(chunk_windows.c.embed_key, wanted)
    )
    return list(dict.fromkeys(connection.scalars(query.order_by(chunks.c.seq))))


def count_waiting(connection: Connection, dataset: str) -> tuple[int, int]:
    """Count the documents, and the passages, that wait for a vector."""
    if not is_noted_waiting(connection, dataset):
        return 0, 0
    columns = select(func.count(distinct(chunks.c.document_id)), func.count(distinct(chunks.c.seq)))
    row = connection.execute(_waiting(columns).where(chunks.c.dataset == dataset)).one()
    return int(row[0]), int(row[1])


def embedded_share(connection: Connection, restriction: Restriction) -> float | None:
    """Return the share of the passages that may answer which have a vector, 0 to 1.

    ``None`` says that all have, or that there are none.
    """
    if restriction.scope.is_nothing or not is_noted_waiting(connection, restriction.dataset):
        return None
    of_them = restriction.clause()
    total = connection.scalar(select(func.count()).select_from(chunks).where(of_them)) or 0
    with_vector = select(func.count(distinct(chunks.c.seq))).select_from(embedded_windows)
    done = connection.scalar(with_vector.where(of_them)) or 0
    return done / total if done < total else None


def find_unembedded(
    connection: Connection, names: DatasetNames, seqs: Iterable[int]
) -> frozenset[int]:
    """Return those of the datasets' chunks that have no vector at all."""
    if not is_noted_waiting(connection, names):
        return frozenset()
    wanted = set(seqs)
    query = select(chunks.c.seq).select_from(embedded_windows).where(among(chunks.c.seq, wanted))
    return frozenset(wanted.difference(connection.scalars(query)))


def is_noted_waiting(connection: Connection, names: DatasetNames) -> bool:
    """Tell whether it was noted that passages of the datasets wait for vectors; none is looked at.

    A vector that was lost since is not known of before :func:`settle_waiting` looks.
    """
    keys = map(_key, (names,) if isinstance(names, str) else names)
    return connection.scalar(_NOTED, {"keys": as_bound(keys)}) is not None


def _waiting(query: Select[*tuple[Any, ...]]) -> Select[*tuple[Any, ...]]:
    """Confine a query of chunks and their windows to windows without a vector.

    A chunk without windows is among them: its document is to be read anew, for another model.
    """
    windows = chunks.outerjoin(chunk_windows).outerjoin(
        embeddings, embeddings.c.embed_key == chunk_windows.c.embed_key
    )
    return query.select_from(windows).where(embeddings.c.embed_key.is_(None))


def _is_any(connection: Connection, is_of: ColumnElement[bool]) -> bool:
    return connection.scalar(_waiting(select(chunks.c.seq)).where(is_of).limit(1)) is not None


def _key(dataset: str) -> str:
    return f"{_NOTE}{dataset}"
