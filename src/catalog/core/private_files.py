"""Files and folders that are their owner's alone, whatever the umask; Windows has other rights."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

OTHERS = 0o077  # the rights of group and others


def make_folder(folder: Path) -> None:
    """Make a folder and the missing ones above it (0700); those that are there stay as they are.

    Raises ``OSError``.
    """
    missing = [folder, *folder.parents]
    missing = missing[: next(i for i, one in enumerate([*missing, Path()]) if one.exists())]
    for one in reversed(missing):
        one.mkdir(mode=0o700, exist_ok=True)
    folder.mkdir(exist_ok=True)  # raises for a file of that name


def make_private(*files: Path) -> None:
    """Take from others the right to these files (0600), as far as they exist and are ours."""
    for file in files:
        with suppress(OSError):
            file.chmod(0o600)


def find_open_to_others(*paths: Path) -> list[Path]:
    """Return those of the paths that group or others may read, write or enter."""
    found = []
    if os.name == "posix":
        for path in paths:
            with suppress(OSError):
                if path.stat().st_mode & OTHERS:
                    found.append(path)
    return found
