"""Lines of standard input that are no message: mended where that is safe, else answered.

The SDK passes over them in silence, and whoever sent one waits for ever.
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
            message = repaired(item) if isinstance(item, Exception) else item
            try:
                if message is not None:
                    await good.send(message)
                elif isinstance(item, Exception):
                    await write.send(SessionMessage(refusal(item)))
            except (BrokenResourceError, ClosedResourceError):
                return


def repaired(error: Exception) -> SessionMessage | None:
    """The message that was meant, if only its text was wrong."""
    found = _given(error)
    if not isinstance(found, dict):
        return None
    try:
        return SessionMessage(
            types.jsonrpc_message_adapter.validate_python(all_storable(found), by_name=False)
        )
    except ValidationError:
        return None


def refusal(error: Exception) -> types.JSONRPCError:
    """JSON-RPC's answer to what is no JSON, or no request."""
    found = _given(error)
    if found is None:
        told = types.ErrorData(code=types.PARSE_ERROR, message="this line is not JSON")
        return types.JSONRPCError(jsonrpc="2.0", id=None, error=told)
    number = found.get("id") if isinstance(found, dict) else None
    known = number if isinstance(number, str) or type(number) is int else None
    message = "this is no JSON-RPC 2.0 message: one object with jsonrpc, id, method and params"
    told = types.ErrorData(code=types.INVALID_REQUEST, message=message)
    return types.JSONRPCError(jsonrpc="2.0", id=known, error=told)


def _given(error: Exception) -> Any:
    """What stood on the line, as far as the SDK's error tells; ``None`` if it was no JSON."""
    if not isinstance(error, ValidationError):
        return None
    wholes = [one["input"] for one in error.errors() if _is_whole(one)]
    for whole in sorted(wholes, key=lambda one: not isinstance(one, dict)):
        if not isinstance(whole, str | bytes):
            return whole
        try:
            return json.loads(whole.lstrip("\ufeff") if isinstance(whole, str) else whole)
        except (ValueError, RecursionError):
            continue
    return None


def _is_whole(error: Mapping[str, Any]) -> bool:
    """Whether the error tells the whole line, or the whole object on it."""
    return error["type"] in ("json_invalid", "missing", "model_type", "dict_type") or (
        isinstance(error["input"], dict) and "method" in error["input"]
    )
