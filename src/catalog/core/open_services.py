"""Services that stay open between calls, one for each set of settings."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from threading import Lock
from typing import Generic, Protocol, TypeVar

from catalog.core.forks import survive_forks


class Closable(Protocol):
    """Something that holds files or connections."""

    def close(self) -> None:
        """Release them."""
        ...


ServiceT = TypeVar("ServiceT", bound=Closable)


class OpenServices(Generic[ServiceT]):
    """Open a service at the first call for a key; close all on :meth:`close` and at exit.

    A forked child opens its own.
    """

    def __init__(self) -> None:
        self._services: dict[str, ServiceT] = {}
        self._lock = Lock()
        survive_forks(self, OpenServices._leave_to_parent)

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

    def _leave_to_parent(self) -> None:
        atexit.unregister(self.close)
        self._of_parent = self._services  # never destroyed here
        self._services, self._lock = {}, Lock()

    def close(self) -> None:
        """Close every service; the next call opens anew."""
        with self._lock:
            opened = list(self._services.values())
            self._services.clear()
        for service in opened:
            service.close()
