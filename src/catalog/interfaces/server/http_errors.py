"""JSON answers over HTTP: one shape for every error, and the description of errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from catalog.core.arguments import argument_names, problems_message
from catalog.core.errors import (
    ArtifactSchemaError,
    CatalogError,
    ConfigError,
    DocumentNotFoundError,
    EngineLockedError,
    InputError,
    LLMBusyError,
    LLMError,
    LLMTimeoutError,
    ServingError,
    StoreBusyError,
    StoreUnreachableError,
    UnknownDatasetError,
)
from catalog.core.results import Frozen
from catalog.interfaces.plain_text import json_text

if TYPE_CHECKING:
    from fastapi import FastAPI, Request
    from starlette.routing import BaseRoute
    from starlette.types import Message, Send


def as_json(value: Any) -> bytes:
    """Return the JSON of the command line as UTF-8."""
    return json_text(value).encode()


def error_body(kind: str, message: str) -> dict[str, dict[str, str]]:
    """Return the body of an answer that is not a success."""
    return {"error": {"kind": kind, "message": message}}


async def send_error(
    send: Send, status: int, kind: str, message: str, headers: Mapping[str, str] | None = None
) -> None:
    """Send an error as a whole answer of that status."""
    body = as_json(error_body(kind, message))
    fields = {"content-type": "application/json", "content-length": str(len(body))}
    fields |= headers or {}
    pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})


def with_headers(send: Send, own: Iterable[tuple[bytes, bytes]]) -> Send:
    """Return ``send`` that adds headers to an answer that lacks them."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = message.get("headers", ())
            names = {name for name, _ in given}
            added = [pair for pair in own if pair[0] not in names]
            message = {**message, "headers": [*given, *added]}
        await send(message)

    return send_with_headers


_BUSY = (StoreBusyError, StoreUnreachableError, EngineLockedError, LLMBusyError, LLMTimeoutError)
_STATUS: tuple[tuple[int, tuple[type[CatalogError], ...]], ...] = (
    (404, (DocumentNotFoundError, UnknownDatasetError)),
    (400, (InputError,)),
    (409, (ConfigError,)),
    (503, (*_BUSY, ServingError)),
    (502, (LLMError,)),
)
_MAX_MESSAGE = 2000  # characters, of one that may repeat an address
_EXAMPLE: Any = error_body("UnknownDatasetError", "no dataset 'note'; datasets: notes")


class ErrorDetail(Frozen):
    """The error, for a program and for a person."""

    kind: str = Field(description="Name of the error, such as UnknownDatasetError.")
    message: str = Field(description="The problem, and what to do about it.")
    draft: str | None = Field(None, description="Of an artifact: the text that the model wrote.")


class ErrorShape(Frozen):
    """The body of every answer that is not a success."""

    model_config = ConfigDict(json_schema_extra={"example": _EXAMPLE})

    error: ErrorDetail


def http_status(error: CatalogError) -> int:
    """Return 400 or 404 for a wrong call, 409 if the server is not set up for it.

    502 is for a model that failed or gave a meaningless answer, 503 for a temporary error.
    """
    return next((status for status, kinds in _STATUS if isinstance(error, kinds)), 500)


def json_response(status: int, body: Any, headers: dict[str, str] | None = None) -> Response:
    """Return a JSON answer; one of status 503 says when to try again."""
    fields = (headers or {}) | ({"Retry-After": "1"} if status == 503 else {})
    return Response(as_json(body), status, fields, media_type="application/json")


def add_error_handlers(app: FastAPI, routes: Sequence[BaseRoute]) -> None:
    """Make the app of these routes answer every error with :class:`ErrorShape`."""
    app.state.routes = routes
    app.add_exception_handler(CatalogError, _answer_catalog_error)
    app.add_exception_handler(RequestValidationError, _answer_invalid_arguments)
    app.add_exception_handler(HTTPException, _answer_http_error)
    app.add_exception_handler(Exception, _answer_defect)


async def _answer_catalog_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, CatalogError)
    body = error_body(type(error).__name__, str(error)[:_MAX_MESSAGE])
    if isinstance(error, ArtifactSchemaError):
        body["error"]["draft"] = error.draft
    return json_response(http_status(error), body)


async def _answer_invalid_arguments(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    dependant = request.scope["route"].dependant
    fields = (*dependant.query_params, *dependant.body_params)
    models = [field.field_info.annotation for field in fields]
    names = {name: aliases for model in models for name, aliases in argument_names(model).items()}
    problems = [{**one, "loc": one["loc"][1:]} for one in error.errors()]
    if any(one["type"] == "json_invalid" for one in problems):
        message = "the body is not JSON"
    elif all(one["loc"] for one in problems):
        message = problems_message(problems, names)
    elif "json" in request.headers.get("Content-Type", ""):
        message = "the body must be a JSON object"
    else:
        message = "the body was not read: send JSON, with Content-Type: application/json"
    return json_response(422, error_body("InputError", message))


async def _answer_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kind, message, headers = "BadRequest", str(error.detail), None
    if error.status_code == 404:
        kind, message = "NotFound", "no such address; /openapi.json lists all"
    elif error.status_code == 405:
        found = {  # of all routes of the address; the framework gives only one route's
            method
            for route in request.app.state.routes
            if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE
            for method in route.methods or ()
        }
        methods = ", ".join(sorted(found)) or (error.headers or {}).get("Allow", "GET")
        kind, message = "MethodNotAllowed", f"use {methods} for this address"
        headers = {"Allow": methods}
    return json_response(error.status_code, error_body(kind, message), headers)


async def _answer_defect(_: Request, __: Exception) -> Response:
    return json_response(500, error_body("InternalError", "internal error; see the server's log"))


_MEANING = {
    400: "The call is wrong: correct the argument that the message names.",
    401: "The token is missing or wrong.",
    403: "Web pages of that origin may not call this server.",
    404: "No such document or dataset; the message names similar ones.",
    405: "Method not allowed for this address.",
    502: "The language model failed, or did not write the requested form: then with its draft.",
    409: "The server's settings do not allow this request.",
    413: "The body is too large.",
    421: "The request names a host that this server is not.",
    422: "Arguments are missing, unknown, of a wrong type or out of bounds.",
    500: "The server failed; see its log.",
    503: "The server or store is busy, or the request took too long: try again in a moment.",
}
_ALWAYS = (400, 401, 403, 413, 421, 422, 500, 503)
_RETRY = {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "string"}}}
Responses = dict[int | str, dict[str, Any]]


def error_responses(*others: int) -> Responses:
    """Return the descriptions of the errors of every route and of the given statuses."""
    responses: Responses = {
        status: {"model": ErrorShape, "description": _MEANING[status]}
        for status in sorted((*_ALWAYS, *others))
    }
    responses[503]["headers"] = _RETRY
    return responses
