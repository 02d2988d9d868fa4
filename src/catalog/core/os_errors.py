"""Why a file cannot be used and what would help, in words for whoever runs a command."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

_RIGHTS = (errno.EACCES, errno.EPERM)
_ROOM = (errno.ENOSPC, errno.EDQUOT)
_HANDLES = (errno.EMFILE, errno.ENFILE)
_TOLD = re.compile(r"\(os error (\d+)\)")  # how libraries written in Rust tell it


def describe_os_error(path: Path, error: OSError) -> str:
    """``FILE: REASON; WHAT HELPS``; the last part only where something is known to help."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    return "; ".join(filter(None, (f"{path}: {reason}", remedy(error.errno, path))))


def remedy(code: int | None, path: Path) -> str:
    """What mends an ``errno`` met at a path: rights, space or handles; empty for any other."""
    if code in _RIGHTS:
        return _closed(path)
    if code == errno.EROFS:
        return f"{_nearest(path)} is on a read-only file system: mount it for writing"
    if code in _ROOM:
        return f"free some space on the disk of {_nearest(path)}"
    if code in _HANDLES:
        return "raise the limit on open files (ulimit -n)"
    return ""


def errno_of(error: BaseException) -> int | None:
    """The ``errno`` that is behind an error, told by it or one it came from."""
    for one in _with_causes(error):
        if isinstance(one, OSError) and one.errno:
            return one.errno
        told = _TOLD.search(str(one))
        if told:
            return int(told[1])
    return None


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__


def _closed(path: Path) -> str:
    """Who can let this user in, and where."""
    where = _in_the_way(path)
    try:
        about = where.stat()
    except OSError:
        return f"get access to {where} from its owner"
    mode = f"its mode is {about.st_mode & 0o777:03o}"
    if about.st_uid == getattr(os, "getuid", int)():
        return f"give yourself access to {where} ({mode})"
    return f"get access to {where} from its owner, {_owner(where)} ({mode})"


def _in_the_way(path: Path) -> Path:
    """The first folder on the way that cannot be entered, else what is to be opened there."""
    for folder in reversed(path.absolute().parents):
        if folder.is_dir() and not os.access(folder, os.X_OK):
            return folder
    return path if os.path.lexists(path) else _nearest(path)


def _nearest(path: Path) -> Path:
    """The path itself if it is there, else the first folder above that is."""
    absolute = path.absolute()
    return next((one for one in (absolute, *absolute.parents) if os.access(one, os.F_OK)), absolute)


def _owner(path: Path) -> str:
    try:
        return path.owner()
    except (KeyError, NotImplementedError):
        return f"user {path.stat().st_uid}"
