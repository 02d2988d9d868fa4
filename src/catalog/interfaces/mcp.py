"""The Model Context Protocol: the tools, and the documents as resources. Nothing here writes.

Over standard input and output, which carry nothing else, and over guarded HTTP.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager, redirect_stdout, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from urllib.parse import quote, unquote

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from starlette.applications import Starlette
from starlette.routing import Route

from catalog import __version__
from catalog.core import errors
from catalog.core.params import MAX_OFFSET
from catalog.core.retrieval_events import asked_at
from catalog.core.scope import asked_as
from catalog.core.text import clean, counted
from catalog.interfaces.guidance import agent_guidance
from catalog.interfaces.plain_text import complaint, one_line
from catalog.interfaces.server.listen import bind_socket, end_process, serve_until_signal
from catalog.interfaces.server.security import ROLE, Address, guard_app
from catalog.interfaces.server.workers import log_bug
from catalog.interfaces.tools import ASK, LISTED_TOOLS, TOOLS, failed, unknown_tool
from catalog.library.names import URI_SCHEME

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from catalog.core.settings.sections import ServeSettings
    from catalog.interfaces.calls import Engine
    from catalog.interfaces.server.workers import Workers

PATH = "/mcp"
PAGE_SIZE = 100
PARENT_SECONDS = 2.0  # between two looks
MAX_BYTES = 1_000_000
TEMPLATE = types.ResourceTemplate(
    name="document",
    title="Document",
    uri_template=URI_SCHEME + "{dataset}/{+path}",
    description="The indexed text of a document, at most 1 MB of it.",
)
_READ_ONLY = types.ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
Context = ServerRequestContext[Any, Any]
ResultT = TypeVar("ResultT")
_LOG = logging.getLogger(__name__)


def catalog_server(
    engine: Engine, workers: Workers, *, with_answers: bool = False, roles: Collection[str] = ()
) -> Server[Any]:
    """Return the server of the tools and documents; ask the engine once, for its instructions.

    The tool ``ask`` is included only ``with_answers``; see :func:`instructions` for ``roles``.
    """
    tools = {name: one for name, one in TOOLS.items() if with_answers or one is not ASK}
    listed = [
        types.Tool(
            name=one.name,
            title=one.title,
            description=one.description,
            input_schema=one.input_schema(),
            annotations=_READ_ONLY,
        )
        for one in tools.values()
        if one.name in LISTED_TOOLS or one is ASK
    ]

    async def run(context: Context, what: str, work: Callable[[], ResultT]) -> ResultT:
        """Work as the role of whoever sent this request."""
        scope = context.request.scope if context.request else {}
        try:
            with asked_at("mcp"), asked_as(scope.get("state", {}).get(ROLE)):
                return await workers.run(work)
        except MCPError:
            raise
        except errors.CatalogError as error:
            raise MCPError(types.INTERNAL_ERROR, _line(str(error), 1000)) from error
        except Exception as error:  # a defect of ours: its place is logged, its kind is told
            log_bug(what, error)
            told = f"internal error ({type(error).__name__})"
            raise MCPError(types.INTERNAL_ERROR, told) from error

    async def list_tools(*_: object) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed)

    async def call_tool(
        context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        if params.name not in tools:
            raise MCPError(types.INVALID_PARAMS, unknown_tool(params.name))
        work = partial(tools[params.name].call, engine, params.arguments or {})
        try:
            answer = await run(context, f"tool {params.name}", work)
        except MCPError as error:
            answer = failed(error.message)
        return types.CallToolResult(
            content=[types.TextContent(text=answer.text)],
            structured_content=answer.data,
            is_error=answer.is_error,
        )

    async def list_resources(
        context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        work = partial(list_documents, engine, params.cursor if params else None)
        return await run(context, "resources", work)

    async def read_resource(
        context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        return await run(context, "resources", partial(read_document, engine, params.uri))

    async def list_templates(*_: object) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=[TEMPLATE])

    return Server(
        "catalog",
        version=__version__,
        title="Your documents",
        instructions=instructions(engine, roles),
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
    )


def _line(text: str, most: int = 200) -> str:
    line = one_line(clean(text))
    return line if len(line) <= most else f"{line[: most - 1]}…"


def instructions(engine: Engine, roles: Collection[str] = ()) -> str:
    """Return how to use the tools and, if the store can be read, the names of datasets.

    Of ``roles``, those that callers may have, all must see a document of a dataset that is named.
    """
    try:
        of_each = [engine.ask("status", {"role": one})["datasets"] for one in roles or (None,)]
    except errors.NoStoreError:  # it may be made while this server runs
        of_each = [[]]
    except errors.CatalogError as error:
        _LOG.warning("instructions without datasets: %s", error)
        return agent_guidance()
    common = set.intersection(*({one["dataset"] for one in datasets} for datasets in of_each))
    names = [
        _line(one["dataset"], 40) + ("" if roles else f" ({counted(one['documents'], 'document')})")
        for one in of_each[0]
        if one["dataset"] in common
    ]
    if len(names) > 1:
        return agent_guidance(names)
    return agent_guidance() + (
        f"Dataset here: {names[0]}." if names else "There is no dataset yet."
    )


def list_documents(engine: Engine, cursor: str | None) -> types.ListResourcesResult:
    """Return a hundred documents by name; the cursor is the number of the first."""
    offset = int(cursor or 0) if re.fullmatch("[0-9]{1,8}", cursor or "0") else -1
    if not 0 <= offset <= MAX_OFFSET:
        raise MCPError(types.INVALID_PARAMS, "there is no such cursor: start without one")
    try:
        page = engine.ask("browse", {"sort": "name", "limit": PAGE_SIZE, "offset": offset})
    except (errors.NoStoreError, errors.UnknownDatasetError):
        return types.ListResourcesResult(resources=[])
    resources = [
        types.Resource(
            uri=document_uri(one["dataset"], one["path"]),
            name=_line(one["path"], 4096),
            title=_line(one["title"]) or None,
            description=_line(one["summary"], 500) or None,
            mime_type=_mime_type(one["path"]),
        )
        for one in page["entries"]
    ]
    end = offset + len(resources)
    is_last = not resources or end >= min(page["total"], MAX_OFFSET)
    return types.ListResourcesResult(resources=resources, next_cursor=None if is_last else str(end))


def read_document(engine: Engine, uri: str) -> types.ReadResourceResult:
    """Return the document's text, cut at 1 MB (UTF-8) with a word on how to get the rest."""
    dataset, _, path = map(unquote, uri.removeprefix(URI_SCHEME).partition("/"))
    unknown = f"there is no resource {_line(uri)}; documents are {TEMPLATE.uri_template}"
    if not uri.startswith(URI_SCHEME) or not dataset or not path:
        raise MCPError(types.INVALID_PARAMS, unknown)
    try:
        asked = {"reference": f"{dataset}:{path}", "dataset": dataset, "max_bytes": MAX_BYTES}
        answer = engine.ask("get", asked)
    except (errors.DocumentNotFoundError, errors.UnknownDatasetError) as error:
        raise MCPError(types.INVALID_PARAMS, unknown) from error
    if path.startswith(f"{answer['path']}:"):  # its end was read as a range of lines
        raise MCPError(types.INVALID_PARAMS, unknown)
    text = answer["text"]
    if notes := "; ".join(answer["notes"]):
        text += f"\n\n[The resource ends here: {notes}. Call get with {asked['reference']!r}.]"
    content = types.TextResourceContents(uri=uri, text=text, mime_type=_mime_type(path))
    return types.ReadResourceResult(contents=[content])


