"""The tools, by name. The descriptions are read by language models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from catalog.interfaces.tools.arguments import (
    CatalogArguments,
    GetArguments,
    MultiGetArguments,
    QueryArguments,
    SearchChunksArguments,
    SearchToolArguments,
    StatusArguments,
)
from catalog.interfaces.tools.base import AgentTool
from catalog.interfaces.tools.browsing import CatalogData, run_query_catalog
from catalog.interfaces.tools.documents import GetData, MultiGetData, run_get, run_multi_get
from catalog.interfaces.tools.searching import (
    SearchData,
    run_query,
    run_search,
    run_search_chunks,
    run_vsearch,
)
from catalog.interfaces.tools.status import StatusData, run_status

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
