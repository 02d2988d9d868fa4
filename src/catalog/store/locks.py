"""Lock files, held across processes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from catalog.core.errors import (
    EngineBlockedError,
    EngineLockedError,
    StoreBusyError,
    StoreError,
)
from catalog.core.files import describe_os_error, make_folder

WORDS_LOCK = ".lock"  # in the folder of a keyword index, while it is written
POINTS_LOCK = "lock"  # in the folder of a vector index, while it is open
LOCK_SECONDS = 120  # to wait for whoever brings the schema up to date
PREPARING = "another process is still preparing the store; try again"
RESTORE_LOCK = ".restore.lock"  # in the folder of dataset locks, whose names begin with no dot


@contextmanager
def hold_lock(
    file: Path, *, seconds: float, busy: str, on_wait: Callable[[], None] | None = None
) -> Iterator[None]:
    """Hold the lock of a file until the context ends; create the file's folder if it is missing.

    If another process holds the lock, ``on_wait`` is called once before waiting. Raises
    :class:`StoreBusyError` with the message ``busy`` after ``seconds`` (-1: never), and
    :class:`StoreError` if the file cannot be opened.
    """
    lock = FileLock(file, timeout=seconds, mode=0o600)
    try:
        make_folder(file.parent)
        _acquire(lock, on_wait)
    except Timeout as error:
        raise StoreBusyError(busy) from error
    except OSError as error:
        raise StoreError(f"cannot open the lock {describe_os_error(file, error)}") from error
    try:
        yield
    finally:
        lock.release()


def _acquire(lock: FileLock, on_wait: Callable[[], None] | None) -> None:
    if on_wait is not None and lock.timeout != 0:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            on_wait()
        else:
            return
    lock.acquire()


def remove_folder(folder: Path, lock: Path) -> None:
    """Remove an index's folder while holding its lock file.

    Raises :class:`EngineLockedError` if another process holds the lock, and
    :class:`EngineBlockedError` if the folder cannot be removed, for example without permission.
    """
    try:
        with FileLock(lock, timeout=0, mode=0o600, thread_local=False):
            shutil.rmtree(folder)
    except Timeout as error:
        raise EngineLockedError(f"{folder} is open") from error
    except OSError as error:
        raise EngineBlockedError(f"cannot remove {describe_os_error(folder, error)}") from error
