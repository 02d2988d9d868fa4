"""Messages for files that cannot be used: the reason, and what would help."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

_ACCESS = (errno.EACCES, errno.EPERM)
_SPACE = (errno.ENOSPC, errno.EDQUOT)
_HANDLES = (errno.EMFILE, errno.ENFILE)
_RUST_ERRNO = re.compile(r"\(os error (\d+)\)")  # in messages of libraries written in Rust


def describe_os_error(path: Path, error: OSError) -> str:
    """Format ``FILE: REASON; REMEDY``; the last part only where a remedy is known."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    return "; ".join(filter(None, (f"{path}: {reason}", remedy(error.errno, path))))


def remedy(code: int | None, path: Path) -> str:
    """Return what helps against an ``errno`` met at a path; empty if nothing is known to."""
    if code in _ACCESS:
        return _access_remedy(path)
    if code == errno.EROFS:
        return f"{_nearest_existing(path)} is on a read-only file system: mount it for writing"
    if code in _SPACE:
        return f"free some space on the disk of {_nearest_existing(path)}"
    if code in _HANDLES:
        return "raise the limit on open files (ulimit -n)"
    return ""


def errno_of(error: BaseException) -> int | None:
    """Return the ``errno`` behind an error, from itself or one of its causes."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno:
            return cause.errno
        if match := _RUST_ERRNO.search(str(cause)):
            return int(match[1])
        cause = cause.__cause__
    return None


def _access_remedy(path: Path) -> str:
    """Say who can give this user access, and to which folder or file."""
    obstacle = _find_obstacle(path)
    try:
        status = obstacle.stat()
    except OSError:
        return f"get access to {obstacle} from its owner"
    mode = f"its mode is {status.st_mode & 0o777:03o}"
    if status.st_uid == getattr(os, "getuid", int)():
        return f"give yourself access to {obstacle} ({mode})"
    return f"get access to {obstacle} from its owner, {_owner_name(obstacle)} ({mode})"


def _find_obstacle(path: Path) -> Path:
    """Find the first folder on the way that cannot be entered, else what is to be opened there."""
    for folder in reversed(path.absolute().parents):
        if folder.is_dir() and not os.access(folder, os.X_OK):
            return folder
    return path if os.path.lexists(path) else _nearest_existing(path)


def _nearest_existing(path: Path) -> Path:
    """Return the path itself if it exists, else the first folder above that does."""
    absolute = path.absolute()
    candidates = (absolute, *absolute.parents)
    return next((path for path in candidates if os.access(path, os.F_OK)), absolute)


def _owner_name(path: Path) -> str:
    try:
        return path.owner()
    except (KeyError, NotImplementedError):
        return f"user {path.stat().st_uid}"