def document_uri(dataset: str, path: str) -> str:
    """Return the address of a document as a resource."""
    return f"{URI_SCHEME}{quote(dataset, safe='')}/{quote(path)}"


def _mime_type(path: str) -> str:
    is_markdown = path.casefold().endswith((".md", ".markdown"))
    return "text/markdown" if is_markdown else "text/plain"


def serve_stdio(
    engine: Engine, make: Callable[[Engine], Server[Any]], workers: Workers
) -> NoReturn:
    """Answer until the input ends, the parent is gone, or SIGINT or SIGTERM arrives; then exit 0.

    The server is made after standard output is reserved for the protocol; whatever prints from then
    on goes to standard error. When the input ends, the engine is closed unless calls still run,
    which are abandoned. An error while the server is made ends the process with code 1.
    """
    try:
        anyio.run(_serve, engine, make)
    except* (BrokenPipeError, ConnectionResetError):
        pass  # the client is gone: nobody to answer
    with suppress(errors.CatalogError, OSError):
        os.dup2(2, 1)  # text printed at the end is not protocol either
        if not workers.pending:
            engine.close()
    _leave()


async def _serve(engine: Engine, make: Callable[[Engine], Server[Any]]) -> None:
    async with stdio_server() as (read, write), anyio.create_task_group() as tasks:
        with redirect_stdout(sys.stderr):  # nothing is left to be written at the end
            tasks.start_soon(_end_at_signal)
            try:
                server = await anyio.to_thread.run_sync(make, engine)
            except errors.CatalogError as error:  # raising would wait for the next line of input
                print(complaint(str(error)), file=sys.stderr)
                _leave(1)
            tasks.start_soon(_end_without_parent)
            await server.run(read, write, server.create_initialization_options())
            tasks.cancel_scope.cancel()


async def _end_without_parent() -> None:
    parent = os.getppid()  # whose other children may keep the input open
    while os.getppid() == parent:
        await anyio.sleep(PARENT_SECONDS)
    _leave()


async def _end_at_signal() -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            _leave()


def _leave(code: int = 0) -> NoReturn:
    """End the process at once: a thread may wait for the next line of input, or be busy."""
    with suppress(OSError):
        sys.stderr.flush()
    os._exit(code)


def mcp_asgi(
    server: Server[Any], serve: ServeSettings
) -> tuple[ASGIApp, AbstractAsyncContextManager[None]]:
    """Return the endpoint, and the context in which it answers: a pair for one use.

    It is not guarded. It keeps no sessions, so any server behind a balancer answers any request.
    """
    manager = StreamableHTTPSessionManager(
        server, stateless=True, max_request_body_size=serve.max_body_bytes
    )
    return StreamableHTTPASGIApp(manager), manager.run()


def streamable_http_app(server: Server[Any], address: Address, serve: ServeSettings) -> ASGIApp:
    """Return ``/mcp``, guarded; raise as ``guard_app`` does."""
    endpoint, running = mcp_asgi(server, serve)
    app = Starlette(routes=[Route(PATH, endpoint=endpoint)], lifespan=lambda _: running)
    return guard_app(app, address, serve)


def serve_http(
    server: Server[Any], engine: Engine, address: Address, serve: ServeSettings
) -> NoReturn:
    """Answer on the address until SIGINT or SIGTERM, then end this process with code 0.

    Port 0 means any free one; the URL is printed on standard error. Raises :class:`ConfigError` if
    the address is not available, or if other machines can reach it and there is no token.
    """
    app = streamable_http_app(server, address, serve)
    with bind_socket(address) as listening:
        url = Address(address.host, listening.getsockname()[1]).url
        told = f"MCP on {url}{PATH}; stop with Ctrl-C"
        serve_until_signal(app, listening, partial(print, told, file=sys.stderr, flush=True))
    end_process(engine)
