"""Start the ``catalog`` command, or explain which other ``catalog`` hides it.

``catalog`` is a common name: many Django projects have a folder called so. Python imports the
first one on its path. This package has a name of its own, so it can say which one that was.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # typing is not imported: Ctrl-C is not heeded yet
if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["find_hiding", "main"]


def find_hiding() -> Path | None:
    """Return the folder or file that ``import catalog`` finds in place of ours, else ``None``."""
    from importlib.util import find_spec  # here, so that Ctrl-C meanwhile is heeded
    from pathlib import Path

    spec = find_spec("catalog")
    if spec is None or spec.origin is None:  # a folder without __init__.py hides no package
        return None
    found = Path(spec.origin).resolve()
    place = found.parent if found.name == "__init__.py" else found
    return None if place == Path(__file__).resolve().parents[1] / "catalog" else place


def main() -> None:
    """Run the command line; Ctrl-C ends it with 130.

    Exit with 1 and say why if another ``catalog`` comes first.
    """
    try:
        _start()
    except KeyboardInterrupt:  # before the command line can heed it
        sys.stderr.write("catalog: interrupted\n")
        sys.exit(130)


def _start() -> None:
    if (hiding := find_hiding()) is not None:
        sys.stderr.write(
            f"catalog: {hiding} has the same name as the package of this command, and Python "
            f"finds it first.\nRun 'catalog', not 'python -m'; if you did, take {hiding.parent} "
            "out of PYTHONPATH.\n"
        )
        sys.exit(1)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")  # it would read every package's metadata
    from catalog.interfaces.cli import main as run

    run()
