"""One line of log, one id and one count for each request, with neither query nor document."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from typing import TYPE_CHECKING
from uuid import uuid4

from catalog.core.edges import answering_request, current_request_id
from catalog.interfaces.server.crash_log import log_bug
from catalog.interfaces.server.http_errors import send_error
from catalog.interfaces.server.readiness import Readiness
from catalog.interfaces.server.request_counts import METRICS, ServerMetrics

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

REQUEST_ID = "x-request-id"
_SAFE_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_ROUTES = (
    "/call",
    "/mcp",
    METRICS,
    "/v1/health",
    "/v1/ready",
    "/v1/search",
    "/v1/ask",
    "/v1/generate",
    "/v1/documents",
    "/v1/status",
    "/openapi.json",
)
_STOPPING = "the server is stopping and could not wait for the answer: ask again once one runs"
_LOG = logging.getLogger(__name__)


class RequestLog:
    """Log and count each request under an id: the ``X-Request-ID`` that it came with, or a new one.

    The answer bears the id, and so does every line logged on the way. One that the server's end
    cuts off is told so. A server that drains asks callers to connect anew.
    """

    def __init__(
        self,
        app: ASGIApp,
        metrics: ServerMetrics | None = None,
        readiness: Readiness | None = None,
    ) -> None:
        self._app = app
        self._metrics = metrics or ServerMetrics()
        self._readiness = readiness or Readiness()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with answering_request(_request_id(scope)) as request_id:
            await self._answer(scope, receive, send, request_id)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        started, status = time.perf_counter(), 0
        method, route = scope["method"], _route(scope["path"])
        self._metrics.begin_request()

        async def send_noting_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": self._headers(message, request_id)}
            await send(message)

        try:
            await self._app(scope, receive, send_noting_status)
        except asyncio.CancelledError:  # the grace at the end is over
            if not status:
                retry = {"retry-after": "1"}
                await send_error(send_noting_status, 503, "Stopping", _STOPPING, retry)
            raise
        except Exception as error:  # noqa: BLE001 - answered with 500 already, or cut off
            log_bug(f"{method} {route}", error)
        finally:
            seconds = time.perf_counter() - started
            self._metrics.end_request(route, method, status, seconds)
        _LOG.info("%s %s %d in %.1f ms", method, route, status, seconds * 1000)

    def _headers(self, message: Message, request_id: str) -> list[tuple[bytes, bytes]]:
        headers = [*message.get("headers", ()), (REQUEST_ID.encode(), request_id.encode())]
        if self._readiness.is_draining:
            headers.append((b"connection", b"close"))
        return headers


class RequestIdFilter(logging.Filter):
    """End each line that is logged for a request with the request's id."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the id, once, and keep the record."""
        request_id = current_request_id()
        if request_id and not hasattr(record, "request_id"):
            record.request_id = request_id
            record.msg, record.args = f"{record.getMessage()} [{request_id}]", ()
        return True


def add_request_ids() -> None:
    """Have what the process logs bear the ids of requests."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(RequestIdFilter())


def _request_id(scope: Scope) -> str:
    given = [value for name, value in scope.get("headers", ()) if name == REQUEST_ID.encode()]
    if len(given) == 1 and _SAFE_ID.fullmatch(given[0]):
        return str(given[0], "ascii")
    return uuid4().hex


def _route(path: str) -> str:
    """Return the route without what follows it, which may be anything."""
    for name in _ROUTES:
        if path == name:
            return name
        if path.startswith(f"{name}/"):
            return f"{name}/…"
    return "another address"
