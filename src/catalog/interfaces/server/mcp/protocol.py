"""The protocol's requests: tools, answered by the agent tools, and documents as resources.

Nothing here writes.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, unquote

import mcp_types as types
from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from catalog import __version__
from catalog.core.errors import (
    CatalogError,
    DocumentNotFoundError,
    NoStoreError,
    ServingError,
    UnknownDatasetError,
)
from catalog.core.params import MAX_OFFSET
from catalog.core.retrieval_events import asked_at
from catalog.core.scope import asked_as
from catalog.core.text import all_storable, clean, storable
from catalog.interfaces.agents.tool import unknown_tool
from catalog.interfaces.plain_text import one_line, safe
from catalog.interfaces.server.crash_log import log_bug
from catalog.interfaces.server.security import ROLE
from catalog.interfaces.server.workers import Workers
from catalog.library.names import URI_SCHEME

if TYPE_CHECKING:
    from catalog.interfaces.agents.tool import AgentTool, ToolResult
    from catalog.interfaces.calls import Engine


PAGE_SIZE = 100
MAX_BYTES = 1_000_000
_MARKDOWN = frozenset((".md", ".markdown"))
_MAX_TITLE, _MAX_SUMMARY = 200, 500
TEMPLATE = types.ResourceTemplate(
    name="document",
    title="Document",
    uri_template=URI_SCHEME + "{dataset}/{+path}",
    description="The indexed text of a document, at most 1 MB of it.",
)
NAME = "catalog"
_LIST_TTL_MS = 60_000
_MAX_SHOWN = 60
_READ_ONLY = {
    "read_only_hint": True,
    "destructive_hint": False,
    "idempotent_hint": True,
    "open_world_hint": False,
}
Context = ServerRequestContext[Workers, Any]
ResultT = TypeVar("ResultT")
_LOG = logging.getLogger(__name__)


def document_uri(dataset: str, path: str) -> str:
    """Return the URI of a document; :func:`parse_document_uri` reads it back."""
    return URI_SCHEME + _quote(dataset, "") + "/" + _quote(path, "/")


def parse_document_uri(uri: str) -> tuple[str, str]:
    """Return dataset and path of a resource; raise the protocol's error for anything else."""
    dataset, _, path = uri.removeprefix(URI_SCHEME).partition("/")
    if not uri.startswith(URI_SCHEME) or not dataset or not path:
        raise _unknown_resource(uri)
    try:
        return unquote(dataset, errors="surrogatepass"), unquote(path, errors="surrogatepass")
    except UnicodeError as error:
        raise _unknown_resource(uri) from error


@dataclass(frozen=True, slots=True)
class DocumentResources:
    """The documents of an engine; asking it blocks."""

    engine: Engine

    def page(self, cursor: str | None) -> types.ListResourcesResult:
        """Return up to 100 documents after the cursor, by dataset and name."""
        try:
            names = [item["dataset"] for item in self.engine.ask("status", {})["datasets"]]
        except NoStoreError:
            names = []
        if not names and cursor is None:
            return types.ListResourcesResult(resources=[])
        dataset, offset = (names[0], 0) if cursor is None else _read_cursor(cursor)
        if dataset not in names:
            raise _bad_cursor()
        remaining = names[names.index(dataset) :]
        resources, cursor = self._list(remaining, offset)
        return types.ListResourcesResult(resources=resources, next_cursor=cursor)

    def _list(self, names: list[str], offset: int) -> tuple[list[types.Resource], str | None]:
        resources: list[types.Resource] = []
        for name in names:
            if len(resources) == PAGE_SIZE:
                return resources, _write_cursor(name, 0)
            params = {
                "dataset": name,
                "sort": "name",
                "limit": PAGE_SIZE - len(resources),
                "offset": offset,
            }
            answer = self.engine.ask("browse", params)
            resources += [_resource(entry) for entry in answer["entries"]]
            end = offset + len(answer["entries"])
            if answer["entries"] and end < min(answer["total"], MAX_OFFSET):
                return resources, _write_cursor(name, end)
            offset = 0
        return resources, None

    def read(self, uri: str) -> types.ReadResourceResult:
        """Return the document's text, cut at 1 MB (UTF-8) with a word on how to get the rest."""
        dataset, path = parse_document_uri(uri)
        try:
            params = {"reference": f"{dataset}:{path}", "dataset": dataset, "max_bytes": MAX_BYTES}
            answer = self.engine.ask("get", params)
        except (DocumentNotFoundError, UnknownDatasetError) as error:
            raise _unknown_resource(uri) from error
        if path.startswith(f"{answer['path']}:"):  # its end was read as a range of lines
            raise _unknown_resource(uri)
        text = "\n\n".join([answer["text"], *_pointer(answer, f"{dataset}:{path}")])
        content = types.TextResourceContents(
            uri=uri, text=storable(text), mime_type=_mime_type(path)
        )
        return types.ReadResourceResult(contents=[content])


