"""JSON answers of the HTTP edge, refusals among them, sent without any framework."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.types import Send


def as_json(value: Any) -> bytes:
    """The JSON that the command line prints; lone surrogates, which UTF-8 lacks, become ``?``."""
    return json.dumps(value, ensure_ascii=False, default=str).encode("utf-8", "replace")


def refusal(kind: str, message: str) -> dict[str, dict[str, str]]:
    """The body of every answer that is not a success."""
    return {"error": {"kind": kind, "message": message}}


async def send_refusal(
    send: Send, status: int, kind: str, message: str, headers: Mapping[str, str] | None = None
) -> None:
    """Send a whole answer of that status."""
    body = as_json(refusal(kind, message))
    told = {
        "content-type": "application/json",
        "content-length": str(len(body)),
        **(headers or {}),
    }
    pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in told.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})
