"""``/v1``: the verbs over HTTP, their arguments, and their description at ``/openapi.json``."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Body, Depends, FastAPI, Path, Query, Request, Security
from fastapi.responses import Response, StreamingResponse
from fastapi.security import HTTPBearer
from fastapi.telemetry import TelemetryConfig
from pydantic import BaseModel, BeforeValidator, ConfigDict

from catalog import __version__
from catalog.core.answers import AnswerShape, Artifact
from catalog.core.arguments import build_model, params_model
from catalog.core.errors import CatalogError, InputError, NotReadyError, StoreError
from catalog.core.params import (
    MAX_OFFSET,
    AskParams,
    BrowseParams,
    GenerateParams,
    GetParams,
    MultiGetParams,
    Params,
    SearchParams,
    StatusParams,
    edge_fields,
)
from catalog.core.results import CatalogPage
from catalog.core.retrieval_events import asked_at
from catalog.interfaces.calls import (
    DocumentShape,
    DocumentsShape,
    SearchShape,
    StatusShape,
)
from catalog.interfaces.server.http_errors import (
    Responses,
    add_error_handlers,
    as_json,
    error_body,
    error_responses,
    json_response,
)
from catalog.interfaces.server.request_log import Readiness

if TYPE_CHECKING:
    from catalog.core.answers import AnswerEvent
    from catalog.interfaces.calls import AnsweringEngine
    from catalog.interfaces.server.workers import Workers


_FILTERS = 'Conditions that must all be true, such as "tag=ops" or "page>=3".'
GET_PATH = Path(
    description=(
        "dataset:path, path or #docid (as %23docid). A suffix selects a part: :12-20 for lines "
        "(or pages, cells, paragraphs), :1:05-1:18 for times."
    ),
    examples=["notes:guides/backup.md:3-5"],
)
HEALTH, READY = "/v1/health", "/v1/ready"
NDJSON = "application/x-ndjson"
_STREAM_PAGE = 500
_LOG = logging.getLogger(__name__)
_PIECE = 65_536  # characters of a streamed text
_TELEMETRY: TelemetryConfig = {  # its spans would hold addresses, and so the words of a search
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
}
Arguments = dict[str, Any]
_MAX_NAME = 60
_LISTS = {
    name
    for kind in (SearchParams, BrowseParams)
    for field in edge_fields(kind)
    if field.takes_list
    for name in (field.name, *field.aliases)
}
STREAMED: Responses = {
    200: {
        "description": (
            "A page of documents. With application/x-ndjson: all documents, one per line."
        ),
        "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
    }
}
EVENTS: Responses = {
    200: {
        "description": (
            "The answer. With application/x-ndjson one event per line: results, each sentence "
            "when it is checked, then the whole answer or an error."
        ),
        "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
    }
}
TEXT: Responses = {
    200: {
        "description": "The document. With text/plain: only its text.",
        "content": {"text/plain": {"schema": {"type": "string"}}},
    }
}


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


_Texts = Annotated[list[str], BeforeValidator(_as_list)]


class QueryString(BaseModel):
    """Base of the parameters that a query string holds, where every value is text."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def query_string(
    kind: type[Params],
    *,
    without: Collection[str] = (),
    **descriptions: str,
) -> type[QueryString]:
    """Return the model of a verb's parameters in a query string.

    A list is given by repeating its name. ``descriptions`` are by parameter.
    """
    parameters = []
    for field in edge_fields(kind):
        if field.name not in without:
            field = replace(field, help=descriptions.get(field.name, field.help))
            as_list = replace(field, type=_Texts, default=())
            parameters.append(as_list if field.takes_list else field)
    return build_model(f"{kind.__name__}Query", parameters, base=QueryString)


def arguments_from(model: type[BaseModel], source: Any) -> Any:
    """Return the dependency that gives the arguments which a request has, and no defaults.

    ``source`` is where FastAPI finds the model: ``Body()`` or ``Query()``.
    """

    async def read(arguments: BaseModel) -> dict[str, Any]:
        return arguments.model_dump(exclude_unset=True)

    read.__annotations__["arguments"] = Annotated[model, source]
    return Depends(read)


