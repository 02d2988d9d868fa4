"""The protocol's requests, answered by the agent tools; nothing here writes."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import mcp_types as types
from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from catalog import __version__
from catalog.core.edges import asked_at
from catalog.core.errors import CatalogError, NoStoreError, ServingError
from catalog.core.text import all_storable, storable
from catalog.interfaces.agents.tool import unknown_tool
from catalog.interfaces.plain_text import one_line, safe
from catalog.interfaces.server.crash_log import log_bug
from catalog.interfaces.server.mcp.resources import TEMPLATE, DocumentResources
from catalog.interfaces.server.workers import Workers

if TYPE_CHECKING:
    from catalog.interfaces.agents.tool import AgentTool, ToolResult
    from catalog.interfaces.calls import Engine


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


def build_server(
    engine: Engine,
    *,
    tools: Mapping[str, AgentTool],
    listed: Collection[str] | None = None,
    instructions: str,
    workers: Workers,
) -> Server[Workers]:
    """Return a server of these tools and of the engine's documents, answered by the workers.

    Of the tools those ``listed`` are shown, or else all; the others answer by name.
    """
    resources = DocumentResources(engine)
    shown = tuple(tools if listed is None else listed)
    tool_list = types.ListToolsResult(tools=[_describe(tools[name]) for name in shown])
    schemas = {name: tool.input_schema() for name, tool in tools.items()}

    async def list_tools(
        context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        del context
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
            with asked_at("mcp"):
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
        context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        del context
        _refuse_cursor(params)
        return types.ListResourceTemplatesResult(resource_templates=[TEMPLATE])

    async def read_resource(
        context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        return await _run(context, partial(resources.read, params.uri))

    @asynccontextmanager
    async def lifespan(server: Server[Workers]) -> AsyncIterator[Workers]:
        del server
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


async def _run(context: Context, work: Callable[[], ResultT]) -> ResultT:
    """Return what the work on resources returns; raise its failures as errors of the protocol."""
    try:
        return await context.lifespan_context.run(work)
    except MCPError:
        raise
    except CatalogError as error:
        raise MCPError(types.INTERNAL_ERROR, storable(one_line(str(error)))) from error
    except Exception as error:
        raise MCPError(types.INTERNAL_ERROR, _log_defect("resources", error)) from error


def _log_defect(what: str, error: Exception) -> str:
    """Log where a defect showed, and return what is told of it: its kind."""
    log_bug(what, error)
    return f"internal error ({type(error).__name__})"


def _refuse_cursor(params: types.PaginatedRequestParams | None) -> None:
    if params is not None and params.cursor is not None:
        raise MCPError(types.INVALID_PARAMS, "there is one page: no cursor was given out")


def shorten(text: str) -> str:
    """Return the beginning of somebody else's text as one clean line."""
    return one_line(safe(text[:_MAX_SHOWN]))


def catalog_server(
    engine: Engine, workers: Workers, *, with_answers: bool = False
) -> Server[Workers]:
    """Return the server of all agent tools; asks the engine once, for its instructions.

    The tool ``ask`` is among them ``with_answers`` only.
    """
    from catalog.interfaces.agents import AGENT_TOOLS, ANSWER_TOOLS, LISTED_TOOLS

    more = ANSWER_TOOLS if with_answers else {}
    return build_server(
        engine,
        tools={**AGENT_TOOLS, **more},
        listed=(*LISTED_TOOLS, *more),
        instructions=instructions(engine),
        workers=workers,
    )


def instructions(engine: Engine) -> str:
    """Return how to use the tools and, if the store can be read, which datasets there are."""
    from catalog.interfaces.agents import agent_guidance

    try:
        datasets = engine.ask("status", {})["datasets"]
    except NoStoreError:  # it may be made while this server runs
        datasets = []
    except CatalogError as error:
        _LOG.warning("instructions without datasets: %s", error)
        return agent_guidance()
    names = [_describe_dataset(dataset) for dataset in datasets]
    if len(names) > 1:
        return agent_guidance(names)
    contents = f"Dataset here: {names[0]}." if names else "There is no dataset yet."
    return f"{agent_guidance()}{contents}"


def _describe_dataset(dataset: Mapping[str, Any]) -> str:
    count = dataset["documents"]
    return f"{shorten(dataset['dataset'])} ({count} document{'' if count == 1 else 's'})"
