"""What is kept between calls: the values used last, and services that stay open."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Hashable
from contextlib import suppress
from threading import Lock
from typing import Any, Generic, TypeVar

import cachetools

from catalog.core.errors import ForkedError

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")
ServiceT = TypeVar("ServiceT", bound=Any)  # has close()


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


class OpenServices(Generic[ServiceT]):
    """Open a service at the first call for a key; close all on :meth:`close` and at exit."""

    def __init__(self) -> None:
        self._services: dict[str, ServiceT] = {}
        self._lock, self._process = Lock(), 0

    def get(self, key: str, make: Callable[[], ServiceT]) -> ServiceT:
        """Return the service of a key, made on first use; thread-safe.

        Raises :class:`ForkedError` in a fork, which lacks the threads of models and indexes.
        """
        if self._services and self._process != os.getpid():
            raise ForkedError(
                f"process {self._process} searched before it forked this one ({os.getpid()}): "
                "search only after the fork"
            )
        with self._lock:
            if key not in self._services:
                if self._process != os.getpid():
                    self._process = os.getpid()
                    atexit.register(self.close)
                self._services[key] = make()
            return self._services[key]

    def close(self) -> None:
        """Close every service; the next call opens a new one. A fork leaves them to its parent."""
        if self._process == os.getpid():
            with self._lock:
                while self._services:
                    self._services.popitem()[1].close()
