"""Services that stay open between calls, one for each set of settings, also across forks.

The parent's threads do not exist in a forked child, and native libraries wait for them when an
object is destroyed. So a child opens its own services, and never destroys inherited ones.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
from collections.abc import Callable
from threading import Lock
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

_OPENED: WeakKeyDictionary[object, Callable[[Any], None] | None] = WeakKeyDictionary()


def survive_forks(opened: object, then: Callable[[Any], None] | None = None) -> None:
    """Never destroy the object in a forked child; call ``then`` with it there."""
    _OPENED[opened] = then


def _after_fork() -> None:
    for opened, then in list(_OPENED.items()):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(opened))
        if then is not None:
            then(opened)
    if "onnxruntime" in sys.modules:
        _skip_exit_handlers()


def _skip_exit_handlers() -> None:
    """Make this process end without C's exit handlers, like children of multiprocessing.

    In a forked child, onnxruntime's handlers wait for its parent's threads, or abort.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "on_exit"):  # it calls _exit with the exit status
        library.on_exit(library._exit, None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


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
        """Return the service of a key, made on first use; thread-safe."""
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
        """Close every service; the next call opens a new one."""
        with self._lock:
            opened = list(self._services.values())
            self._services.clear()
        for service in opened:
            service.close()
