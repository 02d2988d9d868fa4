"""Files and folders that are their owner's alone, whatever the umask; Windows has other rights."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

OTHERS = 0o077  # the rights of group and others


def make_folder(folder: Path) -> None:
    """Make a folder and the missing ones above it (0700); those that are there stay as they are.

    Raises ``OSError``, for a file of that name too.
    """
    if not folder.is_dir():
        if folder.parent != folder:
            make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


@contextmanager
def new_folder(folder: Path) -> Iterator[None]:
    """Make a folder and the missing ones above it; where the block fails, take back the empty ones.

    Raises ``OSError`` as :func:`make_folder` does.
    """
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    try:
        make_folder(folder)
        yield
    except BaseException:
        for one in missing:
            with suppress(OSError):  # something else was put there
                one.rmdir()
        raise


def make_private(*files: Path) -> None:
    """Take from others the right to these files (0600), as far as they exist and are ours."""
    for file in files:
        with suppress(OSError):
            file.chmod(0o600)


def find_open_to_others(*paths: Path) -> list[Path]:
    """Return those of the paths that group or others may read, write or enter."""
    return [path for path in paths if os.name == "posix" and _is_open_to_others(path)]


def _is_open_to_others(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & OTHERS)
    except OSError:
        return False
