"""What a server counts of itself, in Prometheus' text format at ``/metrics``.

Names, units and labels follow https://prometheus.io/docs/practices/naming/. No label holds what a
caller wrote: routes, methods, verbs and stages are those that exist.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.requests import Request
from starlette.responses import Response

from catalog import __version__
from catalog.interfaces.server.http_errors import error_body, json_response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from catalog.library.logs import Outcome

METRICS = "/metrics"
_METHODS = ("GET", "POST", "DELETE", "HEAD", "OPTIONS")
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class ServerMetrics:
    """Count requests, and the questions that they ask. Thread-safe."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._requests = Counter(
            "catalog_requests",
            "Requests answered.",
            ("route", "method", "status"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "catalog_request_seconds",
            "How long.",
            ("route",),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._running = Gauge(
            "catalog_requests_running", "Not answered yet.", registry=self._registry
        )
        self._questions = Counter(
            "catalog_questions",
            "Questions by how they went.",
            ("verb", "edge", "outcome"),
            registry=self._registry,
        )
        self._stages = Counter(
            "catalog_stages",
            "Stages of questions.",
            ("verb", "stage", "status"),
            registry=self._registry,
        )
        self._pending = Gauge(
            "catalog_calls_pending", "Calls that run or wait.", registry=self._registry
        )
        self._ready = Gauge("catalog_ready", "1: /v1/ready says so.", registry=self._registry)
        Gauge("catalog_build_info", "Always 1.", ("version",), registry=self._registry).labels(
            __version__
        ).set(1)

    def watch(self, pending: Callable[[], int], is_ready: Callable[[], bool]) -> None:
        """Take from these how many calls are pending, and whether the server is ready."""
        self._pending.set_function(pending)
        self._ready.set_function(lambda: float(is_ready()))

    def begin_request(self) -> None:
        """Count a request that runs."""
        self._running.inc()

    def end_request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request that ended; ``status`` 0 for one that was cut off unanswered."""
        self._running.dec()
        method = method if method in _METHODS else "other"
        self._requests.labels(route, method, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def count_question(self, outcome: Outcome) -> None:
        """Count how a question went and how each of its stages did."""
        self._questions.labels(outcome.verb, outcome.edge, outcome.kind).inc()
        for name, status in outcome.stages:
            # A section's stages are named with its heading after them.
            self._stages.labels(outcome.verb, name.split(" ", 1)[0], status).inc()

    def to_text(self) -> bytes:
        """Return all of it in the text format 0.0.4."""
        return generate_latest(self._registry)


def metrics_endpoint(metrics: ServerMetrics) -> ASGIApp:
    """Return the app that gives the metrics; whoever mounts it checks the token."""

    async def endpoint(scope: Scope, receive: Receive, send: Send) -> None:
        if Request(scope).method != "GET":
            body = error_body("MethodNotAllowed", "this address takes GET")
            await json_response(405, body, {"Allow": "GET"})(scope, receive, send)
            return
        answer = Response(metrics.to_text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)
        await answer(scope, receive, send)

    return endpoint
