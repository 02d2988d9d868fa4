"""Writing to a terminal; standard streams that are closed or full."""

from __future__ import annotations

import errno
import io
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO, cast

from catalog.core.errors import CatalogError
from catalog.core.os_errors import describe_os_error, remedy
from catalog.interfaces.plain_text import complaint, json_text, safe


def complain(message: str) -> None:
    """A message on standard error."""
    note(f"{complaint(message)}\n")


def note(text: str) -> None:
    """Text on standard error, as it is; lost where that is full, which is no failure."""
    with suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()


def say(line: str = "") -> None:
    """One line on standard output, safe for a terminal."""
    print(safe(line))


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    print(json_text(value))


def styles(stream: TextIO) -> bool:
    """Whether the stream is a terminal that shows bold, unless the environment has ``NO_COLOR``."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def prepare() -> None:
    """Give each missing stream a stand-in, so that no file opened later takes its number.

    What is written to the stand-in for standard output fails, as an answer nobody gets; what is
    written to that for standard error is lost.
    """
    if sys.stdin is None:
        sys.stdin = _stand_in(os.O_RDONLY, "r")
    if sys.stdout is None:
        sys.stdout = _stand_in(os.O_RDONLY, "w")
    if sys.stderr is None:
        sys.stderr = _stand_in(os.O_WRONLY, "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may lack a document's letters


def finish() -> None:
    """Write out what waits; raises :class:`CatalogError` if standard output does not take it."""
    _flushed(sys.stderr)
    error = _flushed(sys.stdout)
    if error is not None and error.errno != errno.EPIPE:  # a reader that left has what it wanted
        reason = "it is closed" if error.errno == errno.EBADF else error.strerror
        raise CatalogError(f"cannot write to standard output: {reason}")


def refuse(error: OSError | ExceptionGroup[Exception]) -> None:
    """Raise :class:`CatalogError` for want of rights, room or handles; nothing for a defect."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]  # type: ignore[assignment]
    if not isinstance(error, OSError):
        return
    name = error.filename
    path = Path(name) if isinstance(name, str) else Path()
    if remedy(error.errno, path):
        where = "cannot write to standard output or a file"
        told = (
            describe_os_error(path, error)
            if isinstance(name, str)
            else f"{where}: {error.strerror}"
        )
        raise CatalogError(told) from error


def _stand_in(flags: int, mode: str) -> TextIO:
    return cast("TextIO", os.fdopen(os.open(os.devnull, flags), mode, errors="replace"))


def _flushed(stream: TextIO) -> OSError | None:
    """Why the stream does not take what waits in it; that is dropped then, at the exit too."""
    try:
        stream.flush()
    except OSError as error:
        with suppress(OSError, ValueError):  # ValueError: no file is behind it
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)
        return error
    return None
