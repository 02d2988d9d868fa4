"""Importing objects by dotted path."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

_PACKAGE = __name__.partition(".")[0]


def load_object(spec: str, default: str) -> Any:
    """Import what ``package.module:attribute.attribute`` names; without a colon, ``default``.

    A module of the working directory is found, and while it is imported so are its neighbours
    that nothing installed has the name of. No other import sees that directory, during or after.
    Importing runs the module's code, so whatever that raises comes out.
    """
    module_name, _, names = spec.partition(":")
    with _working_directory(module_name.partition(".")[0]):
        target: Any = importlib.import_module(module_name)
    for name in (names or default).split("."):
        target = getattr(target, name)
    return target


@contextmanager
def _working_directory(name: str) -> Iterator[None]:
    """Let the working directory be imported from, if it has the top-level module ``name``."""
    folder = str(Path.cwd())
    if name == _PACKAGE or folder in sys.path or PathFinder.find_spec(name, [folder]) is None:
        yield
        return
    finder = _ModuleFinder(name, folder)
    sys.meta_path.insert(0, finder)
    sys.path.append(folder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        sys.path.remove(folder)


class _ModuleFinder:
    """Find one top-level module in a folder, before anything installed of that name."""

    def __init__(self, name: str, folder: str) -> None:
        self._name, self._folder = name, folder

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """Return where the module is; a folder without ``__init__.py`` is left to the others."""
        if name != self._name:
            return None
        spec = PathFinder.find_spec(name, [self._folder])
        return None if spec is None or spec.loader is None else spec
