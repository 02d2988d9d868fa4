"""Read every file in a separate process, which may be killed.

A request is one line with the place of the file. An answer has a line for the format, a line for
each document or failure, and a last line with the result. So a worker that a hostile file has taken
over can only send text. A file that makes a reader hang, crash or eat memory costs a line in the
report, and a new worker is started for the next file.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import astuple, dataclass, replace
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired
from typing import BinaryIO, cast

from pydantic import ConfigDict, TypeAdapter

from catalog.core.documents import ParsedDocument
from catalog.core.errors import CutShortError, EmptyDocumentError, ReadError, TransientReadError
from catalog.ingest.readers.base import ReadFailure, ReadLimits


@dataclass(frozen=True, slots=True)
class Request:
    """A request to read the file at ``absolute``, below ``root``, as a document called ``path``."""

    absolute: str
    root: str | None
    path: str
    limits: ReadLimits


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of an answer; ``error`` is the name of an error in :data:`ERRORS`, "" for none."""

    error: str
    reason: str = ""


_KINDS = (ReadError, EmptyDocumentError, TransientReadError, CutShortError)
ERRORS: dict[str, type[ReadError]] = {error.__name__: error for error in _KINDS}
Answer = ParsedDocument | ReadFailure
Message = str | Answer | Ended
"""A line of an answer: first the file's format, as in ``registry.FORMATS``; then also ``attached``
with the hash of the attached file that is read next, or without one after it."""
_ATTACHED, _MOST_FATAL = "attached ", 20
_EXIT_SECONDS = 5.0  # that a worker may take to exit after it closed its pipe


def read_isolated(request: Request) -> Iterator[Answer]:
    """Yield the documents and failures of a file, without attached files that end the worker.

    Raises the reader's ``ReadError``, also for too much time or memory, or a crash of the worker.
    """
    fatal, seen = list[str](), set[tuple[str, str]]()
    while True:
        reading = ""
        limits = replace(request.limits, fatal=tuple(fatal))
        try:
            answers = _WORKERS.ask(replace(request, limits=limits))
            for item in cast(Iterator[str | Answer], answers):
                if isinstance(item, str):
                    reading = item.partition(_ATTACHED)[2]
                elif (name := (item.path, getattr(item, "reason", ""))) not in seen:
                    seen.add(name)
                    yield item
        except ReadError as error:
            is_death = error.__cause__ is not None
            if not (is_death and reading) or len(fatal) == _MOST_FATAL:
                raise
            fatal.append(reading)
        else:
            return


def send_request(pipe: BinaryIO, request: Request) -> None:
    """Write a request as one line."""
    limits = astuple(request.limits)[:-1]  # what is told stays in the worker
    place = [request.absolute, request.root, request.path, limits]
    pipe.write(json.dumps(place).encode() + b"\n")  # names may be no valid text
    pipe.flush()


_MESSAGES = TypeAdapter[Message](Message, config=ConfigDict(defer_build=True))


def send(pipe: BinaryIO, message: Message) -> None:
    """Write one line of an answer; all are sent at the end, and before what may end the worker."""
    pipe.write(_MESSAGES.dump_json(message) + b"\n")
    if isinstance(message, Ended | str):
        pipe.flush()


def send_attached(pipe: BinaryIO, name: str) -> None:
    """Write that the attached file with this hash is read next, or with "" that it was read."""
    send(pipe, f"{_ATTACHED}{name}")


def receive(line: bytes) -> Message:
    """Parse one line of an answer; raise ``ValueError`` for anything else."""
    return _MESSAGES.validate_json(line)


class _Workers:
    """The worker that waits for a file. Others run only while files are read at once."""

    _idle: _Worker | None = None

    def ask(self, request: Request) -> Iterator[Message]:
        """Yield the answer to a request, without its end; start a worker if none fits."""
        made_for = request.limits.memory_bytes, os.getpid(), tuple(sys.path)
        worker, self._idle = self._idle, None
        if worker is None or not worker.serves(made_for):
            if worker is not None:
                worker.kill()
            worker = _Worker(made_for)
        try:
            yield from worker.ask(request)
        finally:
            self.stop()
            self._idle = worker

    def stop(self) -> None:
        """End the worker that waits."""
        if self._idle is not None:
            self._idle.kill()


class _Worker:
    def __init__(self, made_for: tuple[int, int, tuple[str, ...]]) -> None:
        self._made_for = made_for
        module, (memory, parent, _) = "catalog.ingest.readers.worker", made_for
        command = [sys.executable, "-PB", "-m", module, str(memory), str(parent)]
        paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        try:
            self._process = Popen(  # noqa: S603 - this interpreter and our own module
                command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=os.environ | paths
            )
        except OSError as error:
            raise TransientReadError(f"cannot start the reading process: {error}") from error

    def serves(self, made_for: object) -> bool:
        """Return whether the worker was made so, and runs."""
        return self._made_for == made_for and self._process.poll() is None

    def ask(self, request: Request) -> Iterator[Message]:
        """Yield the answer to a request; kill the worker if it does not finish."""
        message: Message = ""
        try:
            send_request(cast(BinaryIO, self._process.stdin), request)
            line = cast(BinaryIO, self._process.stdout).readline
            while not isinstance(message := receive(line()), Ended):
                yield message
        except (OSError, ValueError) as error:
            raise self._explain_death(request.limits) from error
        finally:
            if not isinstance(message, Ended):  # Ctrl-C, too: the rest would meet the next request
                self.kill()
        if message.error:
            raise ERRORS.get(message.error, ReadError)(message.reason)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in filter(None, (self._process.stdin, self._process.stdout)):
            with suppress(OSError):
                pipe.close()

    def _explain_death(self, limits: ReadLimits) -> ReadError:
        try:
            code = self._process.wait(timeout=_EXIT_SECONDS)
        except TimeoutExpired:
            return TransientReadError("the reading process sent an invalid answer")
        if code == -signal.SIGALRM:
            return ReadError(f"reading takes longer than {limits.seconds:g} s")
        damaged = "the file is damaged, or needs too much memory"
        return TransientReadError(f"the reader crashed (exit {code}): {damaged}")


_WORKERS = _Workers()
atexit.register(_WORKERS.stop)
