"""Report spans of questions, searches and their stages to LlamaIndex's instrumentation.

A span handler of its dispatcher gets them together with LlamaIndex's own spans. They contain names,
times, the edge and the class of an error, but no text of a question or document.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.span import BaseSpan, active_span_id
from llama_index_instrumentation.span_handlers import BaseSpanHandler, NullSpanHandler
from pydantic import PrivateAttr

from catalog.core.errors import CatalogError, MissingExtraError
from catalog.core.retrieval_events import current_edge

if TYPE_CHECKING:
    from catalog.core.results import StageReport

_DISPATCHER = get_dispatcher("catalog")
_NO_ARGUMENTS = inspect.signature(lambda: None).bind()
_STARTING = Lock()


@contextmanager
def report_span(name: str) -> Iterator[None]:
    """Report begin and end of a block, and the class of an error."""
    if not _is_watched():
        yield
        return
    number = f"{name}-{uuid4()}"
    parent = active_span_id.get()
    token = active_span_id.set(number)
    tags = {"edge": current_edge() or "none"}
    _DISPATCHER.span_enter(number, _NO_ARGUMENTS, parent_id=parent, tags=tags)
    try:
        yield
    except BaseException as error:
        _DISPATCHER.span_drop(number, _NO_ARGUMENTS, err=_unquoted(type(error).__name__))
        raise
    else:
        _DISPATCHER.span_exit(number, _NO_ARGUMENTS)
    finally:
        with suppress(ValueError):  # a generator that ends in another thread than it began in
            active_span_id.reset(token)


def report_stage(report: StageReport) -> None:
    """Report a completed stage with its milliseconds; skipped stages are not reported."""
    if report.status == "skipped" or not _is_watched():
        return
    number = f"{report.name}-{uuid4()}"
    tags = {"status": report.status, "ms": report.ms}
    parent = active_span_id.get()
    _DISPATCHER.span_enter(number, _NO_ARGUMENTS, parent_id=parent, tags=tags)
    if report.status == "failed":
        _DISPATCHER.span_drop(number, _NO_ARGUMENTS, err=_unquoted(report.note.partition(":")[0]))
    else:
        _DISPATCHER.span_exit(number, _NO_ARGUMENTS)


def export() -> None:
    """Send spans to OpenTelemetry from now on; only the first call in a process counts.

    They go to the tracer provider that the program has set. Without one, they go to the OTLP
    endpoint in the ``OTEL_*`` variables
    (https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables). Raises
    :class:`MissingExtraError` without the packages.
    """
    with _STARTING:
        if any(isinstance(one, OtelSpanHandler) for one in _DISPATCHER.root.span_handlers):
            return
        try:
            tracer = _make_tracer()
        except ImportError as error:
            raise MissingExtraError("OpenTelemetry spans", "otel") from error
        _DISPATCHER.root.add_span_handler(OtelSpanHandler(tracer))


def _make_tracer() -> Any:
    from opentelemetry import trace
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider

    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        provider = TracerProvider(resource=Resource.create({"service.name": "catalog"}))
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        trace.set_tracer_provider(provider)
    return trace.get_tracer("catalog")


class OtelSpanHandler(BaseSpanHandler[BaseSpan]):
    """Make OpenTelemetry spans of LlamaIndex's and our spans, without arguments or results.

    LlamaIndex's own handler (llama-index-observability-otel) also records events, which contain
    whole prompts, and does not support spans that are reported after their end.
    """

    _tracer: Any = PrivateAttr()
    _spans: dict[str, Any] = PrivateAttr(default_factory=dict)

    def __init__(self, tracer: Any) -> None:
        super().__init__()
        self._tracer = tracer

    def new_span(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,
        instance: Any = None,
        parent_span_id: str | None = None,
        tags: dict[str, Any] | None = None,
        **_: Any,
    ) -> BaseSpan:
        """Begin a span; with milliseconds in its tags, it began that long ago."""
        from opentelemetry.trace import set_span_in_context

        del bound_args, instance
        tags = tags or {}
        parent = self._spans.get(parent_span_id or "")
        self._spans[id_] = self._tracer.start_span(
            id_.partition("-")[0],
            context=None if parent is None else set_span_in_context(parent),
            start_time=time.time_ns() - int(tags.get("ms", 0.0) * 1_000_000),
            attributes={
                f"catalog.{name}": tags[name] for name in ("edge", "status") if name in tags
            },
        )
        return BaseSpan(id_=id_, parent_id=parent_span_id)

    def prepare_to_exit_span(self, id_: str, *_: Any, **__: Any) -> BaseSpan | None:
        """End a span."""
        self._spans.pop(id_).end()
        return self.open_spans.get(id_)

    def prepare_to_drop_span(
        self, id_: str, *_: Any, err: BaseException | None = None, **__: Any
    ) -> BaseSpan | None:
        """End a span with the class of an error."""
        from opentelemetry.trace import Status, StatusCode

        ended = self._spans.pop(id_)
        what = str(err) if isinstance(err, _UnquotedError) else type(err).__name__
        ended.set_status(Status(StatusCode.ERROR, what))
        ended.end()
        return self.open_spans.get(id_)


class _UnquotedError(CatalogError):
    """An error without its message, because the message may quote a document."""


def _unquoted(name: str) -> _UnquotedError:
    return _UnquotedError(name)


def _is_watched() -> bool:
    """Return whether any handler takes spans."""
    handlers = (*_DISPATCHER.span_handlers, *_DISPATCHER.root.span_handlers)
    return any(not isinstance(handler, NullSpanHandler) for handler in handlers)
