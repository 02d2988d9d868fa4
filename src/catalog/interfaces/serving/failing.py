"""What a call that fails is answered with: one shape for every error, ours or the framework's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

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
from catalog.interfaces.serving.answers import as_json, refusal

if TYPE_CHECKING:
    from fastapi import FastAPI
    from fastapi import Request as Asked
    from starlette.routing import BaseRoute

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
_EXAMPLE: Any = refusal("UnknownDatasetError", "no dataset 'note'; datasets: notes")


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


def status_of(error: CatalogError) -> int:
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
    return json_response(status_of(error), refusal(type(error).__name__, message))


async def _invalid(request: Asked, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    wrong = error.errors()
    said = "; ".join(dict.fromkeys(map(_wrong, wrong)))
    is_json = "json" in request.headers.get("Content-Type", "")
    if not is_json and any(tuple(one["loc"]) == ("body",) for one in wrong):
        said = "the body was not read: send JSON, with Content-Type: application/json"
    return json_response(422, refusal("InputError", said))


async def _framework(request: Asked, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == _NOT_FOUND:
        return json_response(
            404, refusal("NotFound", "nothing is here; /openapi.json tells what is")
        )
    if error.status_code == _NOT_ALLOWED:
        methods = ", ".join(sorted(_methods(request))) or (error.headers or {}).get("Allow", "GET")
        told = refusal("MethodNotAllowed", f"this address takes {methods}")
        return json_response(405, told, {"Allow": methods})
    return json_response(error.status_code, refusal("BadRequest", str(error.detail)))


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
        500, refusal("InternalError", "internal error; the server's log says where")
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
