"""Importing objects by dotted path."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any


def load_object(spec: str, default: str) -> Any:
    """Import what ``package.module:attribute.attribute`` names; without a colon, ``default``.

    Modules of the working directory are found. Importing runs the module's code, so whatever
    that raises comes out.
    """
    module_name, _, names = spec.partition(":")
    working_directory = str(Path.cwd())
    if working_directory not in sys.path:
        sys.path.insert(0, working_directory)
    target: Any = importlib.import_module(module_name)
    for name in (names or default).split("."):
        target = getattr(target, name)
    return target
