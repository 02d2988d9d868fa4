"""The Model Context Protocol server: the agent tools and the documents, over stdio and HTTP."""

from __future__ import annotations

from catalog.interfaces.server.mcp.http import mcp_asgi, streamable_http_app
from catalog.interfaces.server.mcp.server import build_server, catalog_server
from catalog.interfaces.server.mcp.stdio import serve_stdio

__all__ = [
    "build_server",
    "catalog_server",
    "mcp_asgi",
    "serve_stdio",
    "streamable_http_app",
]
