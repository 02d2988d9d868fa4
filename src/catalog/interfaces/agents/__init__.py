"""Tools for agents: read-only, answering in words and as data."""

from __future__ import annotations

from catalog.interfaces.agents.functions import (
    AGENT_TOOLS,
    ANSWER_TOOLS,
    LISTED_TOOLS,
    AgentTools,
    agent_guidance,
    close,
    get,
    multi_get,
    query_catalog,
    search_chunks,
)
from catalog.interfaces.agents.tool import AgentTool, ToolResult

__all__ = [
    "AGENT_TOOLS",
    "ANSWER_TOOLS",
    "LISTED_TOOLS",
    "AgentTool",
    "AgentTools",
    "ToolResult",
    "agent_guidance",
    "close",
    "get",
    "multi_get",
    "query_catalog",
    "search_chunks",
]
