"""The cache of answers from language models and rerankers.

A key covers all that an answer depends on: the kind, the model with the version of its prompt, and
the texts sent. A reranker's entry also has the hash of its passage's text, and is dropped when no
chunk has that text any more. Every entry expires.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import BigInteger, Connection, delete, func, insert, select, update

from catalog.core.ids import sha256_hex
from catalog.store.filter_sql import among
from catalog.store.schema import chunks, llm_cache
from catalog.store.sql_forms import as_bytes

Kind = Literal["expansion", "rerank", "answer"]
KINDS: tuple[Kind, ...] = ("expansion", "rerank", "answer")


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """An answer to store as JSON; for a passage's score also the SHA-1 of the chunk's text.

    The JSON must not contain a lone surrogate; ``json.dumps`` escapes them by default.
    """

    value: str
    text_hash: str | None = None


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Statistics of one model's answers.

    ``hits`` counts uses after the first, ``bytes`` the size of the values. ``oldest`` and
    ``newest`` are in seconds from 1970.
    """

    kind: str
    model: str
    entries: int
    hits: int
    bytes: int
    oldest: float
    newest: float


def cache_key(*parts: str) -> str:
    """Return 64 hex digits that are unique for this list, not only for its joined text."""
    return sha256_hex(json.dumps(parts, ensure_ascii=False))


def load(
    connection: Connection, keys: Iterable[str], *, after: float
) -> dict[str, tuple[str, float]]:
    """Return values created after that time, by key, with their time of creation."""
    entry = llm_cache.c
    query = select(entry.key, entry.value, entry.created_at)
    rows = connection.execute(query.where(among(entry.key, keys), entry.created_at > after))
    return {row.key: (row.value, row.created_at) for row in rows}


def save(
    connection: Connection, entries: Mapping[str, CacheEntry], *, kind: Kind, model: str, now: float
) -> None:
    """Store answers; they replace those with the same keys, and their hits start at 0."""
    drop(connection, entries)
    rows = [
        {
            "key": key,
            "kind": kind,
            "model": model,
            "value": entry.value,
            "text_hash": entry.text_hash,
            "created_at": now,
            "hits": 0,
        }
        for key, entry in entries.items()
    ]
    if rows:
        connection.execute(insert(llm_cache), rows)


def count_hits(connection: Connection, keys: Iterable[str]) -> None:
    """Note that these entries were used once more."""
    changed = {"hits": llm_cache.c.hits + 1}
    connection.execute(update(llm_cache).where(among(llm_cache.c.key, keys)).values(changed))


def purge(connection: Connection, *, before: float) -> int:
    """Drop expired entries, and every score of a text that no chunk has any more.

    An entry is expired if :func:`load` with ``after=before`` would not return it. Returns the
    number dropped.
    """
    expired = sum(drop_expired(connection, kind, before=before) for kind in KINDS)
    live = select(chunks.c.text_hash)
    named = (llm_cache.c.kind == "rerank", llm_cache.c.text_hash.is_not(None))
    unused = delete(llm_cache).where(*named, llm_cache.c.text_hash.not_in(live))
    return expired + connection.execute(unused).rowcount


def drop_expired(connection: Connection, kind: Kind, *, before: float) -> int:
    """Drop the expired entries of one kind by means of an index; return the number dropped."""
    old = (llm_cache.c.kind == kind, llm_cache.c.created_at <= before)
    return connection.execute(delete(llm_cache).where(*old)).rowcount


def drop(connection: Connection, keys: Iterable[str]) -> None:
    """Drop the entries of these keys."""
    connection.execute(delete(llm_cache).where(among(llm_cache.c.key, keys)))


def clear(connection: Connection, kind: Kind | None = None) -> int:
    """Drop all entries, or all of one kind; return the number dropped."""
    statement = delete(llm_cache)
    if kind is not None:
        statement = statement.where(llm_cache.c.kind == kind)
    return connection.execute(statement).rowcount


def stats(connection: Connection) -> list[CacheStats]:
    """Count the stored answers, expired or not, by kind and model in alphabetical order."""
    kind, model, created = llm_cache.c.kind, llm_cache.c.model, llm_cache.c.created_at
    in_bytes = as_bytes(llm_cache.c.value)  # a text's length counts characters
    hits = func.sum(llm_cache.c.hits).cast(BigInteger)  # Postgres gives sums as decimals
    totals = (func.count(), hits, func.sum(func.length(in_bytes)))
    query = select(kind, model, *totals, func.min(created), func.max(created))
    query = query.group_by(kind, model).order_by(kind, model)
    return [CacheStats(*row) for row in connection.execute(query)]
