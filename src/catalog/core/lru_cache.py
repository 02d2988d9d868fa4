"""The last used of many values, in memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")


class LRUCache(Generic[KeyT, ValueT]):
    """Keeps the ``size`` values last put or got, at least one; safe between threads."""

    def __init__(self, size: int) -> None:
        self._size = max(1, size)
        self._values: OrderedDict[KeyT, ValueT] = OrderedDict()
        self._lock = Lock()

    def get(self, key: KeyT) -> ValueT | None:
        """The value of a key, if it is still kept."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key]

    def put(self, key: KeyT, value: ValueT) -> None:
        """Keep a value; the one unused for longest goes."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self._size:
                self._values.popitem(last=False)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._values.clear()
