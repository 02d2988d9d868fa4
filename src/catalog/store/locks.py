"""The lock files of indexes."""

from __future__ import annotations

import shutil
from pathlib import Path

from filelock import FileLock, Timeout

from catalog.core.errors import EngineBlockedError, EngineLockedError
from catalog.core.files import describe_os_error

WORDS_LOCK = ".lock"  # in the folder of a keyword index, while it is written
POINTS_LOCK = "lock"  # in the folder of a vector index, while it is open


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
