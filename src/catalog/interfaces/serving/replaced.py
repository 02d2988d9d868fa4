"""Noticing that the store of a running server was deleted, moved away or restored from a copy.

What the server holds open is the old file then, and the indexes it loaded are of that one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from catalog.core.errors import StoreReplacedError


def store_unchanged_check(store: Path) -> Callable[[], None]:
    """A check, to be called often, that the path leads to the file it leads to now.

    It raises :class:`StoreReplacedError` otherwise; what cannot be looked at counts as unchanged.
    """
    before = _which(store)

    def check() -> None:
        if _which(store) not in (before, _UNKNOWN):
            raise StoreReplacedError(
                f"{store} is not the file this server opened: it was deleted or replaced; "
                "start the server anew"
            )

    return check


_UNKNOWN = (-1, -1)


def _which(store: Path) -> tuple[int, int] | None:
    """Device and number of the file; ``None`` if it is not there."""
    try:
        about = store.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return _UNKNOWN
    return about.st_dev, about.st_ino
