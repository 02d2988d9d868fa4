"""The server's reports: a log line and an id for each request, counts, readiness.

None of them contains a query or a document. Names, units and labels of the counts (Prometheus' text
format at ``/metrics``) follow https://prometheus.io/docs/practices/naming/. No label contains a
caller's text: routes, methods, verbs and stages are fixed names.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

import prometheus_client as prometheus
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.responses import Response

from catalog import __version__
from catalog.core import retrieval_events as events
from catalog.core.errors import NotReadyError
from catalog.interfaces.server.security import error_response
from catalog.interfaces.server.workers import log_bug

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from catalog.store.log_entries import LogEntry

METRICS = "/metrics"
_METHODS = ("GET", "POST", "DELETE", "HEAD", "OPTIONS")
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
REQUEST_ID = b"x-request-id"
_SAFE_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_ROUTES = (
    *("/", "/assets", "/compare", "/grade", "/login", "/logout", "/media", "/page.png"),
    *("/runs", "/report", "/sets", "/sets.jsonl", "/mcp", METRICS, "/openapi.json"),
    *("/v1/health", "/v1/ready", "/v1/search", "/v1/ask", "/v1/generate", "/v1/documents"),
    "/v1/status",
)
_STOPPING = "the server stopped before the answer was ready: ask again when one runs"
_LOG = logging.getLogger(__name__)


class ServerMetrics:
    """Count requests and their questions. Thread-safe."""

    def __init__(
        self, pending: Callable[[], int] = lambda: 0, is_ready: Callable[[], bool] = lambda: True
    ) -> None:
        self._registry = prometheus.CollectorRegistry()
        prometheus.ProcessCollector(registry=self._registry)
        counter = partial(prometheus.Counter, namespace="catalog", registry=self._registry)
        gauge = partial(prometheus.Gauge, namespace="catalog", registry=self._registry)
        self.requests = counter("requests", "Requests answered.", ("route", "method", "status"))
        histogram = partial(prometheus.Histogram, namespace="catalog", registry=self._registry)
        self.seconds = histogram("request_seconds", "How long.", ("route",), buckets=_SECONDS)
        self.running = gauge("requests_running", "Not answered yet.")
        self._questions = counter("questions", "Questions by outcome.", ("verb", "edge", "outcome"))
        self._stages = counter("stages", "Stages of questions.", ("verb", "stage", "status"))
        gauge("calls_pending", "Calls that are running or waiting.").set_function(pending)
        gauge("ready", "1 if /v1/ready says so.").set_function(lambda: float(is_ready()))
        gauge("build_info", "Always 1.", ("version",)).labels(__version__).set(1)

    def count_question(self, entry: LogEntry) -> None:
        """Count the outcome of a question and of each of its stages."""
        answered = "abstained" if entry.abstained else "answered"
        kind = "failed" if entry.retrieval_ms is None else answered
        self._questions.labels(entry.verb, entry.edge, kind).inc()
        for name, status, _ in entry.stages:
            # A section's stages are named with its heading after them.
            self._stages.labels(entry.verb, name.split(" ", 1)[0], status).inc()

    async def respond(self) -> Response:
        """Answer with all of it in the text format 0.0.4."""
        return Response(
            prometheus.generate_latest(self._registry), media_type=CONTENT_TYPE_PLAIN_0_0_4
        )


@dataclass
class Readiness:
    """The readiness of a server: from when it is warm until it begins to stop."""

    is_warm: bool = True  # loaded, or failed to load: queries raise the reason
    is_draining: bool = False  # about to stop; until then it answers

    @property
    def is_ready(self) -> bool:
        """Return whether it is warm, and not about to stop."""
        return self.is_warm and not self.is_draining

    def require(self) -> None:
        """Raise :class:`NotReadyError` unless it is ready."""
        if self.is_draining:
            raise NotReadyError("the server is stopping: send requests to another one")
        if not self.is_warm:
            raise NotReadyError("the server is warming up: try again in a moment")


@dataclass
class RequestLog:
    """Log and count each request under an id: its ``X-Request-ID``, or a new one.

    The answer and every line logged for the request have the id. A request cut off by the server's
    end gets an answer that says so. A draining server asks callers to connect again.
    """

    app: ASGIApp
    metrics: ServerMetrics = field(default_factory=ServerMetrics)
    readiness: Readiness = field(default_factory=Readiness)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        with (
            events.holding(events.REQUEST_ID, _request_id(scope)) as request_id,
            self.metrics.running.track_inprogress(),
        ):
            await self._answer(scope, receive, send, request_id)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        started, status = time.perf_counter(), 0
        method, route = scope["method"], _route(scope["path"])

        async def send_noting_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message.get("headers", ()), (REQUEST_ID, request_id.encode())]
                if self.readiness.is_draining:
                    headers.append((b"connection", b"close"))
                message = {**message, "headers": headers}
            await send(message)

        try:
            await self.app(scope, receive, send_noting_status)
        except asyncio.CancelledError:  # the grace at the end is over
            if not status:
                stopping = error_response(503, "Stopping", _STOPPING)
                await stopping(scope, receive, send_noting_status)
            raise
        except Exception as error:  # noqa: BLE001 - answered with 500 already, or cut off
            log_bug(f"{method} {route}", error)
        finally:
            seconds = time.perf_counter() - started
            known = method if method in _METHODS else "other"
            self.metrics.requests.labels(route, known, str(status)).inc()  # 0: cut off unanswered
            self.metrics.seconds.labels(route).observe(seconds)
        _LOG.info("%s %s %d in %.1f ms", method, route, status, seconds * 1000)


def end_with_request_id(record: logging.LogRecord) -> bool:
    """End a line that is logged for a request with the request's id, once, and keep the record."""
    request_id = events.REQUEST_ID.get()
    if request_id and not hasattr(record, "request_id"):
        record.request_id = request_id
        record.msg, record.args = f"{record.getMessage()} [{request_id}]", ()
    return True


def add_request_ids() -> None:
    """Add the ids of requests to the lines that the process logs."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(end_with_request_id)


def _request_id(scope: Scope) -> str:
    given = [value for name, value in scope.get("headers", ()) if name == REQUEST_ID]
    if len(given) == 1 and _SAFE_ID.fullmatch(given[0]):
        return str(given[0], "ascii")
    return uuid4().hex


def _route(path: str) -> str:
    """Return the route without its variable rest."""
    for name in _ROUTES:
        if path == name:
            return name
        if path.startswith(f"{name}/"):
            return f"{name}/…"
    return "another address"