SEARCH_BODY = arguments_from(
    params_model(SearchParams),
    Body(
        openapi_examples={
            "words": {"summary": "Words", "value": {"query": "rotate the api keys", "top_k": 5}},
            "narrowed": {
                "summary": "Some documents only",
                "value": {"query": "backup", "file_type": "markdown", "filters": ["tags=ops"]},
            },
        }
    ),
)
SEARCH_QUERY = arguments_from(
    query_string(
        SearchParams,
        docs="Only these documents: paths, globs or #docids.",
        filters=_FILTERS,
    ),
    Query(),
)
ASK_BODY = arguments_from(
    params_model(AskParams, "model"),  # which names code to load, and is for the owner to say
    Body(
        openapi_examples={
            "question": {"summary": "A question", "value": {"question": "who may cancel?"}},
            "role": {
                "summary": "As for a role",
                "value": {"question": "who may cancel?", "role": "employee"},
            },
        }
    ),
)
GENERATE_BODY = arguments_from(
    params_model(GenerateParams, "model"),
    Body(
        openapi_examples={
            "blueprint": {
                "summary": "A blueprint",
                "value": {"kind": "blueprint", "topic": "mobile app", "dataset": "acme"},
            }
        }
    ),
)
BROWSE_QUERY = arguments_from(
    query_string(
        BrowseParams,
        filters=_FILTERS,
        limit="Maximum number of documents. Default for a stream: all.",
    ),
    Query(),
)
MULTI_GET_BODY = arguments_from(
    params_model(MultiGetParams),
    Body(
        openapi_examples={
            "pattern": {"summary": "All of a folder", "value": {"patterns": ["guides/*.md"]}}
        }
    ),
)
GET_QUERY = arguments_from(query_string(GetParams, without=("reference",)), Query())
STATUS_QUERY = arguments_from(query_string(StatusParams), Query())


