"""Services that stay open between calls, one for each set of settings."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from threading import Lock
from typing import Any, Generic, TypeVar

from catalog.core.errors import ForkedError

ServiceT = TypeVar("ServiceT", bound=Any)  # has close()


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