def _pointer(answer: Mapping[str, Any], reference: str) -> Iterator[str]:
    if answer["notes"]:
        yield (
            f"[The resource ends here: {'; '.join(answer['notes'])}. For the rest, call the "
            f"tool get with reference {json.dumps(reference)}.]"
        )


def _resource(entry: Mapping[str, Any]) -> types.Resource:
    return types.Resource(
        uri=document_uri(entry["dataset"], entry["path"]),
        name=_clean(entry["path"], len(entry["path"])),
        title=_clean(entry["title"], _MAX_TITLE) or None,
        description=_clean(entry["summary"], _MAX_SUMMARY) or None,
        mime_type=_mime_type(entry["path"]),
    )


def _clean(text: str | None, limit: int) -> str:
    """Return text out of a document as one line without control and hidden characters."""
    line = clean(one_line(safe(text or "")))
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _mime_type(path: str) -> str:
    kind = PurePosixPath(path).suffix.casefold()
    return "text/markdown" if kind in _MARKDOWN else "text/plain"


def _quote(text: str, safe_characters: str) -> str:
    return quote(text.encode("utf-8", "surrogatepass"), safe=safe_characters)


def _write_cursor(dataset: str, offset: int) -> str:
    return base64.urlsafe_b64encode(json.dumps([dataset, offset]).encode()).decode()


def _read_cursor(cursor: str) -> tuple[str, int]:
    try:
        content = json.loads(base64.b64decode(cursor.encode("ascii"), b"-_", validate=True))
    except (ValueError, binascii.Error, RecursionError) as error:
        raise _bad_cursor() from error
    match content:
        case [str() as dataset, int() as offset] if 0 <= offset <= MAX_OFFSET:
            return dataset, int(offset)
    raise _bad_cursor()


def _bad_cursor() -> MCPError:
    return MCPError(types.INVALID_PARAMS, "this cursor is not from this server: start without one")


def _unknown_resource(uri: str) -> MCPError:
    """Return the error for no such resource, of the protocol's revision 2026-07-28 (SEP-2164)."""
    short = _clean(uri, 200)
    message = f"there is no resource {short}; documents are {TEMPLATE.uri_template}"
    return MCPError(types.INVALID_PARAMS, message, {"uri": storable(uri[:1000])})


