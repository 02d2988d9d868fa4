"""JSON of the HTTP edge, one shape for every error, and how errors are described."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fastapi import Body, Path
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from catalog.core.errors import (
    CatalogError,
    ConfigError,
    DocumentNotFoundError,
    EngineLockedError,
    InputError,
    LLMBusyError,
    LLMTimeoutError,
    ServingError,
    StoreBusyError,
    UnknownDatasetError,
)

if TYPE_CHECKING:
    from fastapi import FastAPI
    from fastapi import Request as Asked
    from starlette.routing import BaseRoute
    from starlette.types import Send


def as_json(value: Any) -> bytes:
    """The JSON that the command line prints; lone surrogates, which UTF-8 lacks, become ``?``."""
    return json.dumps(value, ensure_ascii=False, default=str).encode("utf-8", "replace")


def error_body(kind: str, message: str) -> dict[str, dict[str, str]]:
    """The body of every answer that is not a success."""
    return {"error": {"kind": kind, "message": message}}


async def send_error(
    send: Send, status: int, kind: str, message: str, headers: Mapping[str, str] | None = None
) -> None:
    """Send a whole answer of that status."""
    body = as_json(error_body(kind, message))
    told = {
        "content-type": "application/json",
        "content-length": str(len(body)),
        **(headers or {}),
    }
    pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in told.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})


_STATUS: tuple[tuple[tuple[type[CatalogError], ...], int], ...] = (
    ((DocumentNotFoundError, UnknownDatasetError), 404),
    ((InputError,), 400),
    ((ConfigError,), 409),
    ((StoreBusyError, EngineLockedError, LLMBusyError, LLMTimeoutError), 503),
    ((ServingError,), 503),
)
_UNAVAILABLE = 503
_NOT_FOUND, _NOT_ALLOWED = 404, 405
_SHOWN = 60
_LONGEST = 2000  # characters of a message, which may repeat an address
_EXAMPLE: Any = error_body("UnknownDatasetError", "no dataset 'note'; datasets: notes")


class ErrorDetail(BaseModel):
    """What is wrong, for a program and for a person."""

    model_config = ConfigDict(extra="forbid")

    kind: str = Field(description="Name of the error, such as UnknownDatasetError.")
    message: str = Field(description="What is wrong and what to do about it.")


class ErrorShape(BaseModel):
    """The body of every answer that is not a success."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": _EXAMPLE},
    )

    error: ErrorDetail


def http_status(error: CatalogError) -> int:
    """400 or 404: the call is wrong; 409: the server is not set up for it; 503: try again."""
    return next((status for kinds, status in _STATUS if isinstance(error, kinds)), 500)


def json_response(status: int, body: Any, headers: dict[str, str] | None = None) -> Response:
    """A JSON answer."""
    told = dict(headers or {})
    if status == _UNAVAILABLE:
        told["Retry-After"] = "1"
    return Response(as_json(body), status, told, media_type="application/json")


def add_error_handlers(app: FastAPI, routes: Sequence[BaseRoute]) -> None:
    """Have the app of these routes answer every error with :class:`ErrorShape`."""
    app.state.routes = routes
    app.add_exception_handler(CatalogError, _ours)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _framework)
    app.add_exception_handler(Exception, _bug)


async def _ours(request: Asked, error: Exception) -> Response:
    del request
    assert isinstance(error, CatalogError)
    message = str(error)
    if len(message) > _LONGEST:
        message = f"{message[: _LONGEST - 1]}…"
    return json_response(http_status(error), error_body(type(error).__name__, message))


async def _invalid(request: Asked, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    wrong = error.errors()
    said = "; ".join(dict.fromkeys(map(_wrong, wrong)))
    is_json = "json" in request.headers.get("Content-Type", "")
    if not is_json and any(tuple(one["loc"]) == ("body",) for one in wrong):
        said = "the body was not read: send JSON, with Content-Type: application/json"
    return json_response(422, error_body("InputError", said))


async def _framework(request: Asked, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == _NOT_FOUND:
        return json_response(
            404, error_body("NotFound", "nothing is here; /openapi.json tells what is")
        )
    if error.status_code == _NOT_ALLOWED:
        methods = ", ".join(sorted(_methods(request))) or (error.headers or {}).get("Allow", "GET")
        told = error_body("MethodNotAllowed", f"this address takes {methods}")
        return json_response(405, told, {"Allow": methods})
    return json_response(error.status_code, error_body("BadRequest", str(error.detail)))


def _methods(request: Asked) -> set[str]:
    """What the routes of the address take together; the framework tells the first one's alone."""
    return {
        method
        for route in request.app.state.routes
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE
        for method in route.methods or ()
    }


async def _bug(request: Asked, error: Exception) -> Response:
    del request, error
    return json_response(
        500, error_body("InternalError", "internal error; the server's log says where")
    )


def _wrong(error: dict[str, Any]) -> str:
    name = ".".join(str(part) for part in error["loc"][1:]) or "the body"
    if error["type"] == "extra_forbidden":
        return f"there is no argument {_short(name)}"
    if error["type"] == "missing":
        return f"{name} is missing"
    if error["type"] == "json_invalid":
        return "the body is not JSON"
    return f"{_short(name)}: {error['msg']}"


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


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
