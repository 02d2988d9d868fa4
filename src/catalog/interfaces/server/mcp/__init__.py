"""The Model Context Protocol server: the agent tools and the documents, over stdio and HTTP."""

from __future__ import annotations

from catalog.interfaces.server.mcp.protocol import catalog_server
from catalog.interfaces.server.mcp.transports import mcp_asgi, serve_http, serve_stdio

__all__ = [
    "catalog_server",
    "mcp_asgi",
    "serve_http",
    "serve_stdio",
]
