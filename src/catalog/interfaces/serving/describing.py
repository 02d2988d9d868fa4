"""What the description of the HTTP API says beside the shapes: errors, examples, streams."""

from __future__ import annotations

from typing import Any

from fastapi import Body, Path

from catalog.interfaces.serving.failing import ErrorShape

_MEANING = {
    400: "The call is wrong: correct the argument the message names.",
    401: "The token is missing or wrong.",
    403: "Web pages of that origin may not call.",
    404: "There is no such document or dataset; the message names near ones.",
    405: "The address does not take that method.",
    409: "The server is not set up for what was asked.",
    413: "The body is too large.",
    421: "The server is not known by the name it was called.",
    422: "Arguments are missing, unknown, of a wrong type or out of bounds.",
    500: "The server failed; its log says where.",
    503: "The server or the store is busy, or it took too long: try again in a moment.",
}
_ALWAYS = (400, 401, 403, 413, 421, 422, 500, 503)
_RETRY = {
    "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "string"}},
}
Responses = dict[int | str, dict[str, Any]]


def errors(*others: int) -> Responses:
    """The errors that any route may answer with, and those others."""
    found: Responses = {
        status: {"model": ErrorShape, "description": _MEANING[status]}
        for status in sorted((*_ALWAYS, *others))
    }
    found[503]["headers"] = _RETRY
    return found


STREAMED: Responses = {
    200: {
        "description": "A page of documents; as application/x-ndjson, all of them, one a line.",
        "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
    }
}
TEXT: Responses = {
    200: {
        "description": "The document; as text/plain, its text alone.",
        "content": {"text/plain": {"schema": {"type": "string"}}},
    }
}
DOCUMENT_EXAMPLE = Path(
    description="dataset:path, path or #docid (as %23docid); :12-20 after it picks lines.",
    examples=["notes:guides/backup.md:3-5"],
)
SEARCH_EXAMPLES = Body(
    openapi_examples={
        "words": {"summary": "Words", "value": {"query": "rotate the api keys", "top_k": 5}},
        "narrowed": {
            "summary": "Some documents only",
            "value": {"query": "backup", "file_type": "markdown", "filters": ["tags=ops"]},
        },
    }
)
MULTI_GET_EXAMPLES = Body(
    openapi_examples={
        "pattern": {"summary": "All of a folder", "value": {"patterns": ["guides/*.md"]}}
    }
)
