"""``/v1``: the verbs over HTTP, and their description at ``/openapi.json``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Query, Request, Security
from fastapi.responses import Response, StreamingResponse
from fastapi.security import HTTPBearer
from fastapi.telemetry import TelemetryConfig
from pydantic import BaseModel, ConfigDict, Field

from catalog import __version__
from catalog.core.params import DEFAULT_LIMIT, MAX_DOCUMENTS, Mode, Sort
from catalog.core.results import CatalogPage
from catalog.interfaces.calls import (
    BrowseCall,
    DocumentShape,
    DocumentsShape,
    GetCall,
    MultiGetCall,
    SearchCall,
    SearchShape,
    StatusShape,
)
from catalog.interfaces.server.announcement import make_proof
from catalog.interfaces.server.http_errors import (
    DOCUMENT_EXAMPLE,
    MULTI_GET_EXAMPLES,
    SEARCH_EXAMPLES,
    STREAMED,
    TEXT,
    add_error_handlers,
    as_json,
    errors,
    json_response,
)

if TYPE_CHECKING:
    from catalog.interfaces.engine import Engine
    from catalog.interfaces.server.workers import Workers


class _Query(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    def arguments(self) -> dict[str, Any]:
        """What was given, as the operation's arguments."""
        return self.model_dump(exclude_unset=True)


_SEARCH: dict[str, Any] = dict(SearchCall.model_fields)
_GET: dict[str, Any] = dict(GetCall.model_fields)
_BROWSE: dict[str, Any] = dict(BrowseCall.model_fields)


class SearchQuery(_Query):
    """The handy form of a search; ``POST`` takes every argument."""

    q: str = _SEARCH["query"]
    dataset: str | None = _SEARCH["dataset"]
    top_k: int = _SEARCH["top_k"]
    mode: Mode = _SEARCH["mode"]

    def arguments(self) -> dict[str, Any]:
        """The same with ``query`` for ``q``."""
        given = super().arguments()
        return {"query": given.pop("q"), **given}


class GetQuery(_Query):
    """Which lines of the document, and at most how much."""

    dataset: str | None = _GET["dataset"]
    line_start: int | None = _GET["line_start"]
    line_end: int | None = _GET["line_end"]
    max_bytes: int | None = _GET["max_bytes"]


class BrowseQuery(_Query):
    """Which documents, in which order; ``tags`` and ``filters`` may be given several times."""

    query: str | None = _BROWSE["query"]
    dataset: str | None = _BROWSE["dataset"]
    file_type: str | None = _BROWSE["file_type"]
    name: str | None = _BROWSE["name"]
    tags: list[str] = _BROWSE["tags"]
    filters: list[str] = Field(
        [], description='Conditions that must all hold, such as "tag=ops" or "page>=3".'
    )
    after: str | None = _BROWSE["after"]
    before: str | None = _BROWSE["before"]
    sort: Sort = _BROWSE["sort"]
    limit: int = Field(
        DEFAULT_LIMIT,
        ge=1,
        le=MAX_DOCUMENTS,
        description="How many documents; a stream gives all if it is left out.",
    )
    offset: int = _BROWSE["offset"]


HEALTH = "/v1/health"
NDJSON = "application/x-ndjson"
_STREAM_PAGE = 500
_TELEMETRY: TelemetryConfig = {  # its spans would hold addresses, and so the words of a search
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
}
_PIECE = 65_536
_LAST_OFFSET = 10_000_000


