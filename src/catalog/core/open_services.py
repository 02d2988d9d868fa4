"""Services that stay open between calls, one for each set of settings."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from threading import Lock
from typing import Generic, Protocol, TypeVar


class Closable(Protocol):
    """Something that holds files or connections."""

    def close(self) -> None:
        """Release them."""
        ...


ServiceT = TypeVar("ServiceT", bound=Closable)


class OpenServices(Generic[ServiceT]):
    """Open a service at the first call for a key; close all on :meth:`close` and at exit."""

    def __init__(self) -> None:
        self._services: dict[str, ServiceT] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._services)

    def get(self, key: str, make: Callable[[], ServiceT]) -> ServiceT:
        """Return the service of a key, made if there is none; safe between threads."""
        with self._lock:
            if key not in self._services:
                if not self._services:
                    atexit.register(self.close)
                self._services[key] = make()
            return self._services[key]

    def close(self) -> None:
        """Close every service; the next call opens anew."""
        with self._lock:
            opened = list(self._services.values())
            self._services.clear()
        for service in opened:
            service.close()
