"""Finding what a dotted path names."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any


def load_object(spec: str, default: str) -> Any:
    """What ``package.module:attribute.attribute`` names; without a colon, ``default`` is meant.

    Modules of the working directory are found. Importing runs the module's code, so whatever
    that raises comes out.
    """
    module_name, _, names = spec.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    found: Any = importlib.import_module(module_name)
    for name in (names or default).split("."):
        found = getattr(found, name)
    return found
