"""What the parent and the reading process say to each other: JSON, never pickled objects.

A request is one line, then the bytes of the file. An answer is a line for each document or
failure and a last one that says how it ended. A worker taken over by a hostile file can thus
answer nothing but text.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, BinaryIO, Literal

from catalog.core.models import ParsedDocument
from catalog.ingest.readers.base import ReadFailure
from catalog.ingest.readers.limits import ReadLimits

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Outcome = Literal["done", "empty", "unreadable", "defect"]


@dataclass(frozen=True, slots=True)
class Request:
    """Read ``size`` bytes, which follow, as one file of that kind called ``path``."""

    kind: str
    path: str
    size: int
    limits: ReadLimits


@dataclass(frozen=True, slots=True)
class Ended:
    """Nothing more follows; ``reason`` says what is wrong unless it is done."""

    outcome: Outcome
    reason: str = ""


Message = ParsedDocument | ReadFailure | Ended


def send_request(pipe: BinaryIO, request: Request, data: bytes) -> None:
    """Write a request and the file's bytes."""
    pipe.write(json.dumps(asdict(request)).encode() + b"\n")
    pipe.write(data)
    pipe.flush()


def receive_request(pipe: BinaryIO) -> tuple[Request, bytes] | None:
    """The next request and its bytes; ``None`` when there is none any more."""
    line = pipe.readline()
    if not line:
        return None
    fields = json.loads(line)
    request = Request(**{**fields, "limits": ReadLimits(**fields["limits"])})
    data = pipe.read(request.size)
    return (request, data) if len(data) == request.size else None


def send(pipe: BinaryIO, message: Message) -> None:
    """Write one line of an answer."""
    if isinstance(message, ParsedDocument):
        line = b'{"document":' + _documents().dump_json(message) + b"}"
    else:
        name = "failure" if isinstance(message, ReadFailure) else "ended"
        line = json.dumps({name: asdict(message)}).encode()
    pipe.write(line + b"\n")
    pipe.flush()


def receive(line: bytes) -> Message:
    """One line of an answer; raises ``ValueError`` for anything else."""
    fields = json.loads(line)
    match fields:
        case {"failure": {"path": str(path), "reason": str(reason)}}:
            return ReadFailure(path, reason)
        case {"ended": {"outcome": "done" | "empty" | "unreadable" | "defect" as outcome}}:
            return Ended(outcome, str(fields["ended"].get("reason", "")))
        case {"document": dict(document)}:
            return _documents().validate_python(document)
    raise ValueError("not a line of an answer")


@cache
def _documents() -> TypeAdapter[ParsedDocument]:
    from pydantic import TypeAdapter

    return TypeAdapter(ParsedDocument)
