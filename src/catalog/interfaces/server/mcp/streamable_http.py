"""The protocol over streamable HTTP, guarded as every address of ours."""

from __future__ import annotations

import sys
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, NoReturn

from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from catalog import __version__
from catalog.interfaces.server.listen import bind_socket, end_process, serve_until_signal
from catalog.interfaces.server.security import Address, guard_app

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from catalog.core.settings.sections import ServeSettings
    from catalog.interfaces.engine import Engine
    from catalog.interfaces.server.workers import Workers


PATH, HEALTH = "/mcp", "/health"
MAX_SESSIONS = 256
SESSION_IDLE_SECONDS = 600.0


def mcp_asgi(
    server: Server[Workers], serve: ServeSettings
) -> tuple[ASGIApp, AbstractAsyncContextManager[None]]:
    """Return the endpoint, and the context in which it answers: a pair to use once.

    It is not guarded. At most 256 sessions are open; one without a request for ten minutes ends.
    """
    manager = StreamableHTTPSessionManager(
        server,
        max_request_body_size=serve.max_body_bytes,
        session_idle_timeout=SESSION_IDLE_SECONDS,
        max_sessions=MAX_SESSIONS,
    )
    return StreamableHTTPASGIApp(manager), manager.run()


def streamable_http_app(server: Server[Workers], address: Address, serve: ServeSettings) -> ASGIApp:
    """Return ``/mcp``, guarded, and ``GET /health``, which tells whoever asks that it runs.

    Raises :class:`ConfigError` for an address others can reach when there is no token.
    """
    endpoint, running = mcp_asgi(server, serve)

    routes = [Route(PATH, endpoint=endpoint), Route(HEALTH, endpoint=_health, methods=["GET"])]
    app = Starlette(routes=routes, lifespan=lambda _: running)
    return guard_app(app, address, serve, open_paths=frozenset((HEALTH,)))


async def _health(request: Request) -> JSONResponse:
    del request
    return JSONResponse({"status": "ok", "name": "catalog", "version": __version__})


def serve_http(
    server: Server[Workers], engine: Engine, address: Address, serve: ServeSettings
) -> NoReturn:
    """Answer on the address until SIGINT or SIGTERM, then end this process with code 0.

    Port 0 is any free one; the URL is told on standard error. Raises :class:`ConfigError` when the
    address cannot be had.
    """
    app = streamable_http_app(server, address, serve)
    with bind_socket(address) as listening:
        url = Address(address.host, listening.getsockname()[1]).url

        def ready() -> None:
            print(f"MCP on {url}{PATH}; stop with Ctrl-C", file=sys.stderr, flush=True)

        serve_until_signal(app, listening, ready)
    end_process(engine)
