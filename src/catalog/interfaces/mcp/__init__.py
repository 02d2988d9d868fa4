"""The Model Context Protocol server: the agent tools and the documents, over stdio and HTTP."""

from __future__ import annotations

from catalog.interfaces.mcp.catalog_server import catalog_server
from catalog.interfaces.mcp.http import mcp_asgi, streamable_http_app
from catalog.interfaces.mcp.server import build_server
from catalog.interfaces.mcp.stdio import serve_stdio

__all__ = [
    "build_server",
    "catalog_server",
    "mcp_asgi",
    "serve_stdio",
    "streamable_http_app",
]
