"""Caches of models' answers: vectors in memory, expansions and scores in the store."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from catalog.core.errors import StoreError
from catalog.core.lru_cache import LRUCache
from catalog.store import Database, llm_cache
from catalog.store.embedding_cache import Side
from catalog.store.llm_cache import CacheEntry, Kind

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from catalog.embedding.model import EmbeddingModel

    Vector = npt.NDArray[np.float32]


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
            found = llm_cache.load(connection, keys, after=self._clock() - self._lifetime)
        return {key: value for key, (value, _) in found.items()}

    def put(self, entries: Mapping[str, CacheEntry], *, model: str) -> None:
        """Cache answers of ``model``, and drop expired ones of this kind."""
        if self._lifetime <= 0 or not entries:
            return
        now = self._clock()
        with suppress(StoreError), self._database.write(wait=False) as connection:
            llm_cache.drop_expired(connection, self._kind, before=now - self._lifetime)
            llm_cache.save(connection, entries, kind=self._kind, model=model, now=now)


class QueryVectors:
    """Embed queries through a cache in memory of the ``size`` last ones, keyed by side and text.

    ``model_ms`` is the model's time in milliseconds since the object was made.
    """

    def __init__(self, model: EmbeddingModel, size: int) -> None:
        self.model, self.model_ms = model, 0.0
        self._memory: LRUCache[tuple[Side, str], Vector] = LRUCache(size)

    def embed(self, query: str, side: Side = "query") -> tuple[Vector, bool]:
        """Return the query's vector, shape ``(dim,)``, and whether it came from the cache.

        ``side="document"`` embeds it like a passage, for hypothetical documents.
        """
        if (vector := self._memory.get((side, query))) is not None:
            return vector, True
        model, started = self.model, time.perf_counter()
        prefix = model.query_prefix if side == "query" else model.document_prefix
        vector = model.embed_alone(prefix + query, is_passage=side == "document")
        self.model_ms += (time.perf_counter() - started) * 1000
        self._memory.put((side, query), vector)
        return vector, False
