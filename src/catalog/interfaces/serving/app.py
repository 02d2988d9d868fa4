"""Everything that ``catalog serve`` answers, as one ASGI app."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.routing import Route

from catalog.interfaces.mcp import catalog_server, mcp_asgi
from catalog.interfaces.serving.answers import send_refusal
from catalog.interfaces.serving.api import HEALTH, ApiState, build_api
from catalog.interfaces.serving.calling import Calls
from catalog.interfaces.serving.defects import log_bug
from catalog.interfaces.serving.security import Address, guarded
from catalog.interfaces.serving.workers import Workers

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from catalog.core.settings.models import ServeSettings
    from catalog.interfaces.operations import LocalEngine

CALL, MCP = "/call", "/mcp"
_NAMED = (CALL, MCP, HEALTH, "/v1/search", "/v1/documents", "/v1/status", "/openapi.json")
_STOPPING = "the server is stopping and could not wait for the answer: ask again once one runs"
_LOG = logging.getLogger(__name__)


def build_app(
    engine: LocalEngine,
    address: Address,
    serve: ServeSettings,
    secret: str,
    check: Callable[[], None] = lambda: None,
) -> ASGIApp:
    """``/v1`` and ``/mcp``, guarded; ``/call`` for who has the secret.

    ``check`` is called before each request's work and may refuse it with an error. Raises
    :class:`ConfigError` as ``guarded`` does.
    """
    workers = Workers(serve.max_concurrent, serve.timeout_seconds, check)
    api = build_api(
        ApiState(engine, workers, secret, serve.timeout_seconds),
        needs_token=serve.token is not None,
    )
    for_owner = serve.model_copy(update={"token": secret, "allowed_origins": ()})
    agents, running = mcp_asgi(catalog_server(engine, workers), serve)
    routes = [
        Route(CALL, endpoint=guarded(Calls(engine, workers), address, for_owner)),
        Route(MCP, endpoint=guarded(agents, address, serve)),
    ]
    others = guarded(api, address, serve, open_paths=frozenset([HEALTH]))

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        del app
        async with running:
            yield

    app = Starlette(routes=routes, lifespan=lifespan)
    app.router.default = others  # whatever the path is: no answer comes from outside the guard
    app.router.redirect_slashes = False
    return RequestLog(app)


class RequestLog:
    """One line for each request and for each defect; neither query nor document is in them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 0

        async def noted(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        what = f"{scope['method']} {_named(scope['path'])}"
        try:
            await self._app(scope, receive, noted)
        except asyncio.CancelledError:  # the grace at the end is over
            if not status:
                await send_refusal(noted, 503, "Stopping", _STOPPING, {"retry-after": "1"})
            raise
        except Exception as error:  # noqa: BLE001 - answered with 500 already, or cut off
            log_bug(what, error)
        ms = (time.perf_counter() - started) * 1000
        _LOG.info("%s %d in %.1f ms", what, status, ms)


def _named(path: str) -> str:
    """The route; what follows it may be anything."""
    for name in _NAMED:
        if path == name:
            return name
        if path.startswith(f"{name}/"):
            return f"{name}/…"
    return "another address"
