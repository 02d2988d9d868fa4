"""Read hostile formats in a separate process, which may be killed.

A request is one line, followed by the bytes of the file. An answer is a line for each document or
failure, and a last line with the result. So a worker that a hostile file has taken over can only
send text.

    parent ── request, bytes of the file ──> worker
           <── documents, failures, end ────

PDF, Word, PowerPoint, e-book, notebook and mail files are read by large libraries. A file that
makes one hang, crash or eat memory costs a line in the report: the worker is killed at the time
limit, has no more memory than the limit, and a new one is started for the next file. It can open no
connection, start no program and write no file: see :mod:`catalog.ingest.readers.worker`.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import IO, TYPE_CHECKING, BinaryIO, Literal, cast

from catalog.core.documents import ParsedDocument
from catalog.core.errors import EmptyDocumentError, ReadError, TransientReadError
from catalog.core.places import enclosing
from catalog.ingest.readers.base import LEFT_TO_ITSELF, ReadFailure, ReadLimits

if TYPE_CHECKING:
    from pydantic import TypeAdapter


@dataclass(frozen=True, slots=True)
class Request:
    """A request to read the following ``size`` bytes as a file called ``path``.

    ``format`` is a name in ``registry.FORMATS``.
    """

    format: str
    path: str
    size: int
    limits: ReadLimits


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of an answer; ``reason`` is the error, if any."""

    outcome: Literal["done", "empty", "unreadable", "defect"]
    reason: str = ""


Message = ParsedDocument | ReadFailure | Ended


def send_request(pipe: BinaryIO, request: Request, data: bytes) -> None:
    """Write a request and the file's bytes."""
    pipe.write(json.dumps(asdict(request)).encode() + b"\n")
    pipe.write(data)
    pipe.flush()


def receive_request(pipe: BinaryIO) -> tuple[Request, bytes] | None:
    """Read the next request and its bytes; return ``None`` at the end of the input."""
    line = pipe.readline()
    if not line:
        return None
    fields = json.loads(line)
    request = Request(**{**fields, "limits": ReadLimits(**fields["limits"])})
    data = pipe.read(request.size)
    return (request, data) if len(data) == request.size else None


def send(pipe: BinaryIO, message: Message) -> None:
    """Write one line of an answer."""
    pipe.write(_message_adapter().dump_json(message) + b"\n")
    pipe.flush()


def receive(line: bytes) -> Message:
    """Parse one line of an answer; raise ``ValueError`` for anything else."""
    return _message_adapter().validate_json(line)


@cache
def _message_adapter() -> TypeAdapter[Message]:
    from pydantic import TypeAdapter

    return TypeAdapter(Message)


_EXIT_SECONDS = 5.0
"""How long a worker that closed its pipe may take to exit."""


class IsolatedReader:
    """A reader of the format called ``name`` that runs in the worker process."""

    def __init__(self, name: str) -> None:
        self._format = name

    def read(
        self, handle: BinaryIO, path: str, *, limits: ReadLimits
    ) -> Iterator[ParsedDocument | ReadFailure]:
        """Yield the documents and failures from the reader of that format.

        Raises the reader's ``ReadError``, also if the file is too large, takes too long or too much
        memory, or makes the worker crash. A mail with an attachment that does so is read without.
        """
        data = handle.read(limits.document_bytes + 1)
        if len(data) > limits.document_bytes:
            raise ReadError(f"too large: over {limits.document_bytes:,} bytes")
        request = Request(self._format, path, len(data), limits)
        try:
            yield from _WORKERS.ask(request, data)
        except EmptyDocumentError:
            raise
        except ReadError:
            if self._format not in ("mail", "msg"):
                raise
            yield from _read_one_by_one(request, data)


def _read_one_by_one(request: Request, data: bytes) -> Iterator[ParsedDocument | ReadFailure]:
    """Yield a mail without attachments, then each of these, or why it is not read."""

    def ask(attachment: str) -> list[ParsedDocument | ReadFailure]:
        limits = replace(request.limits, attachment=attachment)
        return _WORKERS.ask(replace(request, limits=limits), data)

    for item in ask(""):
        if not isinstance(item, ReadFailure) or item.reason != LEFT_TO_ITSELF:
            yield item
            continue
        try:
            yield from (one for one in ask(item.path) if item.path in enclosing(one.path))
        except ReadError as error:
            yield replace(item, reason=str(error))


class _Workers:
    """The one worker of this process, started when first needed, and again after it died."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._worker: _Worker | None = None

    def ask(self, request: Request, data: bytes) -> list[ParsedDocument | ReadFailure]:
        with self._lock:
            if self._worker is None or not self._worker.serves(request.limits):
                self.stop()
                self._worker = _Worker(request.limits.memory_bytes)
            return self._worker.ask(request, data)

    def stop(self) -> None:
        if self._worker is not None:
            self._worker.kill()
            self._worker = None


class _Worker:
    def __init__(self, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        self._pid = os.getpid()
        self._expired = False
        command = [sys.executable, "-PB", "-m", "catalog.ingest.readers.worker", str(memory_bytes)]
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

    def serves(self, limits: ReadLimits) -> bool:
        """Return whether the worker is alive, has this memory limit and belongs to this process."""
        is_own = self._pid == os.getpid()  # not the parent's before a fork
        is_alive = not self._expired and self._process.poll() is None  # killed, not yet reaped
        return is_own and is_alive and limits.memory_bytes == self._memory_bytes

    def ask(self, request: Request, data: bytes) -> list[ParsedDocument | ReadFailure]:
        """Return all answers to one request; kill the worker if it does not finish."""
        watch = threading.Timer(request.limits.seconds, self._expire)
        watch.daemon = True
        watch.start()
        has_ended = False
        try:
            send_request(cast(BinaryIO, self._process.stdin), request, data)
            answers, ended = self._receive_all(cast(BinaryIO, self._process.stdout))
            has_ended = True
        except (OSError, ValueError, EOFError) as error:
            raise self._explain_death(request.limits) from error
        finally:
            watch.cancel()
            if not has_ended:  # Ctrl-C among the reasons: the answer would meet the next request
                self.kill()
        if ended.outcome == "empty":
            raise EmptyDocumentError(ended.reason)
        if ended.outcome == "defect":  # a later release may do better
            raise TransientReadError(ended.reason)
        if ended.outcome != "done":
            raise ReadError(ended.reason)
        return answers

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                cast(IO[bytes], pipe).close()

    def _receive_all(self, pipe: BinaryIO) -> tuple[list[ParsedDocument | ReadFailure], Ended]:
        answers: list[ParsedDocument | ReadFailure] = []
        for line in pipe:
            message = receive(line)
            if isinstance(message, Ended):
                return answers, message
            answers.append(message)
        raise EOFError

    def _expire(self) -> None:
        self._expired = True
        self._process.kill()

    def _explain_death(self, limits: ReadLimits) -> ReadError:
        if self._expired:
            return ReadError(f"reading takes longer than {limits.seconds:g} s")
        try:
            code = self._process.wait(timeout=_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            return TransientReadError("the reading process sent an invalid answer")
        return TransientReadError(
            f"the reader crashed (exit {code}): the file is damaged, or needs too much memory"
        )


_WORKERS = _Workers()
atexit.register(_WORKERS.stop)
