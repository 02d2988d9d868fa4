"""Files and folders: the home and its settings file, private modes, and error messages.

A command that asks a running server imports only this.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from catalog.core.errors import ConfigError

_REMEDIES = {
    errno.EACCES: "let this user read and write {place}",
    errno.EPERM: "let this user read and write {place}",
    errno.EROFS: "{place} is on a read-only file system: mount it for writing",
    errno.ENOSPC: "free some space on the disk of {place}",
    errno.EDQUOT: "free some space on the disk of {place}",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.ENFILE: "raise the limit on open files (ulimit -n)",
}
_RUST_ERRNO = re.compile(r"\(os error (\d+)\)")  # in messages of libraries written in Rust
_NOT_IN_KEY = ("IDX_HOME", "IDX_PRESET", "IDX_LOG_LEVEL", "IDX_SERVE__")


def describe_os_error(path: Path, error: OSError) -> str:
    """Format ``FILE: REASON; REMEDY``; the last part only if a remedy is known."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    return "; ".join(filter(None, (f"{path}: {reason}", remedy(error.errno, path))))


def remedy(code: int | None, path: Path) -> str:
    """Return what to do about an ``errno`` at a path; "" if unknown."""
    around = (path.absolute(), *path.absolute().parents)
    place = next((one for one in around if os.access(one, os.F_OK)), path)
    return _REMEDIES.get(code or 0, "").format(place=place)


def errno_of(error: BaseException | None) -> int | None:
    """Return the ``errno`` behind an error, from itself or one of its causes."""
    while error is not None:
        if isinstance(error, OSError) and error.errno:
            return error.errno
        if match := _RUST_ERRNO.search(str(error)):
            return int(match[1])
        error = error.__cause__
    return None


def make_folder(folder: Path) -> None:
    """Make a folder and its missing parents (0700); leave existing folders unchanged.

    Raises ``OSError``, also when a file has that name.
    """
    if not folder.is_dir():
        if folder.parent != folder:
            make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


@contextmanager
def new_folder(folder: Path) -> Iterator[None]:
    """Make a folder and its missing parents; if the block fails, remove those that are empty."""
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
    """Make these files private to their owner (0600); skip those missing or not ours."""
    for file in files:
        with suppress(OSError):
            file.chmod(0o600)


def find_open_to_others(*paths: Path) -> list[Path]:
    """Return the paths that the group or other users may read, write or enter."""
    there = [path for path in paths if os.name == "posix" and path.exists()]
    return [path for path in there if path.stat().st_mode & 0o077]


def default_home() -> Path:
    """Return the user's data folder."""
    from platformdirs import user_data_path

    return user_data_path("catalog")


def expanded(path: str | Path) -> Path:
    """Return a path with ``~`` and variables such as ``$HOME`` replaced by what they stand for."""
    return Path(os.path.expandvars(path)).expanduser()


def home_folder(chosen: Path | None = None) -> Path:
    """Return the folder of the store: the chosen one, else ``IDX_HOME``, else the default."""
    return expanded(chosen or os.environ.get("IDX_HOME") or default_home())


def settings_file(home: Path) -> Path | None:
    """Return ``IDX_CONFIG``, else ``catalog.toml`` in the home folder if it exists.

    Raises :class:`ConfigError` for a home folder that cannot be read.
    """
    if variable := os.environ.get("IDX_CONFIG"):
        return expanded(variable)
    path = home / "catalog.toml"
    try:
        return path if path.is_file() else None
    except OSError as error:
        raise ConfigError(f"cannot read settings: {describe_os_error(path, error)}") from error


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """Return the content of a file; ``what`` it is begins the message of a :class:`ConfigError`."""
    import tomllib  # not for commands that only ask a server

    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"cannot read the {what} {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the {what} {path} is not TOML: {error}") from error
    except RecursionError:
        raise ConfigError(f"the {what} {path} nests too deeply") from None


def settings_key(
    home: Path, preset: str | None, environment: Mapping[str, str] | None = None
) -> str:
    """Return a hash of the sources of the settings; equal keys mean equal settings.

    Settings that do not affect an answer are left out: the log level, and the address of a server.
    """
    variables = os.environ if environment is None else environment
    content = b""
    if file := settings_file(home):
        with suppress(OSError):  # loading the settings will report the problem
            content = file.read_bytes()
    relevant = sorted(
        (name, value)
        for name, value in variables.items()
        if value and name.startswith("IDX_") and not name.startswith(_NOT_IN_KEY)
    )
    chosen = preset or variables.get("IDX_PRESET")
    seed = repr((str(home.resolve()), chosen, relevant)).encode("utf-8", "surrogatepass")
    return hashlib.sha256(seed + b"\0" + content).hexdigest()