class ApiState:
    """What the routes need: an engine behind threads, and what proves this server."""

    def __init__(self, engine: Engine, workers: Workers, secret: str, seconds: float) -> None:
        self._engine = engine
        self._workers = workers
        self.secret = secret
        self.seconds = seconds

    async def ask(self, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The answer's JSON object."""
        return await self._workers.run(partial(self._engine.ask, operation, arguments))


class HealthShape(BaseModel):
    """``proof`` shows to who knows the server's secret that it does, too."""

    model_config = ConfigDict(extra="forbid")

    status: str
    version: str
    timeout_seconds: float
    make_proof: str | None = None


async def _asking(request: Request) -> ApiState:
    found: ApiState = request.app.state.asking
    return found


Asked = Annotated[ApiState, Depends(_asking)]
Reference = Annotated[str, DOCUMENT_EXAMPLE]
router = APIRouter()


@router.post("/v1/search", response_model=SearchShape, responses=errors(404, 409))
async def search(call: Annotated[SearchCall, SEARCH_EXAMPLES], asked: Asked) -> Response:
    """Search for passages."""
    return json_response(200, await asked.ask("search", call.model_dump(exclude_unset=True)))


@router.get("/v1/search", response_model=SearchShape, responses=errors(404, 409))
async def search_words(call: Annotated[SearchQuery, Query()], asked: Asked) -> Response:
    """Search for passages, the handy form."""
    return json_response(200, await asked.ask("search", call.arguments()))


@router.get("/v1/documents", response_model=CatalogPage, responses=errors(404) | STREAMED)
async def documents(
    call: Annotated[BrowseQuery, Query()], request: Request, asked: Asked
) -> Response:
    """List documents, or find them by title, name, summary, tags and date."""
    arguments = call.arguments()
    if not _wants(request, NDJSON):
        return json_response(200, await asked.ask("browse", arguments))
    most = arguments.get("limit")
    page = await asked.ask("browse", {**arguments, "limit": most or _STREAM_PAGE})
    return StreamingResponse(_entries(asked, arguments, page, most), media_type=NDJSON)


@router.post("/v1/documents", response_model=DocumentsShape, responses=errors(404))
async def several_documents(
    call: Annotated[MultiGetCall, MULTI_GET_EXAMPLES], asked: Asked
) -> Response:
    """Give several documents."""
    return json_response(200, await asked.ask("multi_get", call.model_dump(exclude_unset=True)))


@router.get(
    "/v1/documents/{reference:path}", response_model=DocumentShape, responses=errors(404) | TEXT
)
async def document(
    reference: Reference, call: Annotated[GetQuery, Query()], request: Request, asked: Asked
) -> Response:
    """Give a document, whole or some of its lines."""
    found = await asked.ask("get", {"reference": reference, **call.arguments()})
    if not _wants(request, "text/plain"):
        return json_response(200, found)
    safe = {"X-Content-Type-Options": "nosniff"}
    return StreamingResponse(_pieces(found["text"]), media_type="text/plain", headers=safe)


@router.get("/v1/status", response_model=StatusShape, responses=errors())
async def status(asked: Asked) -> Response:
    """Tell what the store holds, and which model and engines are set."""
    return json_response(200, await asked.ask("status", {}))


@router.get(HEALTH, response_model=HealthShape, responses=errors())
async def health(
    asked: Asked,
    nonce: Annotated[
        str | None,
        Query(
            min_length=16,
            max_length=64,
            pattern="^[0-9a-f]+$",
            description="Hexadecimal digits that nobody used before, for the proof.",
        ),
    ] = None,
) -> Response:
    """Tell that the server runs; looks at nothing."""
    told = {"status": "ok", "version": __version__, "timeout_seconds": asked.seconds}
    return json_response(
        200, told if nonce is None else told | {"proof": make_proof(asked.secret, nonce)}
    )


def build_api(asking: ApiState, *, needs_token: bool) -> FastAPI:
    """The app of the routes; it checks no token, and tells in its description whether one is."""
    scheme = HTTPBearer(auto_error=False, description="IDX_SERVE__TOKEN of the server.")
    app = FastAPI(
        title="catalog",
        version=__version__,
        summary="Find passages in your own documents, with exact citations.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry=_TELEMETRY,
        generate_unique_id_function=_operation_id,
        dependencies=[Security(scheme)] if needs_token else [],
    )
    app.state.asking = asking
    app.include_router(router)
    add_error_handlers(app, router.routes)
    return app


def _wants(request: Request, kind: str) -> bool:
    """Whether the first of the accepted kinds that we have is this one."""
    for part in request.headers.get("accept", "").split(","):
        named = part.partition(";")[0].strip().lower()
        if named in (kind, "application/json", "*/*"):
            return named == kind
    return False


async def _entries(
    asked: ApiState, arguments: Mapping[str, Any], page: dict[str, Any], most: int | None
) -> AsyncIterator[bytes]:
    """The entries as lines, page after page; one page if ``most`` was asked for."""
    while page["entries"]:
        yield b"".join(as_json(entry) + b"\n" for entry in page["entries"])
        offset = page["offset"] + len(page["entries"])
        if most is not None or offset >= min(page["total"], _LAST_OFFSET):
            return
        more = {"limit": _STREAM_PAGE, "offset": offset}
        page = await asked.ask("browse", {**arguments, **more})


async def _pieces(text: str) -> AsyncIterator[bytes]:
    for start in range(0, len(text), _PIECE):
        yield text[start : start + _PIECE].encode("utf-8", "replace")


def _operation_id(route: Any) -> str:
    name: str = route.name
    return name
