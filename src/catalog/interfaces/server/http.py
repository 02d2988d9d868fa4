"""``/v1``: the verbs over HTTP, their arguments and errors, described at ``/openapi.json``."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping
from contextvars import copy_context
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_type_hints

from fastapi import APIRouter, Body, Depends, FastAPI, Path, Query, Request, Security
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response, StreamingResponse
from fastapi.security import HTTPBearer
from fastapi.telemetry import TelemetryConfig
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from catalog import __version__
from catalog.core import errors
from catalog.core.answers import AnswerShape, Artifact
from catalog.core.arguments import argument_names, build_model, params_model, problems_message
from catalog.core.params import BrowseParams, GetParams, Params, SearchParams, edge_fields
from catalog.core.places import Unit
from catalog.core.results import CatalogPage, Frozen, SearchResults
from catalog.core.retrieval_events import asked_at
from catalog.interfaces.calls import VERBS
from catalog.interfaces.plain_text import json_text
from catalog.interfaces.server.request_log import Readiness
from catalog.interfaces.server.security import error_body, error_response, json_response

if TYPE_CHECKING:
    from catalog.core.answers import AnswerEvent
    from catalog.interfaces.calls import LocalEngine
    from catalog.interfaces.server.workers import Workers

HEALTH, READY = "/v1/health", "/v1/ready"
NDJSON = "application/x-ndjson"
_LOG = logging.getLogger(__name__)
_TELEMETRY: TelemetryConfig = {  # its spans would hold addresses, and so the words of a search
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
}
_MAX_NAME = 60
_FIELDS = (*edge_fields(SearchParams), *edge_fields(BrowseParams))
_LISTS = {name for one in _FIELDS if one.takes_list for name in (one.name, *one.aliases)}
_NAMED = f"{edge_fields(GetParams)[0].help} Write # as %23."
_ABOUT_EVENTS = (
    "The answer. With application/x-ndjson one event per line: results, each sentence when it is "
    "checked, then the whole answer or an error."
)
_CONTENT = {NDJSON: {"schema": {"type": "string"}}}
Responses = dict[int | str, dict[str, Any]]
_EVENTS: Responses = {200: {"description": _ABOUT_EVENTS, "content": _CONTENT}}


_HINTS = get_type_hints(SearchResults)
_SHOWN: Any = {
    one.name: (_HINTS[one.name], ... if one.default is MISSING else one.default)
    for one in fields(SearchResults)
}
SearchShape: type[BaseModel] = create_model(
    "SearchShape",
    __base__=Frozen,
    __doc__="Passages, best first, and a report of the search.",
    **_SHOWN,
)


class DocumentShape(Frozen):
    """A document, or its lines, cells, pages or paragraphs ``start`` to ``end`` of ``total``.

    All count in ``unit`` as its citations do, both ends included. ``numbers`` has one for each
    line of the text: where that begins. ``cells`` are those of each row of a workbook, with the
    sheet: ``Costs!A12:F12``. ``line_start``, ``line_end`` and ``lines_total`` are the
    same where the unit is a line of the file.
    """

    source_doc_id: str
    path: str
    docid: str
    title: str
    metadata: dict[str, Any]
    unit: Unit
    start: int | None
    end: int | None
    total: int | None
    line_start: int | None
    line_end: int | None
    lines_total: int | None
    numbers: tuple[int | None, ...]
    cells: tuple[str | None, ...] = ()
    text: str
    notes: tuple[str, ...] = ()


class SkippedShape(Frozen):
    """A document that is only named, without its text."""

    source_doc_id: str
    path: str
    reason: str


class DocumentsShape(Frozen):
    """Several documents, by path."""

    documents: tuple[DocumentShape, ...]
    skipped: tuple[SkippedShape, ...]
    notes: tuple[str, ...] = ()


class StatusShape(Frozen):
    """The contents of the store, and the model and engines set; ``datasets`` in full counts.

    As a role: only counts of what it may see.
    """

    home: str
    store: str
    model: str | None
    fingerprint: str | None
    dim: int | None
    lexical_engine: str
    vector_engine: str
    datasets: tuple[dict[str, Any], ...]


SHAPES: Mapping[str, type[BaseModel]] = {
    "search": SearchShape,
    "ask": AnswerShape,
    "generate": Artifact,
    "get": DocumentShape,
    "multi_get": DocumentsShape,
    "browse": CatalogPage,
    "status": StatusShape,
}
"""The JSON object of each verb's result."""


class _Route(NamedTuple):
    """A verb at an address; ``example`` is a body, without which arguments are in the address."""

    path: str
    name: str
    about: str
    verb: str
    errors: tuple[int, ...] = (404,)
    example: dict[str, Any] | None = None


