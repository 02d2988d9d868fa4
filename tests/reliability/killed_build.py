"""For tests of other processes' ends: a build that is killed, or whose disk is full or fails."""

import ctypes
import errno
import importlib
import os
import platform
import resource
import signal
import sys
from dataclasses import replace
from pathlib import Path

from sqlalchemy import event
from sqlalchemy.engine import Engine

from catalog.core.errors import CatalogError
from catalog.library.indexing import Indexer
from catalog.library.library import Library
from fakes import WordEncoder, open_qdrant_library


def kill_on_call(where: str, count: int, *, after: bool) -> None:
    """Let the named function be called ``count`` times, then kill before (or after) its work."""
    module, _, name = where.rpartition(":")
    holder = importlib.import_module(module)
    *path, last = name.split(".")
    for part in path:
        holder = getattr(holder, part)
    real, calls = getattr(holder, last), 0

    def deadly(*args, **kwargs):
        nonlocal calls
        calls += 1
        if calls == count and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*args, **kwargs)
        if calls == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(holder, last, deadly)


def kill_on_statement(count: int) -> None:
    """Kill before the store executes its statement of that number, from 1, whichever it is."""
    executed = 0

    def deadly(*_):
        nonlocal executed
        executed += 1
        if executed == count:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(Engine, "before_cursor_execute", deadly)


def let_no_file_grow_beyond(size: int) -> None:
    """Let every write beyond that many bytes of a file fail, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


SYSTEM_CALLS = {  # by machine: of reading and of writing a store
    "x86_64": {"reads": (17,), "writes": (18, 74, 75, 77)},
    "aarch64": {"reads": (67,), "writes": (68, 82, 83, 46)},
}
_LOAD, _IS, _RETURN = 0x20, 0x15, 0x06  # of the filter's little machine: see seccomp(2)
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000


class _Step(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("yes", ctypes.c_uint8),
        ("no", ctypes.c_uint8),
        ("value", ctypes.c_uint32),
    )


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("steps", ctypes.POINTER(_Step)))


def let_the_disk_fail(what: str) -> bool:
    """Let this thread's reads (or writes) of a store fail from now on; tell whether they will."""
    numbers = SYSTEM_CALLS.get(platform.machine(), {}).get(what)
    if numbers is None or not sys.platform.startswith("linux"):
        return False
    steps = [_Step(_LOAD, 0, 0, 0)]
    steps += [_Step(_IS, len(numbers) - at, 0, number) for at, number in enumerate(numbers)]
    steps += [_Step(_RETURN, 0, 0, _ALLOW), _Step(_RETURN, 0, 0, _FAIL | errno.EIO)]
    program = _Filter(len(steps), (_Step * len(steps))(*steps))
    system = ctypes.CDLL(None, use_errno=True)
    no_new_rights, set_filter, by_program = 38, 22, 2
    if system.prctl(no_new_rights, 1, 0, 0, 0) != 0:
        return False
    return bool(system.prctl(set_filter, by_program, ctypes.byref(program)) == 0)


def fail_on_statement(count: int, what: str) -> None:
    """Let the disk fail before the store executes its statement of that number, from 1."""
    executed = 0

    def failing(*_):
        nonlocal executed
        executed += 1
        if executed == count and not let_the_disk_fail(what):
            os._exit(NO_FILTER)

    event.listen(Engine, "before_cursor_execute", failing)


def open_small_steps(home: Path, url: str | None = None) -> Library:
    """A library, its store at ``url`` or in the home, that publishes and embeds a few at a time."""
    library = open_qdrant_library(
        home, WordEncoder(), database_url=url, ingest={"group_chars": 400}
    )
    library.model = replace(library.model, batch_size=4)
    return library


NO_FILTER = 77  # exit code where the system has no such filter


def build(
    folder: Path, home: Path, where: str, count: int, moment: str, url: str | None = None
) -> None:
    """Build, and end the process: 0 all is well, 3 something is noted, 4 an error of ours.

    The disk of one that ``reads`` or ``writes`` fails; the moment ``anew`` does every document so.
    """
    if where == "statement":
        kill_on_statement(count)
    elif where == "full":
        let_no_file_grow_beyond(count)
    elif where in ("reads", "writes"):
        fail_on_statement(count, where)
    elif where != "nowhere":
        kill_on_call(where, count, after=moment == "after")
    try:
        with open_small_steps(home, url) as library:
            report = Indexer(library).build(folder, "notes", reread=moment == "anew")
        code = 3 if report.unfinished or report.notes else 0
    except CatalogError:
        code = 4
    sys.exit(code)
