"""For test_01_kill_matrix: a build that kills its process at one step, or finds its disk full."""

import importlib
import os
import resource
import signal
import sys
from pathlib import Path

from sqlalchemy import event
from sqlalchemy.engine import Engine

from catalog.core.errors import CatalogError
from catalog.library.indexing import Indexer
from fakes import WordEncoder, open_library


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


def build(folder: Path, home: Path, where: str, count: int, moment: str) -> None:
    """Build, and end the process: 0 all is well, 3 something is noted, 4 an error of ours."""
    if where == "statement":
        kill_on_statement(count)
    elif where == "full":
        let_no_file_grow_beyond(count)
    elif where != "nowhere":
        kill_on_call(where, count, after=moment == "after")
    try:
        with open_library(home, WordEncoder(), ingest={"group_chars": 400}) as library:
            report = Indexer(library).build(folder, "notes")
        code = 3 if report.unfinished or report.notes else 0
    except CatalogError:
        code = 4
    sys.exit(code)
