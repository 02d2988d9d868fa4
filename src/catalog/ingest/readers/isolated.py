"""Read every file in a separate process, which may be killed.

A request is one line with the place of the file. An answer has a line for the format, a line for
each document or failure, and a last line with the result. So a worker that a hostile file has taken
over can only send text. Documents are sent as they are read: a file of many records never lies in
memory as a whole.

    parent ── request ──> worker, which opens and reads the file
           <── format, documents, failures, end ────

A file that makes a reader hang, crash or eat memory costs a line in the report: the worker ends at
the time limit, has no more memory than the limit, and a new one is started for the next file. It
can open no connection, start no program and write no file: see
:mod:`catalog.ingest.readers.worker`.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import IO, TYPE_CHECKING, BinaryIO, cast

from catalog.core.documents import ParsedDocument
from catalog.core.errors import CutShortError, EmptyDocumentError, ReadError, TransientReadError
from catalog.core.places import enclosing
from catalog.ingest.readers.base import LEFT_TO_ITSELF, ReadFailure, ReadLimits

if TYPE_CHECKING:
    from pydantic import TypeAdapter


@dataclass(frozen=True, slots=True)
class Request:
    """A request to read the file at ``absolute``, below ``root``, as a document called ``path``."""

    absolute: str
    root: str | None
    path: str
    limits: ReadLimits


@dataclass(frozen=True, slots=True)
class Began:
    """The beginning of an answer: the name of the file's format, as in ``registry.FORMATS``."""

    format: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of an answer; ``error`` is the name of an error in :data:`ERRORS`, "" for none."""

    error: str
    reason: str = ""


ERRORS: dict[str, type[ReadError]] = {
    error.__name__: error
    for error in (ReadError, EmptyDocumentError, CutShortError, TransientReadError)
}
Answer = ParsedDocument | ReadFailure
Message = Answer | Began | Ended
_EXIT_SECONDS = 5.0
"""How long a worker that closed its pipe may take to exit."""


def read_isolated(request: Request) -> Iterator[Answer]:
    """Yield the documents and failures of a file, as the worker reads them.

    Raises the reader's ``ReadError``, also if the file takes too long or too much memory, or makes
    the worker crash. A mail with an attachment that does so is read without.
    """
    answers = _WORKERS.ask(request)
    if cast(Began, next(answers)).format not in ("mail", "msg"):
        yield from cast(Iterator[Answer], answers)
        return
    try:
        items = cast(list[Answer], list(answers))
    except EmptyDocumentError:
        raise
    except ReadError:
        yield from _read_one_by_one(request)
    else:
        yield from items


def _read_one_by_one(request: Request) -> Iterator[Answer]:
    """Yield a mail without attachments, then each of these, or why it is not read."""

    def ask(attachment: str) -> list[Answer]:
        limits = replace(request.limits, attachment=attachment)
        _, *items = _WORKERS.ask(replace(request, limits=limits))
        return cast(list[Answer], items)

    for item in ask(""):
        if not isinstance(item, ReadFailure) or item.reason != LEFT_TO_ITSELF:
            yield item
            continue
        try:
            yield from (one for one in ask(item.path) if item.path in enclosing(one.path))
        except ReadError as error:
            yield replace(item, reason=str(error))


def send_request(pipe: BinaryIO, request: Request) -> None:
    """Write a request as one line."""
    pipe.write(json.dumps(asdict(request)).encode() + b"\n")
    pipe.flush()


def receive_request(pipe: BinaryIO) -> Request | None:
    """Read the next request; return ``None`` at the end of the input."""
    line = pipe.readline()
    if not line:
        return None
    fields = json.loads(line)
    return Request(**{**fields, "limits": ReadLimits(**fields["limits"])})


def send(pipe: BinaryIO, message: Message) -> None:
    """Write one line of an answer; the last one sends what is in the buffer."""
    pipe.write(_message_adapter().dump_json(message) + b"\n")
    if isinstance(message, Ended):
        pipe.flush()


def receive(line: bytes) -> Message:
    """Parse one line of an answer; raise ``ValueError`` for anything else."""
    return _message_adapter().validate_json(line)


@cache
def _message_adapter() -> TypeAdapter[Message]:
    from pydantic import TypeAdapter

    return TypeAdapter(Message)


class _Workers:
    """The workers that wait for a file. One is kept; others run while files are read at once."""

    def __init__(self) -> None:
        self._idle: list[_Worker] = []

    def ask(self, request: Request) -> Iterator[Message]:
        """Yield the answer to a request, without its end."""
        worker = self._take(request.limits.memory_bytes)
        try:
            yield from worker.ask(request)
        finally:
            self._idle.append(worker)
            while len(self._idle) > 1:
                self._idle.pop(0).kill()

    def stop(self) -> None:
        """End the workers."""
        while self._idle:
            self._idle.pop().kill()

    def _take(self, memory_bytes: int) -> _Worker:
        while self._idle:
            worker = self._idle.pop()
            if worker.serves(memory_bytes):
                return worker
            worker.kill()
        return _Worker(memory_bytes)


class _Worker:
    def __init__(self, memory_bytes: int) -> None:
        self._made_for = (memory_bytes, os.getpid(), tuple(sys.path))
        module, told = "catalog.ingest.readers.worker", map(str, self._made_for[:2])
        command = [sys.executable, "-PB", "-m", module, *told]
        try:
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter and our own module
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        except OSError as error:
            raise TransientReadError(f"cannot start the reading process: {error}") from error

    def serves(self, memory_bytes: int) -> bool:
        """Return whether the worker is alive, and made by this process under these conditions."""
        is_alive = self._process.poll() is None
        return is_alive and self._made_for == (memory_bytes, os.getpid(), tuple(sys.path))

    def ask(self, request: Request) -> Iterator[Message]:
        """Yield the answer to a request; kill the worker if it does not finish."""
        is_done = False
        try:
            send_request(cast(BinaryIO, self._process.stdin), request)
            line = cast(BinaryIO, self._process.stdout).readline
            while not isinstance(message := receive(line()), Ended):
                yield message
            is_done = True
        except (OSError, ValueError) as error:
            raise self._explain_death(request.limits) from error
        finally:
            if not is_done:  # Ctrl-C among the reasons: the rest would meet the next request
                self.kill()
        if message.error:
            raise ERRORS.get(message.error, ReadError)(message.reason)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                cast(IO[bytes], pipe).close()

    def _explain_death(self, limits: ReadLimits) -> ReadError:
        try:
            code = self._process.wait(timeout=_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            return TransientReadError("the reading process sent an invalid answer")
        if code == -signal.SIGALRM:
            return ReadError(f"reading takes longer than {limits.seconds:g} s")
        return TransientReadError(
            f"the reader crashed (exit {code}): the file is damaged, or needs too much memory"
        )


_WORKERS = _Workers()
atexit.register(_WORKERS.stop)
