"""The tools by name, as plain functions, and as tools of LlamaIndex agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from catalog.core.open_services import OpenServices
from catalog.core.params import Sort
from catalog.interfaces.agents.arguments import (
    CatalogArguments,
    GetArguments,
    MultiGetArguments,
    QueryArguments,
    SearchChunksArguments,
    SearchToolArguments,
    StatusArguments,
)
from catalog.interfaces.agents.catalog_tool import CatalogData, run_query_catalog
from catalog.interfaces.agents.document_tools import (
    GetData,
    MultiGetData,
    StatusData,
    run_get,
    run_multi_get,
    run_status,
)
from catalog.interfaces.agents.quoting import one_line
from catalog.interfaces.agents.search_tools import (
    SearchData,
    run_query,
    run_search,
    run_search_chunks,
    run_vsearch,
)
from catalog.interfaces.agents.tool import AgentTool, ToolResult, without_nones

if TYPE_CHECKING:
    from llama_index.core.tools import FunctionTool, ToolOutput

    from catalog.interfaces.engine import Engine


_LISTED: tuple[AgentTool[Any], ...] = (
    AgentTool(
        "search_chunks",
        "Search the content of documents",
        "Find passages that answer a question about what documents say (what, how, why, when). "
        "Returns numbered passages, each with its document, its lines, page or times, and a "
        "reference for get.",
        SearchChunksArguments,
        SearchData,
        run_search_chunks,
    ),
    AgentTool(
        "query_catalog",
        "List the documents there are",
        "Discover which files exist: list, count or filter documents by type, name, tag or date, "
        "sort them by date or size. Returns titles, summaries, sizes and dates, not what the "
        "documents say.",
        CatalogArguments,
        CatalogData,
        run_query_catalog,
    ),
    AgentTool(
        "search",
        "Search by words",
        "Find passages that hold these very words (BM25): names, codes, error messages, quotes. "
        "Returns numbered, cited passages.",
        SearchToolArguments,
        SearchData,
        run_search,
    ),
    AgentTool(
        "vsearch",
        "Search by meaning",
        "Find passages that mean the same in other words (embeddings). Returns numbered, cited "
        "passages; some are always found, so read whether they answer.",
        SearchToolArguments,
        SearchData,
        run_vsearch,
    ),
    AgentTool(
        "query",
        "Search thoroughly",
        "Find passages by words and meaning together, the best ones reread by a second model: the "
        "best order, and the slowest. Returns numbered, cited passages.",
        QueryArguments,
        SearchData,
        run_query,
    ),
    AgentTool(
        "get",
        "Read a document",
        "Read a document or some of its lines, by a reference that a search gave, a path or a "
        "#docid. To read around a passage that was found give its reference with line_start and "
        "line_end of your own.",
        GetArguments,
        GetData,
        run_get,
    ),
    AgentTool(
        "multi_get",
        "Read several documents",
        "Read several documents at once, by a glob or a list of paths and #docids. Those that do "
        "not fit are named, not given.",
        MultiGetArguments,
        MultiGetData,
        run_multi_get,
    ),
    AgentTool(
        "status",
        "What the store holds",
        "Tell which datasets there are, and how many documents and passages each holds.",
        StatusArguments,
        StatusData,
        run_status,
    ),
)
AGENT_TOOLS: Mapping[str, AgentTool[Any]] = {tool.name: tool for tool in _LISTED}


_engines: OpenServices[Engine] = OpenServices()


class AgentTools:
    """What agents call, answered by one engine, which stays the caller's to close."""

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
        """Numbered, cited passages that answer a question about what documents say."""
        arguments = {
            "query": query,
            "top_k": top_k,
            "file_type_filter": file_type_filter,
            "doc_name_filter": doc_name_filter,
            "dataset": dataset,
        }
        return self.call("search_chunks", without_nones(arguments)).text

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
        """The documents there are: by type, name, tags, date (``YYYY-MM-DD``) or words."""
        arguments = {
            "query": query,
            "file_type": file_type,
            "name": name,
            "tags": tags if isinstance(tags, str) else list(tags or ()) or None,
            "after": after,
            "before": before,
            "sort": sort,
            "limit": limit,
            "offset": offset,
            "dataset": dataset,
        }
        return self.call("query_catalog", without_nones(arguments)).text

    def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """The answer of the tool of that name; an unknown name is an answer that lists them."""
        tool = AGENT_TOOLS.get(name)
        if tool is not None:
            return tool.call(self._engine, arguments)
        message = f"there is no tool {one_line(repr(name), 60)}; tools: {', '.join(AGENT_TOOLS)}"
        return ToolResult(f"error: {message}", {"status": "error", "message": message})

    def function_tools(
        self, names: Sequence[str] = ("search_chunks", "query_catalog")
    ) -> list[FunctionTool]:
        """LlamaIndex tools of those names; raises ``KeyError`` for a name that is none.

        An output's content is the text, its ``raw_output`` the data, and it says whether it is an
        error. Called with keywords; async calls run in a thread.
        """
        return [self._function_tool(AGENT_TOOLS[name]) for name in names]

    def _function_tool(self, tool: AgentTool[Any]) -> FunctionTool:
        from llama_index.core.tools import FunctionTool, ToolMetadata, ToolOutput

        def run(**arguments: Any) -> ToolOutput:
            found = tool.call(self._engine, arguments)
            return ToolOutput(
                content=found.text,
                tool_name=tool.name,
                raw_input={"args": (), "kwargs": arguments},
                raw_output=found.data,
                is_error=found.is_error,
            )

        about = ToolMetadata(tool.description, name=tool.name, fn_schema=tool.arguments)
        return FunctionTool(fn=run, metadata=about, callback=_as_it_is)


def _as_it_is(output: ToolOutput) -> ToolOutput:
    return output


def search_chunks(
    query: str,
    top_k: int = 10,
    file_type_filter: str | None = None,
    doc_name_filter: str | None = None,
    dataset: str | None = None,
) -> str:
    """:meth:`AgentTools.search_chunks` of the store that the effective settings name."""
    return _opened().search_chunks(query, top_k, file_type_filter, doc_name_filter, dataset)


def query_catalog(
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
    """:meth:`AgentTools.query_catalog` of the store that the effective settings name."""
    return _opened().query_catalog(
        query, file_type, name, tags, after, before, sort, limit, offset, dataset
    )


def close() -> None:
    """Release every store that :func:`search_chunks` or :func:`query_catalog` opened."""
    _engines.close()


def _opened() -> AgentTools:
    from catalog.core.settings import get_settings

    settings = get_settings()

    def make() -> Engine:
        from catalog.interfaces.server.nearest_engine import NearestEngine

        return NearestEngine.of(settings)

    return AgentTools(_engines.get(settings.model_dump_json(), make))
