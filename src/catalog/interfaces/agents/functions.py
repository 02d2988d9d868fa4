"""The tools by name, as plain functions, and as tools of LlamaIndex agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

from catalog.core.open_services import OpenServices
from catalog.core.params import Sort
from catalog.interfaces.agents.catalog_tool import QUERY_CATALOG
from catalog.interfaces.agents.document_tools import GET, MULTI_GET, STATUS
from catalog.interfaces.agents.quoting import one_line
from catalog.interfaces.agents.search_tools import QUERY, SEARCH, SEARCH_CHUNKS, VSEARCH
from catalog.interfaces.agents.tool import AgentTool, ToolResult

if TYPE_CHECKING:
    from llama_index.core.tools import FunctionTool

    from catalog.interfaces.engine import Engine

AGENT_TOOLS: Mapping[str, AgentTool] = {
    tool.name: tool
    for tool in (SEARCH_CHUNKS, QUERY_CATALOG, SEARCH, VSEARCH, QUERY, GET, MULTI_GET, STATUS)
}
P = ParamSpec("P")
_engines: OpenServices[Engine] = OpenServices()


class AgentTools:
    """The tools of agents, answered by one engine, which stays the caller's to close."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def search_chunks(
        self,
        query: str,
        top_k: int = 10,
        file_type_filter: str | None = None,
        doc_name_filter: str | None = None,
        dataset: str | None = None,
    ) -> str:
        """Find numbered, cited passages that answer a question about what documents say."""
        return self._call_method("search_chunks", locals())

    def query_catalog(
        self,
        query: str | None = None,
        file_type: str | None = None,
        name: str | None = None,
        tags: Sequence[str] | None = None,
        after: str | None = None,
        before: str | None = None,
        sort: Sort = "best",
        limit: int = 20,
        offset: int = 0,
        dataset: str | None = None,
    ) -> str:
        """List the documents there are: by type, name, tags, date (``YYYY-MM-DD``) or words."""
        tags = tags if isinstance(tags, str) else list(tags or ()) or None
        return self._call_method("query_catalog", locals())

    def _call_method(self, name: str, variables: Mapping[str, Any]) -> str:
        """Return the text of the tool's answer to a method's ``locals()``."""
        arguments = {
            key: value for key, value in variables.items() if key != "self" and value is not None
        }
        return self.call(name, arguments).text

    def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call the tool of that name; for an unknown one the result is an error that lists them."""
        tool = AGENT_TOOLS.get(name)
        if tool is not None:
            return tool.call(self._engine, arguments)
        message = f"there is no tool {one_line(repr(name), 60)}; tools: {', '.join(AGENT_TOOLS)}"
        return ToolResult(f"error: {message}", {"status": "error", "message": message})

    def function_tools(
        self, names: Sequence[str] = ("search_chunks", "query_catalog")
    ) -> list[FunctionTool]:
        """Return LlamaIndex tools of those names; raise ``KeyError`` for a name that is none.

        An output's content is the text, its ``raw_output`` the data, and it says whether it is an
        error. Called with keywords; async calls run in a thread.
        """
        return [self._function_tool(AGENT_TOOLS[name]) for name in names]

    def _function_tool(self, tool: AgentTool) -> FunctionTool:
        from llama_index.core.tools import FunctionTool, ToolMetadata, ToolOutput

        def run(**arguments: Any) -> ToolOutput:
            result = tool.call(self._engine, arguments)
            return ToolOutput(
                content=result.text,
                tool_name=tool.name,
                raw_input={"args": (), "kwargs": arguments},
                raw_output=result.data,
                is_error=result.is_error,
            )

        def keep_output(output: ToolOutput) -> ToolOutput:
            return output

        metadata = ToolMetadata(tool.description, name=tool.name, fn_schema=tool.arguments)
        return FunctionTool(fn=run, metadata=metadata, callback=keep_output)


def _of_effective_settings(
    method: Callable[Concatenate[AgentTools, P], str],
) -> Callable[P, str]:
    """Return a method of :class:`AgentTools` for the store that the effective settings name."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> str:
        return method(_open_tools(), *args, **kwargs)

    whole = signature(method)
    parameters = [parameter for parameter in whole.parameters.values() if parameter.name != "self"]
    call.__signature__ = whole.replace(parameters=parameters)  # type: ignore[attr-defined]
    return call


search_chunks = _of_effective_settings(AgentTools.search_chunks)
query_catalog = _of_effective_settings(AgentTools.query_catalog)


def close() -> None:
    """Release every store that :func:`search_chunks` or :func:`query_catalog` opened."""
    _engines.close()


def _open_tools() -> AgentTools:
    from catalog.core.settings import get_settings

    settings = get_settings()

    def make() -> Engine:
        from catalog.interfaces.server.nearest_engine import NearestEngine

        return NearestEngine.of(settings)

    return AgentTools(_engines.get(settings.model_dump_json(), make))
