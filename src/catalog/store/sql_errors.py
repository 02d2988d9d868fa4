"""What the database driver says went wrong, as errors that tell what to do about it."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy.exc import DatabaseError, OperationalError

from catalog.core.errors import StoreBusyError, StoreDamagedError, StoreError, StoreFullError
from catalog.core.files import remedy

_LEAST_ROOM = 1 << 20  # bytes; opening takes 32 KB beside the store, and any writing more
_DAMAGE = ("not a database", "malformed", "corrupt", "could not decode")
_CLOSED = ("readonly", "unable to open")


@contextmanager
def translate_errors(file: Path) -> Iterator[None]:
    """Turn the driver's errors on that store into ours, so that callers can tell what to do."""
    try:
        yield
    except (OperationalError, sqlite3.OperationalError) as error:
        raise _store_error(_text(error), file) from error
    except (DatabaseError, sqlite3.DatabaseError) as error:
        if isinstance(error, DatabaseError) and not _is_damage(_text(error)):
            raise
        raise _damage_error(_text(error), file) from error
    except UnicodeDecodeError as error:  # in what the driver says of a damaged schema
        raise _damage_error("its text is not UTF-8", file) from error


def is_unwritable(error: sqlite3.OperationalError, file: Path) -> bool:
    """Tell whether nothing can be written in the store's folder: no right, or no room."""
    text = _text(error)
    return any(word in text for word in _CLOSED) or ("disk I/O" in text and _is_full(file))


def _store_error(text: str, file: Path) -> StoreError:
    if "locked" in text or "busy" in text:
        return StoreBusyError("another process is writing to the store; try again")
    if _is_damage(text):
        return _damage_error(text, file)
    if os.access(file, os.F_OK) and file.is_dir():
        return StoreError(f"the store cannot be read: {file} is a folder")
    if "is full" in text or ("disk I/O" in text and _is_full(file)):
        return _no_room(text, file)
    if any(word in text for word in _CLOSED):
        return _unwritable_error(text, file)
    return StoreError(f"the store {file} failed: {text}")


def _unwritable_error(text: str, file: Path) -> StoreError:
    is_there = os.access(file, os.F_OK) or not os.access(file.parent, os.X_OK)
    if is_there and not os.access(file, os.R_OK):
        return StoreError(f"the store cannot be read: {remedy(errno.EACCES, file)}")
    for path in (file, file.parent):
        if path.exists() and not os.access(path, os.W_OK):
            reason = remedy(_why_not_writable(path), path)
            return StoreError(f"the store {file} cannot be written to ({text}): {reason}")
    if _is_full(file):
        return _no_room(text, file)
    return StoreError(f"the store {file} cannot be written to ({text})")


def _no_room(text: str, file: Path) -> StoreFullError:
    room = remedy(errno.ENOSPC, file)
    return StoreFullError(f"no room to write {file} or what belongs beside it ({text}): {room}")


def _why_not_writable(path: Path) -> int:
    """Return ``EROFS`` or ``EACCES``."""
    with suppress(OSError, AttributeError):  # Windows has no statvfs
        if os.statvfs(path).f_flag & os.ST_RDONLY:
            return errno.EROFS
    return errno.EACCES


def _is_full(file: Path) -> bool:
    try:
        return shutil.disk_usage(file.parent).free < _LEAST_ROOM
    except OSError:
        return False


def _damage_error(text: str, file: Path) -> StoreDamagedError:
    return StoreDamagedError(
        f"the store cannot be read: {file}: {text}; put a copy back: catalog restore FILE"
    )


def is_damage(error: Exception) -> bool:
    """Tell whether the driver found something that no SQLite wrote."""
    return isinstance(error, UnicodeDecodeError) or _is_damage(_text(error))


def _is_damage(text: str) -> bool:
    return any(word in text.lower() for word in _DAMAGE)


def _text(error: Exception) -> str:
    original: Any = getattr(error, "orig", None) or error
    return str(original)
