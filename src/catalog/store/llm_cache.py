"""The cache of answers from language models and rerankers.

A key covers all that an answer depends on: the kind, the model with the version of its prompt, and
the texts sent. A reranker's entry also has the hash of its passage's text, and is dropped when no
chunk has that text any more. Every entry expires.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Literal

from sqlalchemy import Connection, delete, select

from catalog.core.errors import StoreError
from catalog.core.ids import sha256_hex
from catalog.store.database import Database
from catalog.store.filter_sql import among
from catalog.store.schema import chunks, llm_cache
from catalog.store.sql_forms import put_rows

Kind = Literal["expansion", "rerank", "answer"]


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """An answer to store as JSON; for a passage's score also the SHA-1 of the chunk's text.

    The JSON must not contain a lone surrogate; ``json.dumps`` escapes them by default.
    """

    value: str
    text_hash: str | None = None


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
    """Store answers; they replace those with the same keys."""
    made = {"kind": kind, "model": model, "created_at": now, "hits": 0}
    rows = [
        {"key": key, "value": entry.value, "text_hash": entry.text_hash} | made
        for key, entry in entries.items()
    ]
    put_rows(connection, llm_cache, rows)


def purge(connection: Connection) -> int:
    """Drop every score of a text that no chunk has any more; return the number dropped."""
    scored = (llm_cache.c.kind == "rerank", llm_cache.c.text_hash.is_not(None))
    is_gone = llm_cache.c.text_hash.not_in(select(chunks.c.text_hash))
    return connection.execute(delete(llm_cache).where(*scored, is_gone)).rowcount


def drop(connection: Connection, keys: Iterable[str]) -> None:
    """Drop the entries of these keys."""
    connection.execute(delete(llm_cache).where(among(llm_cache.c.key, keys)))


def clear(connection: Connection, kind: Kind, *, before: float = inf) -> int:
    """Drop all entries of a kind, or those created until then; return the number dropped."""
    old = (llm_cache.c.kind == kind, llm_cache.c.created_at <= before)
    return connection.execute(delete(llm_cache).where(*old)).rowcount


class ModelCache:
    """A cache of a model's answers in the store; safe to share between threads.

    An answer expires ``lifetime`` seconds after it was saved; 0 turns the cache off. If the store
    is busy, nothing is written.
    """

    def __init__(
        self,
        database: Database,
        *,
        kind: Kind,
        lifetime: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database, self._kind, self._lifetime, self._clock = database, kind, lifetime, clock

    def get(self, keys: Sequence[str]) -> dict[str, str]:
        """Return the cached values as JSON, by key; leave out keys that are missing or expired."""
        if self._lifetime <= 0:
            return {}
        with self._database.read() as connection:
            found = load(connection, keys, after=self._clock() - self._lifetime)
        return {key: value for key, (value, _) in found.items()}

    def put(self, entries: Mapping[str, CacheEntry], *, model: str) -> None:
        """Cache answers of ``model``, and drop expired ones of this kind."""
        if self._lifetime <= 0 or not entries:
            return
        now = self._clock()
        with suppress(StoreError), self._database.write(wait=False) as connection:
            clear(connection, self._kind, before=now - self._lifetime)
            save(connection, entries, kind=self._kind, model=model, now=now)