_SEARCH, _DOCUMENTS = "/v1/search", "/v1/documents"
_ROUTES = (
    _Route(_SEARCH, "search", "Search for passages.", "search", (404, 409),
           {"query": "rotate the api keys", "top_k": 5, "filters": ["tags=ops"]}),
    _Route(_SEARCH, "search_words", "Search for passages, with the parameters in the address.",
           "search", (404, 409)),
    _Route("/v1/ask", "ask", "Answer a question from documents, or say why not.",
           "ask", (404, 409), {"question": "who may cancel?", "role": "employee"}),
    _Route("/v1/generate", "generate",
           "Make a blueprint, pdr, workflow or build plan in sections that cite the documents.",
           "generate", (404, 409, 502),
           {"kind": "blueprint", "topic": "mobile app", "dataset": "acme"}),
    _Route(_DOCUMENTS, "documents",
           "List documents, or find them by title, name, summary, tags and date.", "browse"),
    _Route(_DOCUMENTS, "several_documents", "Give several documents.",
           "multi_get", (404,), {"patterns": ["guides/*.md"]}),
    _Route(f"{_DOCUMENTS}/{{reference:path}}", "document",
           "Return a document, or some of its lines.", "get"),
    _Route("/v1/status", "status",
           "Return the contents of the store, and the model and engines that are set.",
           "status", ()),
)  # fmt: skip


_Texts = Annotated[
    list[str], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)
]


def query_string(kind: type[Params], without: Collection[str] = ()) -> type[BaseModel]:
    """Return the model of a verb's parameters in a query string; lists repeat their name."""
    parameters = [
        replace(one, type=_Texts, default=()) if one.takes_list else one
        for one in edge_fields(kind)
        if one.name not in without
    ]
    return build_model(f"{kind.__name__}Query", parameters, strict=False)


@dataclass
class ApiState:
    """The engine that routes ask, behind threads."""

    engine: LocalEngine
    workers: Workers
    seconds: float
    readiness: Readiness = field(default_factory=Readiness)

    async def require_ready(self) -> None:
        """Raise an error of status 503 unless the server is ready and its store can be read."""
        self.readiness.require()
        try:
            await self.workers.run(self.engine.check_store)
        except errors.StoreError as error:
            _LOG.warning("not ready: %s", error)
            raise errors.NotReadyError("the store cannot be read; see the server's log") from error

    async def respond(self, verb: str, arguments: Mapping[str, Any]) -> Response:
        """Return the engine's answer as JSON."""
        with asked_at("http"):
            answer = await self.workers.run(partial(self.engine.ask, verb, arguments))
        return json_response(200, answer)

    async def stream(self, arguments: Mapping[str, Any]) -> Response:
        """Return the events of an answer; raise the errors of a search before the first event."""
        events = await self.workers.run(partial(self.engine.answer_events, arguments))
        with asked_at("http"):
            step = partial(copy_context().run, next, events, None)  # one context for them all
        first = await self.workers.run(step)

        async def lines() -> AsyncIterator[str]:
            event: AnswerEvent | None = first
            try:
                while event is not None:
                    yield json_text(event.to_dict()) + "\n"
                    event = await self.workers.run(step)
            except errors.CatalogError as error:
                body = error_body(type(error).__name__, str(error))
                yield json_text({"event": "error", **body}) + "\n"

        return StreamingResponse(lines(), media_type=NDJSON)


class ServerShape(Frozen):
    """Said of a server that runs, or that requests should be sent to."""

    status: str
    version: str
    timeout_seconds: float


async def _check_address(request: Request) -> None:
    """Raise :class:`InputError` for a parameter in addition to a body, or twice but not a list."""
    counts = Counter(name for name, _ in request.query_params.multi_items())
    for name, count in counts.items():
        if request.method == "POST":  # a role that is not heeded would show what it may not see
            raise errors.InputError(f"{name[:_MAX_NAME]} is in the address: put it in the body")
        if count > 1 and name not in _LISTS:
            raise errors.InputError(f"{name[:_MAX_NAME]} occurs {count} times: send it once")


async def _reference(
    reference: Annotated[str, Path(description=_NAMED, examples=["notes:guides/backup.md:3-5"])],
) -> str:
    return reference


def _add_route(router: APIRouter, route: _Route) -> None:
    verb = VERBS[route.verb]
    if route.example is not None:  # model names code to load, and is for the owner to say
        model: type[BaseModel] = params_model(verb.params, "model")  # type: ignore[arg-type]
        source: Any = Body(openapi_examples={route.name: {"value": route.example}})
    else:
        model, source = query_string(verb.params, without=("reference",)), Query()

    async def answer(request: Request, arguments: BaseModel) -> Response:
        api: ApiState = request.app.state.api
        given = request.path_params | arguments.model_dump(exclude_unset=True)
        if route.verb == "ask" and _wants_events(request):
            return await api.stream(given)
        return await api.respond(route.verb, given)

    answer.__annotations__ = {"request": Request, "arguments": Annotated[model, source]}
    router.add_api_route(
        route.path,
        answer,
        methods=["GET" if route.example is None else "POST"],
        name=route.name,
        description=route.about,
        response_model=SHAPES[route.verb],
        responses=error_responses(*route.errors) | (_EVENTS if route.verb == "ask" else {}),
        dependencies=[Depends(_reference)] if verb.params is GetParams else [],
    )


