"""Open regular files only: no symlinks, devices or pipes."""

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from io import BufferedReader
from pathlib import Path

from catalog.core.errors import ReadError, TransientReadError

_NAMES = ("O_NONBLOCK", "O_NOFOLLOW", "O_CLOEXEC", "O_BINARY")
_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in _NAMES)
_KINDS = {
    stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "symlink", stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket", stat.S_IFCHR: "character device", stat.S_IFBLK: "block device",
}  # fmt: skip


@contextmanager
def open_regular(path: Path, *, root: Path | None = None) -> Iterator[BufferedReader]:
    """Open a file to read bytes.

    Raises ``ReadError`` with the reason if it vanished, may not be read, or is not a regular file;
    a symlink is none. With ``root``, a folder above the file, no folder between may be a symlink.
    """
    try:
        if root is None or root == path or os.open not in os.supports_dir_fd:
            number = _open(path, None)
        else:
            number = _open_beneath(root, path)
        with os.fdopen(number, "rb") as handle:
            _refuse_irregular(os.fstat(number).st_mode)
            yield handle
    except FileNotFoundError as error:
        raise TransientReadError("disappeared since it was listed") from error
    except OSError as error:
        raise TransientReadError(f"cannot be read: {error.strerror or error}") from error


def digest_file(path: Path, *, root: Path) -> str:
    """Return a hash of a file's bytes, hexadecimal; raises like :func:`open_regular`."""
    with open_regular(path, root=root) as handle:
        return hashlib.file_digest(handle, partial(hashlib.blake2b, digest_size=20)).hexdigest()


def file_kind(mode: int) -> str:
    """Return the kind of a file from its ``st_mode``, in one word or two."""
    return _KINDS.get(stat.S_IFMT(mode), "special file")


def device_of(folder: Path) -> int:
    """Return a number that folders (not files) of one file system share; 0 if it is unknown."""
    try:
        return folder.stat().st_dev
    except OSError:
        return 0


def _open(path: str | Path, folder: int | None) -> int:
    # Check first: just opening some devices has effects.
    _refuse_irregular(os.stat(path, dir_fd=folder, follow_symlinks=False).st_mode)
    return os.open(path, _FLAGS, dir_fd=folder)


def _open_beneath(root: Path, path: Path) -> int:
    """Open one folder after the other, each by its name in the previous one."""
    parts = path.relative_to(root).parts if path.is_relative_to(root) else ("..",)
    if ".." in parts:
        raise ReadError("not below the folder")
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in parts[:-1]:
            above, folder = folder, os.open(name, _FLAGS | os.O_DIRECTORY, dir_fd=folder)
            os.close(above)
        return _open(parts[-1], folder)
    finally:
        os.close(folder)


def _refuse_irregular(mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise ReadError(f"not a regular file ({file_kind(mode)})")
