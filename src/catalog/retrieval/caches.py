"""A cache of models' answers in the store: expansions and scores."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from catalog.core.errors import StoreError
from catalog.store import Database, llm_cache
from catalog.store.llm_cache import CacheEntry, Kind


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
            llm_cache.clear(connection, self._kind, before=now - self._lifetime)
            llm_cache.save(connection, entries, kind=self._kind, model=model, now=now)