def _wants_events(request: Request) -> bool:
    """Return whether the first accepted media type that we have is that of events."""
    accepted = request.headers.get("accept", "").lower().split(",")
    kinds = (part.partition(";")[0].strip() for part in accepted)
    return next((one for one in kinds if one in (NDJSON, "application/json", "*/*")), "") == NDJSON


def build_api(state: ApiState, *, needs_token: bool) -> FastAPI:
    """Return the app of the routes; its description says whether a token is needed.

    It checks none itself.
    """
    router = APIRouter(dependencies=[Depends(_check_address)])
    for route in _ROUTES:
        _add_route(router, route)

    @router.get(HEALTH, response_model=ServerShape, responses=error_responses())
    async def health() -> Response:
        """Confirm that the server runs; checks nothing else."""
        return say("ok")

    @router.get(READY, response_model=ServerShape, responses=error_responses())
    async def ready() -> Response:
        """Confirm that requests should be sent here: warm, not about to stop, and with a store."""
        await state.require_ready()
        return say("ready")

    def say(status: str) -> Response:
        told = {"status": status, "version": __version__, "timeout_seconds": state.seconds}
        return json_response(200, told)

    scheme = HTTPBearer(auto_error=False, description="The server's IDX_SERVE__TOKEN.")
    app = FastAPI(
        title="catalog",
        version=__version__,
        summary="Find passages in your own documents, with exact citations.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry=_TELEMETRY,
        generate_unique_id_function=lambda route: route.name,
        dependencies=[Security(scheme)] if needs_token else [],
    )
    app.state.api = state
    app.include_router(router)
    app.state.routes = router.routes
    app.add_exception_handler(errors.CatalogError, _answer_catalog_error)
    app.add_exception_handler(RequestValidationError, _answer_invalid_arguments)
    app.add_exception_handler(HTTPException, _answer_http_error)
    app.add_exception_handler(Exception, _answer_defect)
    return app


_STATUS: tuple[tuple[int, tuple[type[errors.CatalogError], ...]], ...] = (
    (404, (errors.DocumentNotFoundError, errors.UnknownDatasetError)),
    (400, (errors.InputError,)),
    (409, (errors.ConfigError,)),
    (503, (errors.StoreBusyError, errors.StoreUnreachableError, errors.EngineLockedError)),
    (503, (errors.ServingError, errors.LLMBusyError, errors.LLMTimeoutError)),
    (502, (errors.LLMError,)),
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


def http_status(error: errors.CatalogError) -> int:
    """Return 400 or 404 for a wrong call, 409 if the server is not set up for it.

    502 is for a model that failed or gave a meaningless answer, 503 for a temporary error.
    """
    return next((status for status, kinds in _STATUS if isinstance(error, kinds)), 500)


async def _answer_catalog_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, errors.CatalogError)
    body = error_body(type(error).__name__, str(error)[:_MAX_MESSAGE])
    if isinstance(error, errors.ArtifactSchemaError):
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
    return error_response(422, "InputError", message)


async def _answer_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kind, message, headers = "BadRequest", str(error.detail), None
    if error.status_code == 404:
        kind, message = "NotFound", "no such address; /openapi.json lists all"
    elif error.status_code == 405:  # of all routes of the address; the framework names one route's
        routes = (one for one in request.app.state.routes if isinstance(one, Route))
        found = [one for one in routes if one.matches(request.scope)[0] is not Match.NONE]
        methods = {method for one in found for method in one.methods or ()} or {"GET"}
        kind, headers = "MethodNotAllowed", {"Allow": ", ".join(sorted(methods))}
        message = f"use {headers['Allow']} for this address"
    return error_response(error.status_code, kind, message, headers)


async def _answer_defect(_: Request, __: Exception) -> Response:
    return error_response(500, "InternalError", "internal error; see the server's log")


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


def error_responses(*others: int) -> Responses:
    """Return the descriptions of the errors of every route and of the given statuses."""
    responses: Responses = {
        status: {"model": ErrorShape, "description": _MEANING[status]}
        for status in sorted((*_ALWAYS, *others))
    }
    retry = {"description": "Seconds to wait.", "schema": {"type": "string"}}
    responses[503]["headers"] = {"Retry-After": retry}
    return responses
