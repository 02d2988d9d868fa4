"""Lock files, held across processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from catalog.core.errors import StoreBusyError, StoreError
from catalog.core.os_errors import describe_os_error
from catalog.core.private_files import make_folder


@contextmanager
def hold_lock(file: Path, *, seconds: float, busy: str) -> Iterator[None]:
    """Hold the lock while inside; the file's folder is made if absent.

    Raises :class:`StoreBusyError` with the words of ``busy`` when another holds it for longer
    than ``seconds`` (-1: waits for ever), and :class:`StoreError` when the file cannot be opened.
    """
    lock = FileLock(file, timeout=seconds, mode=0o600)
    try:
        make_folder(file.parent)
        lock.acquire()
    except Timeout as error:
        raise StoreBusyError(busy) from error
    except OSError as error:
        raise StoreError(f"cannot open the lock {describe_os_error(file, error)}") from error
    try:
        yield
    finally:
        lock.release()
