"""What agents call: eight read-only tools that answer in words and as data."""

from __future__ import annotations

from catalog.interfaces.tools.base import AgentTool, ToolResult
from catalog.interfaces.tools.functions import AgentTools, close, query_catalog, search_chunks
from catalog.interfaces.tools.guidance import agent_guidance
from catalog.interfaces.tools.table import AGENT_TOOLS

__all__ = [
    "AGENT_TOOLS",
    "AgentTool",
    "AgentTools",
    "ToolResult",
    "agent_guidance",
    "close",
    "query_catalog",
    "search_chunks",
]