class ApiState:
    """The engine that routes ask, behind threads."""

    def __init__(
        self,
        engine: AnsweringEngine,
        workers: Workers,
        seconds: float,
        readiness: Readiness | None = None,
    ) -> None:
        self._engine = engine
        self._workers = workers
        self._readiness = readiness or Readiness()
        self.seconds = seconds

    async def require_ready(self) -> None:
        """Raise an error of status 503 unless the server is ready and its store can be read."""
        self._readiness.require()
        try:
            await self._workers.run(self._engine.check_store)
        except StoreError as error:
            _LOG.warning("not ready: %s", error)
            raise NotReadyError("the store cannot be read; see the server's log") from error

    async def ask(self, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the engine's answer."""
        with asked_at("http"):
            return await self._workers.run(partial(self._engine.ask, verb, arguments))

    async def events(self, arguments: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Return the events of an answer; raise the errors of a search before the first event."""
        events = await self._workers.run(partial(self._engine.answer_events, arguments))
        with asked_at("http"):
            step = partial(copy_context().run, next, events, None)  # one context for them all
        first = await self._workers.run(step)

        async def following() -> AsyncIterator[dict[str, Any]]:
            event: AnswerEvent | None = first
            while event is not None:
                yield event.to_dict()
                event = await self._workers.run(step)

        return following()

    async def respond(self, verb: str, arguments: Mapping[str, Any]) -> Response:
        """Return the engine's answer as JSON."""
        return json_response(200, await self.ask(verb, arguments))


class HealthShape(BaseModel):
    """Said of a server that runs."""

    model_config = ConfigDict(extra="forbid")

    status: str
    version: str
    timeout_seconds: float


class ReadyShape(BaseModel):
    """Said of a server that requests should be sent to."""

    model_config = ConfigDict(extra="forbid")

    status: str


async def _api_state(request: Request) -> ApiState:
    state: ApiState = request.app.state.api
    return state


async def _check_address(request: Request) -> None:
    """Raise :class:`InputError` for a parameter in addition to a body, or twice but not a list."""
    counts = Counter(name for name, _ in request.query_params.multi_items())
    for name, count in counts.items():
        if request.method == "POST":  # a role that is not heeded would show what it may not see
            raise InputError(f"{name[:_MAX_NAME]} is in the address: put it in the body")
        if count > 1 and name not in _LISTS:
            raise InputError(f"{name[:_MAX_NAME]} occurs {count} times: send it once")


Api = Annotated[ApiState, Depends(_api_state)]
router = APIRouter(dependencies=[Depends(_check_address)])


@router.post("/v1/search", response_model=SearchShape, responses=error_responses(404, 409))
async def search(arguments: Annotated[Arguments, SEARCH_BODY], api: Api) -> Response:
    """Search for passages."""
    return await api.respond("search", arguments)


@router.get("/v1/search", response_model=SearchShape, responses=error_responses(404, 409))
async def search_words(arguments: Annotated[Arguments, SEARCH_QUERY], api: Api) -> Response:
    """Search for passages, with the parameters in the address."""
    return await api.respond("search", arguments)


@router.post("/v1/ask", response_model=AnswerShape, responses=error_responses(404, 409) | EVENTS)
async def ask(arguments: Annotated[Arguments, ASK_BODY], request: Request, api: Api) -> Response:
    """Answer a question from documents, or say why not."""
    if not _accepts(request, NDJSON):
        return await api.respond("ask", arguments)
    events = await api.events(arguments)
    return StreamingResponse(stream_events(events), media_type=NDJSON)


@router.post("/v1/generate", response_model=Artifact, responses=error_responses(404, 409, 502))
async def generate(arguments: Annotated[Arguments, GENERATE_BODY], api: Api) -> Response:
    """Make a blueprint, pdr, workflow or build plan in sections that cite the documents."""
    return await api.respond("generate", arguments)


@router.get("/v1/documents", response_model=CatalogPage, responses=error_responses(404) | STREAMED)
async def documents(
    arguments: Annotated[Arguments, BROWSE_QUERY], request: Request, api: Api
) -> Response:
    """List documents, or find them by title, name, summary, tags and date."""
    if not _accepts(request, NDJSON):
        return await api.respond("browse", arguments)
    limit = arguments.get("limit")
    page = await api.ask("browse", {**arguments, "limit": limit or _STREAM_PAGE})
    return StreamingResponse(_stream_entries(api, arguments, page), media_type=NDJSON)


@router.post("/v1/documents", response_model=DocumentsShape, responses=error_responses(404))
async def several_documents(arguments: Annotated[Arguments, MULTI_GET_BODY], api: Api) -> Response:
    """Give several documents."""
    return await api.respond("multi_get", arguments)


@router.get(
    "/v1/documents/{reference:path}",
    response_model=DocumentShape,
    responses=error_responses(404) | TEXT,
)
async def document(
    reference: Annotated[str, GET_PATH],
    arguments: Annotated[Arguments, GET_QUERY],
    request: Request,
    api: Api,
) -> Response:
    """Return a document, or some of its lines."""
    answer = await api.ask("get", {"reference": reference, **arguments})
    if not _accepts(request, "text/plain"):
        return json_response(200, answer)
    safe = {"X-Content-Type-Options": "nosniff"}
    return StreamingResponse(_stream_text(answer["text"]), media_type="text/plain", headers=safe)


@router.get("/v1/status", response_model=StatusShape, responses=error_responses())
async def status(arguments: Annotated[Arguments, STATUS_QUERY], api: Api) -> Response:
    """Return the contents of the store, and the model and engines that are set."""
    return await api.respond("status", arguments)


@router.get(HEALTH, response_model=HealthShape, responses=error_responses())
async def health(api: Api) -> Response:
    """Confirm that the server runs; checks nothing else."""
    told = {"status": "ok", "version": __version__, "timeout_seconds": api.seconds}
    return json_response(200, told)


@router.get(READY, response_model=ReadyShape, responses=error_responses())
async def ready(api: Api) -> Response:
    """Confirm that requests should be sent here: warm, not about to stop, and the store answers."""
    await api.require_ready()
    return json_response(200, {"status": "ready"})


def build_api(state: ApiState, *, needs_token: bool) -> FastAPI:
    """Return the app of the routes; its description says whether a token is needed.

    It checks none itself.
    """
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
    add_error_handlers(app, router.routes)
    return app


def _accepts(request: Request, kind: str) -> bool:
    """Return whether the first accepted media type that we have is ``kind``."""
    for part in request.headers.get("accept", "").split(","):
        accepted = part.partition(";")[0].strip().lower()
        if accepted in (kind, "application/json", "*/*"):
            return accepted == kind
    return False


async def _stream_entries(
    api: ApiState, arguments: Mapping[str, Any], page: dict[str, Any]
) -> AsyncIterator[bytes]:
    """Yield the entries as lines, page after page; of one page if there is a limit."""
    while page["entries"]:
        yield b"".join(as_json(entry) + b"\n" for entry in page["entries"])
        offset = page["offset"] + len(page["entries"])
        if "limit" in arguments or offset >= min(page["total"], MAX_OFFSET):
            return
        following = {"limit": _STREAM_PAGE, "offset": offset}
        page = await api.ask("browse", {**arguments, **following})


async def stream_events(events: AsyncIterator[dict[str, Any]]) -> AsyncIterator[bytes]:
    """Yield events as lines; an error on the way is the last of them."""
    try:
        async for event in events:
            yield as_json(event) + b"\n"
    except CatalogError as error:
        yield as_json({"event": "error", **error_body(type(error).__name__, str(error))}) + b"\n"


async def _stream_text(text: str) -> AsyncIterator[bytes]:
    for start in range(0, len(text), _PIECE):
        yield text[start : start + _PIECE].encode("utf-8", "replace")
