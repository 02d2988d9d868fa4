"""A cache of the values used last: ``cachetools``' cache with a lock."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import suppress
from threading import Lock
from typing import Generic, TypeVar

import cachetools

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")


class LRUCache(Generic[KeyT, ValueT]):
    """Hold the ``size`` values last used, each as much as ``weigh`` says; safe between threads."""

    def __init__(self, size: int, weigh: Callable[[ValueT], int] | None = None) -> None:
        self._values: cachetools.LRUCache[KeyT, ValueT] = cachetools.LRUCache(max(1, size), weigh)
        self._lock = Lock()

    def get(self, key: KeyT) -> ValueT | None:
        """Return the value of a key and count the use; ``None`` without one."""
        with self._lock:
            return self._values.get(key)

    def put(self, key: KeyT, value: ValueT) -> None:
        """Store a value; beyond the size, drop the value that was unused for longest."""
        with self._lock, suppress(ValueError):  # larger than the cache
            self._values[key] = value

    def clear(self) -> None:
        """Forget every value."""
        with self._lock:
            self._values.clear()
