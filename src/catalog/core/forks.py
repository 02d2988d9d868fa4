"""Keeping open services whole in a process that is forked from the one that opened them.

Their threads do not exist there, and native libraries wait for those when an object is destroyed.
So the child opens its own services, and never destroys the inherited ones.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from typing import Any
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
    """Have this process end without the exit handlers of C, as children of multiprocessing do.

    In a forked child, those of onnxruntime wait for its parent's threads, or abort.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "on_exit"):  # it calls _exit with the exit status
        library.on_exit(library._exit, None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
