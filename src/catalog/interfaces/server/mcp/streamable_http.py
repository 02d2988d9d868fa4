"""The protocol over streamable HTTP, guarded as every address of ours."""

from __future__ import annotations

import json
import sys
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, NoReturn

from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from catalog import __version__
from catalog.interfaces.server.listen import bind_socket, end_process, serve_until_signal
from catalog.interfaces.server.mcp.stdio import no_id_error
from catalog.interfaces.server.security import Address, guard_app

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from catalog.core.settings.sections import ServeSettings
    from catalog.interfaces.calls import Engine
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
    endpoint = _RequestsWithId(StreamableHTTPASGIApp(manager), serve.max_body_bytes)
    return endpoint, manager.run()


class _RequestsWithId:
    """The app behind an error for requests whose id is null, or no id at all.

    The SDK takes them for notifications, and whoever sent one waits for ever. A body of more than
    ``most`` bytes is left to the app, which refuses it.
    """

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app, self._most = app, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        messages: list[Message] = []
        if scope["type"] == "http" and scope["method"] == "POST":
            body, is_whole = b"", False
            while not is_whole and len(body) <= self._most:
                messages.append(await receive())
                body += messages[-1].get("body", b"")
                is_whole = not messages[-1].get("more_body", False)
            if is_whole and _has_no_id(body):
                error = no_id_error().model_dump(mode="json", by_alias=True, exclude_none=True)
                await JSONResponse({**error, "id": None}, 400)(scope, receive, send)
                return

        async def replay() -> Message:
            return messages.pop(0) if messages else await receive()

        await self._app(scope, replay, send)


def _has_no_id(body: bytes) -> bool:
    """Return whether the body is a request, and no notification, without a text or number as id."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return False
    if not isinstance(content, dict) or not isinstance(content.get("method"), str):
        return False
    has_id = isinstance(content.get("id"), str) or type(content.get("id")) is int
    return not has_id and not content["method"].startswith("notifications/")


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
