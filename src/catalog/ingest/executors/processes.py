"""Work in processes of this machine, each of which may be killed.

    caller ── work (once), item ──> process
           <── its result, or its error ──

One thread of the caller waits for each process, so it is known which item a process had when it
died. Processes are started when they are first needed. They do not import the caller's program, so
a user's script needs no guard, unlike with :mod:`multiprocessing`.
"""

from __future__ import annotations

import itertools
import os
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired
from threading import Lock
from typing import IO, Any, Self, cast

from catalog.core.errors import ConfigError
from catalog.ingest.executors.base import ItemT, Lost, ResultT, map_ahead

_TRIES = 2
_EXIT_SECONDS = 5.0
_numbers = itertools.count()


class Processes:
    """Run up to ``size`` processes of this machine."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="worker")
        self._guard = Lock()  # over what follows
        self._all: set[_Process] = set()
        self._idle: list[_Process] = []
        self._is_closed = False

    def map(
        self,
        work: Callable[[ItemT], ResultT],
        items: Iterable[ItemT],
        *,
        weigh: Callable[[ItemT], float] = lambda _: 1.0,
        room: float = 0.0,
    ) -> Iterator[ResultT | Lost]:
        """Yield the result of ``work`` for each item; see :class:`~.base.Executor`.

        Raises :class:`ConfigError` for work that cannot be sent to another process.
        """
        number, packed = next(_numbers), pack(work)

        def submit(item: ItemT) -> Future[ResultT | Lost]:
            return self._threads.submit(self._do, number, packed, item)

        yield from map_ahead(submit, items, size=self.size, weigh=weigh, room=room)

    def close(self) -> None:
        """Kill the processes, even during work."""
        with self._guard:
            self._is_closed = True
            processes, self._all = self._all, set()
        for process in processes:
            process.kill()
        self._threads.shutdown(cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _do(self, number: int, packed: bytes, item: Any) -> Any:
        reason = ""
        for _ in range(_TRIES):
            process = self._take()
            try:
                kind, value = process.ask(number, packed, item)
            except (OSError, EOFError, pickle.UnpicklingError):
                reason = process.describe_end()
                self._drop(process)
                continue
            with self._guard:
                self._idle.append(process)
            if kind == "raised":
                raise cast(BaseException, value)
            return value
        return Lost(reason)

    def _take(self) -> _Process:
        with self._guard:
            if self._is_closed:
                raise CancelledError
            while self._idle:
                process = self._idle.pop()
                if process.is_alive:
                    return process
                self._all.discard(process)
                process.kill()
            process = _Process()
            self._all.add(process)
            return process

    def _drop(self, process: _Process) -> None:
        process.kill()
        with self._guard:
            self._all.discard(process)


def pack(work: Callable[..., Any]) -> bytes:
    """Return the work as bytes; raise :class:`ConfigError` if it cannot leave this process."""
    try:
        return pickle.dumps(work)
    except Exception as error:
        raise ConfigError(
            f"the model cannot be sent to another process ({error}): set workers to 1, or name "
            "the model in the settings"
        ) from error


class _Process:
    """A process that does the work it was sent last."""

    def __init__(self) -> None:
        command = [sys.executable, "-PB", "-m", "catalog.ingest.executors.process"]
        self._process = Popen(  # noqa: S603 - this interpreter and our own module
            [*command, str(os.getpid())],
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self._number = -1

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, number: int, packed: bytes, item: Any) -> tuple[str, Any]:
        """Return ``done`` or ``raised``, with its value; ``EOFError`` if the process dies."""
        requests, answers = cast(IO[bytes], self._process.stdin), self._process.stdout
        pickle.dump((None if number == self._number else packed, item), requests)
        requests.flush()
        self._number = number
        kind, value = pickle.load(cast(IO[bytes], answers))  # noqa: S301 - our own process
        return kind, value

    def describe_end(self) -> str:
        """Describe how the process ended, shortly after its pipes closed."""
        with suppress(TimeoutExpired):
            code = self._process.wait(timeout=_EXIT_SECONDS)
            return (
                f"the process that worked on it ended (exit {code}), in each of {_TRIES} attempts"
            )
        return "the process that worked on it sent an invalid answer"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                cast(IO[bytes], pipe).close()