def build_server(
    engine: Engine,
    *,
    tools: Mapping[str, AgentTool],
    listed: Collection[str] | None = None,
    instructions: str,
    workers: Workers,
) -> Server[Workers]:
    """Return a server of these tools and of the engine's documents, answered by the workers.

    The tools in ``listed`` are shown, by default all; the rest answer by name.
    """
    resources = DocumentResources(engine)
    shown = tuple(tools if listed is None else listed)
    tool_list = types.ListToolsResult(tools=[_describe(tools[name]) for name in shown])
    schemas = {name: tool.input_schema() for name, tool in tools.items()}

    async def list_tools(
        _: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        _refuse_cursor(params)
        return tool_list

    async def call_tool(
        context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        tool = tools.get(params.name)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, unknown_tool(safe(params.name), shown, tools))
        work = partial(tool.call, engine, params.arguments or {})
        try:
            with asked_at("mcp"), _as_sender(context):
                answer = await context.lifespan_context.run(work)
        except ServingError as error:
            answer = tool.failed(f"{error}; ask for less, or try again later")
        except Exception as error:  # noqa: BLE001 - a defect of ours: logged, and told by its name
            answer = tool.failed(_log_defect(f"tool {tool.name}", error))
        return _result(answer)

    async def list_resources(
        context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        cursor = params.cursor if params else None
        return await _run(context, partial(resources.page, cursor))

    async def list_templates(
        _: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        _refuse_cursor(params)
        return types.ListResourceTemplatesResult(resource_templates=[TEMPLATE])

    async def read_resource(
        context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        return await _run(context, partial(resources.read, params.uri))

    @asynccontextmanager
    async def lifespan(_: Server[Workers]) -> AsyncIterator[Workers]:
        yield workers

    hint = CacheHint(ttl_ms=_LIST_TTL_MS)
    return Server(
        NAME,
        version=__version__,
        title="Your documents",
        instructions=instructions,
        cache_hints={"tools/list": hint, "resources/templates/list": hint},
        lifespan=lifespan,
        get_tool_input_schema=schemas.get,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
    )


def _describe(tool: AgentTool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.input_schema(),
        output_schema=tool.output_schema(),
        annotations=types.ToolAnnotations(**_READ_ONLY),
    )


def _result(answer: ToolResult) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(text=storable(answer.text))],
        structured_content=all_storable(answer.data),
        is_error=answer.is_error,
    )


def _as_sender(context: Context) -> AbstractContextManager[object]:
    """Answer as the role of whoever sent this request, whoever opened its session.

    A session's own task keeps the context of the request that opened it.
    """
    request = context.request
    if request is None:  # standard input
        return nullcontext()
    return asked_as(request.scope.get("state", {}).get(ROLE))


async def _run(context: Context, work: Callable[[], ResultT]) -> ResultT:
    """Return the result of work on resources; raise its failures as errors of the protocol."""
    try:
        with _as_sender(context):
            return await context.lifespan_context.run(work)
    except MCPError:
        raise
    except CatalogError as error:
        raise MCPError(types.INTERNAL_ERROR, storable(one_line(str(error)))) from error
    except Exception as error:
        raise MCPError(types.INTERNAL_ERROR, _log_defect("resources", error)) from error


def _log_defect(what: str, error: Exception) -> str:
    """Log the place of a defect; return a message for the client with its kind only."""
    log_bug(what, error)
    return f"internal error ({type(error).__name__})"


def _refuse_cursor(params: types.PaginatedRequestParams | None) -> None:
    if params is not None and params.cursor is not None:
        raise MCPError(types.INVALID_PARAMS, "there is only one page: leave the cursor out")


def shorten(text: str) -> str:
    """Return the beginning of a foreign text as one clean line."""
    return one_line(safe(text[:_MAX_SHOWN]))


def catalog_server(
    engine: Engine, workers: Workers, *, with_answers: bool = False, roles: Collection[str] = ()
) -> Server[Workers]:
    """Return the server of all agent tools; ask the engine once, for its instructions.

    The tool ``ask`` is included only ``with_answers``. ``roles`` are those that its callers may
    have: the instructions name only datasets of which all of them see a document, and count none.
    """
    from catalog.interfaces.agents import AGENT_TOOLS, ANSWER_TOOLS, LISTED_TOOLS

    more = ANSWER_TOOLS if with_answers else {}
    return build_server(
        engine,
        tools={**AGENT_TOOLS, **more},
        listed=(*LISTED_TOOLS, *more),
        instructions=instructions(engine, roles),
        workers=workers,
    )


def instructions(engine: Engine, roles: Collection[str] = ()) -> str:
    """Return how to use the tools and, if the store can be read, the names of datasets."""
    from catalog.interfaces.agents import agent_guidance

    try:
        of_each = [engine.ask("status", {"role": one})["datasets"] for one in roles or (None,)]
        seen = [{one["dataset"] for one in datasets} for datasets in of_each]
        datasets = [one for one in of_each[0] if all(one["dataset"] in names for names in seen)]
    except NoStoreError:  # it may be made while this server runs
        datasets = []
    except CatalogError as error:
        _LOG.warning("instructions without datasets: %s", error)
        return agent_guidance()
    describe = _name_dataset if roles else _describe_dataset
    names = [describe(dataset) for dataset in datasets]
    if len(names) > 1:
        return agent_guidance(names)
    contents = f"Dataset here: {names[0]}." if names else "There is no dataset yet."
    return f"{agent_guidance()}{contents}"


def _name_dataset(dataset: Mapping[str, Any]) -> str:
    return shorten(str(dataset["dataset"]))


def _describe_dataset(dataset: Mapping[str, Any]) -> str:
    count = dataset["documents"]
    return f"{shorten(dataset['dataset'])} ({count} document{'' if count == 1 else 's'})"
