"""Vectors of queries, kept in memory and in the store so that a repeated query costs no model."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from catalog.core.errors import StoreError
from catalog.core.recent import LRUCache
from catalog.embedding.resilient import ResilientEmbedding
from catalog.store import Database, embedding_cache

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vector = npt.NDArray[np.float32]


class QueryVectors:
    """Embeds queries through a cache keyed by model, prefix and text.

    ``hits`` and ``misses`` count since the object was made; the store counts each kept query's
    hits too. A store that is busy or read-only is simply not written to.
    """

    def __init__(self, model: ResilientEmbedding, database: Database, size: int) -> None:
        self._model = model
        self._database = database
        self._size = size
        self._memory: LRUCache[str, Vector] = LRUCache(size)
        self.hits = 0
        self.misses = 0

    def embed(self, query: str, side: embedding_cache.Side = "query") -> tuple[Vector, bool]:
        """The query's vector, shape ``(dim,)``, and whether it came from the cache.

        ``side="document"`` embeds it as a passage would be: for hypothetical documents.
        """
        model = self._model
        text = (model.query_prefix if side == "query" else model.document_prefix) + query
        key = embedding_cache.embed_key(model.encoder.fingerprint, side, text)
        found = self._recall(key)
        if found is not None:
            self.hits += 1
            return found, True
        self.misses += 1
        vector = model.embed_alone(text)
        self._memory.put(key, vector)
        self._keep(key, vector)
        return vector, False

    def _recall(self, key: str) -> Vector | None:
        vector = self._memory.get(key)
        if vector is not None or self._size == 0:
            return vector
        with self._database.read() as connection:
            vector = embedding_cache.load(connection, [key]).get(key)
        if vector is not None:
            self._memory.put(key, vector)
            self._count(key)
        return vector

    def _count(self, key: str) -> None:
        try:
            with self._database.write(wait=False) as connection:
                embedding_cache.count_hit(connection, key)
        except StoreError:
            return  # counting is not worth an error or a wait

    def _keep(self, key: str, vector: Vector) -> None:
        if self._size == 0:
            return
        try:
            with self._database.write(wait=False) as connection:
                embedding_cache.save(
                    connection,
                    {key: vector},
                    fingerprint=self._model.encoder.fingerprint,
                    side="query",
                    now=time.time(),
                )
                embedding_cache.trim_queries(connection, self._size)
        except StoreError:
            return  # the next process will embed it again, that is all
