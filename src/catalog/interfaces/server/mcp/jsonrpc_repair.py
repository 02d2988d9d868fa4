"""Answers to lines that are no message of the protocol, and repair of those that nearly are.

The SDK passes over such lines in silence, and whoever sent one waits for ever.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import mcp_types as types
from anyio import BrokenResourceError, ClosedResourceError
from anyio.streams.memory import MemoryObjectSendStream
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from catalog.core.text import all_storable

Item = SessionMessage | Exception


async def repair_messages(
    read: ReadStream[Item], write: WriteStream[SessionMessage], good: MemoryObjectSendStream[Item]
) -> None:
    """Hand on what can be read; the others get an error with their id, where they have one.

    A request whose text holds half a surrogate pair, which JavaScript writes and UTF-8 lacks, is
    handed on with U+FFFD for it.
    """
    async with good:
        async for item in read:
            message = repair_message(item) if isinstance(item, Exception) else item
            try:
                if message is not None:
                    await good.send(message)
                elif isinstance(item, Exception):
                    await write.send(SessionMessage(invalid_message_error(item)))
            except (BrokenResourceError, ClosedResourceError):
                return


def repair_message(error: Exception) -> SessionMessage | None:
    """Return the message that was meant, if only its text was wrong."""
    content = _content(error)
    if not isinstance(content, dict):
        return None
    try:
        return SessionMessage(
            types.jsonrpc_message_adapter.validate_python(all_storable(content), by_name=False)
        )
    except ValidationError:
        return None


def invalid_message_error(error: Exception) -> types.JSONRPCError:
    """Return JSON-RPC's answer to what is no JSON, or no request."""
    content = _content(error)
    if content is None:
        problem = types.ErrorData(code=types.PARSE_ERROR, message="this line is not JSON")
        return types.JSONRPCError(jsonrpc="2.0", id=None, error=problem)
    number = content.get("id") if isinstance(content, dict) else None
    known = number if isinstance(number, str) or type(number) is int else None
    message = "this is no JSON-RPC 2.0 message: one object with jsonrpc, id, method and params"
    problem = types.ErrorData(code=types.INVALID_REQUEST, message=message)
    return types.JSONRPCError(jsonrpc="2.0", id=known, error=problem)


def _content(error: Exception) -> Any:
    """Return what stood on the line, if the SDK's error tells; ``None`` if it was no JSON."""
    if not isinstance(error, ValidationError):
        return None
    inputs = [problem["input"] for problem in error.errors() if _tells_whole_line(problem)]
    for value in sorted(inputs, key=lambda value: not isinstance(value, dict)):
        if not isinstance(value, str | bytes):
            return value
        try:
            return json.loads(value.lstrip("\ufeff") if isinstance(value, str) else value)
        except (ValueError, RecursionError):
            continue
    return None


def _tells_whole_line(problem: Mapping[str, Any]) -> bool:
    """Return whether its input is the whole line, or the whole object on it."""
    return problem["type"] in ("json_invalid", "missing", "model_type", "dict_type") or (
        isinstance(problem["input"], dict) and "method" in problem["input"]
    )
