"""Processes of their own for tests, forked from one that has imported the library already.

To start Python and import it all takes a process two seconds of a core. What is about the start
itself, the end of the interpreter or its streams starts one with :mod:`subprocess` all the same.
"""

import functools
import multiprocessing
import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Sequence
from multiprocessing import forkserver, reduction
from multiprocessing.context import ForkServerContext
from typing import Any

import pytest

PRELOADED = (
    "processes", "fakes", "catalog.ingest.sync", "catalog.interfaces.cli",
    "catalog.interfaces.server.asgi", "catalog.search_v2.service", "llama_index.core.ingestion",
    "qdrant_edge",
)  # fmt: skip


@functools.cache
def forking() -> ForkServerContext:
    """The processes that are forked: their parent imports once, and has no thread of ours."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*PRELOADED])
    with pytest.MonkeyPatch.context() as patch:  # Python 3.11 does not tell it where to import from
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
        forkserver.ensure_running()
    return context


class Forked(subprocess.Popen):
    """As ``subprocess.Popen([sys.executable, *command])``, with the interpreter started already.

    ``command`` is a script or ``-c`` and code, and arguments; ``env`` is what it finds when it
    runs, not what the library's modules found when they were imported.
    """

    def _execute_child(self, command: Sequence[str], *options: Any) -> None:
        variables, pipes = dict(os.environ if options[5] is None else options[5]), options[9:15]
        ends = [None if end == -1 else _End(end) for end in (pipes[0], pipes[3], pipes[5])]
        self._process = forking().Process(target=_run, args=([*command], variables, ends))
        self._process.start()
        self.pid = self._process.pid
        self._close_pipe_fds(*pipes)

    def _internal_poll(self, _deadstate: int | None = None) -> int | None:
        if self.returncode is None:
            self.returncode = self._process.exitcode
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        self._process.join(timeout)
        if self._internal_poll() is None:
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode


class _End:
    """An end of a pipe, on its way to a process."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> tuple[Callable[..., int], tuple[Any]]:
        return _received, (reduction.DupFd(self._number),)


def _received(end: Any) -> int:
    return end.detach()


def _run(command: list[str], env: dict[str, str], ends: list[int | None]) -> None:
    os.environ.clear()
    os.environ.update(env)
    for standard, end in enumerate(ends):
        if end is not None:
            os.dup2(end, standard)
            os.close(end)
    sys.stdin, sys.stdout = open(0), open(1, "w")  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace")  # noqa: SIM115
    if command[0] == "-c":
        sys.argv = ["-c", *command[2:]]
        exec(compile(command[1], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = command
        runpy.run_path(command[0], run_name="__main__")
