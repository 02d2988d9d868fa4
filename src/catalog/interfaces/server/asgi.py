"""The ASGI app of ``catalog serve``, and running it."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import copy_context
from dataclasses import fields
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from catalog import __version__
from catalog.core.arguments import validation_message
from catalog.core.errors import CatalogError, InputError, StoreReplacedError
from catalog.core.retrieval_events import asked_at
from catalog.interfaces.server.announcement import Announcement, announce, encode_error
from catalog.interfaces.server.crash_log import log_bug, quiet_libraries
from catalog.interfaces.server.http_api import HEALTH, NDJSON, READY, ApiState, build_api
from catalog.interfaces.server.http_errors import (
    as_json,
    error_body,
    http_status,
    json_response,
)
from catalog.interfaces.server.listen import Drain, bind_socket, serve_until_signal
from catalog.interfaces.server.mcp import catalog_server, mcp_asgi
from catalog.interfaces.server.request_log import (
    METRICS,
    Readiness,
    RequestLog,
    ServerMetrics,
    add_request_ids,
    metrics_endpoint,
)
from catalog.interfaces.server.security import Address, guard_app
from catalog.interfaces.server.workers import Workers, warm_in_background
from catalog.interfaces.terminal import Form, TerminalText, render, stream_answer

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from catalog.core.settings.sections import ServeSettings
    from catalog.interfaces.calls import LocalEngine

CALL, MCP = "/call", "/mcp"
_FORM_OPTIONS = frozenset(field.name for field in fields(Form))
_UNKNOWN_FILE = (-1, -1)


class CallBody(BaseModel):
    """A verb, its arguments, and how to word the answer; ``None``: as data.

    ``streamed``: the text of an ``ask`` as it comes.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    operation: str
    arguments: dict[str, Any]
    form: dict[str, bool | int | None] | None = None
    streamed: bool = False


def call_endpoint(engine: LocalEngine, workers: Workers) -> ASGIApp:
    """Return the app that answers this user's commands; its caller checks the secret."""

    def answer(body: CallBody) -> dict[str, Any]:
        if body.form is None:
            with asked_at("mcp"):  # of an agent's own process
                return {"data": engine.ask(body.operation, body.arguments)}
        with asked_at("cli"):
            result = engine.answer(body.operation, body.arguments)
        printed = render(body.operation, result, Form(**cast("dict[str, Any]", body.form)))
        return {"out": printed.out, "err": printed.err, "code": printed.code}

    async def respond(request: Request) -> Response:
        if request.method != "POST":
            body = error_body("MethodNotAllowed", "POST it")
            return json_response(405, body, {"Allow": "POST"})
        try:
            call = _read_call(await request.body())
            if call.streamed:
                step = _printing(engine, call)
                lines = _stream_lines(await workers.run(step), partial(workers.run, step))
                return StreamingResponse(lines, media_type=NDJSON)
            return json_response(200, await workers.run(partial(answer, call)))
        except CatalogError as error:
            return json_response(http_status(error), encode_error(error))
        except Exception as error:  # noqa: BLE001 - a defect of ours: logged, told without details
            log_bug(CALL, error)
            message = "internal error; see the server's log"
            return json_response(500, error_body("InternalError", message))

    async def endpoint(scope: Scope, receive: Receive, send: Send) -> None:
        response = await respond(Request(scope, receive))
        await response(scope, receive, send)

    return endpoint


def _printing(engine: LocalEngine, call: CallBody) -> Callable[[], str | TerminalText]:
    """Return a function that gives the output of an ``ask``, part by part, then the rest."""
    form = Form(**cast("dict[str, Any]", call.form or {}))
    parts = stream_answer(engine.answer_events(call.arguments), form)

    def following() -> str | TerminalText:
        try:
            return next(parts)
        except StopIteration as ended:
            rest: TerminalText = ended.value
            return rest

    with asked_at("cli"):
        return partial(copy_context().run, following)  # one context for all parts


async def _stream_lines(
    part: str | TerminalText, following: Callable[[], Awaitable[str | TerminalText]]
) -> AsyncIterator[bytes]:
    """Yield the parts as lines of JSON, and last the rest or an error."""
    try:
        while isinstance(part, str):
            yield as_json({"write": part}) + b"\n"
            part = await following()
        yield as_json(part._asdict()) + b"\n"
    except CatalogError as error:
        yield as_json(encode_error(error)) + b"\n"


def _read_call(body: bytes) -> CallBody:
    try:
        call = CallBody.model_validate(json.loads(body))  # unlike pydantic's, with any text in it
    except ValidationError as error:
        raise InputError(f"call: {validation_message(error, CallBody)}") from None
    except (ValueError, RecursionError):
        raise InputError("call: the body is not JSON") from None
    if not _FORM_OPTIONS.issuperset(call.form or {}):
        raise InputError(f"call: form has {', '.join(sorted(_FORM_OPTIONS))}")
    return call


def answer_head(app: ASGIApp) -> ASGIApp:
    """Return the app that answers HEAD like GET, without the body."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_head(message: Message) -> None:
            is_body = message["type"] == "http.response.body"
            await send({**message, "body": b""} if is_body else message)

        if scope["type"] == "http" and scope["method"] == "HEAD":
            await app({**scope, "method": "GET"}, receive, send_head)
        else:
            await app(scope, receive, send)

    return answer


def build_app(
    engine: LocalEngine,
    address: Address,
    serve: ServeSettings,
    secret: str,
    check: Callable[[], None] = lambda: None,
    *,
    with_answers: bool = False,
    readiness: Readiness | None = None,
    page: Mapping[str, Any] | None = MappingProxyType({}),
) -> ASGIApp:
    """Return the app: ``/v1``, ``/mcp``, ``/metrics``, the page at ``/``, ``/call`` for the secret.

    Agents have the tool ``ask`` as well ``with_answers``. Without a ``readiness`` it is ready.
    ``page`` has the options of ``page_routes``; ``None``: without a page.
    ``check`` is called before each request's work and may refuse it with an error. Raises
    :class:`ConfigError` as ``guard_app`` does.
    """
    workers = Workers(serve.max_concurrent, serve.timeout_seconds, check)
    readiness = readiness or Readiness()
    metrics = ServerMetrics()
    metrics.watch(lambda: workers.pending, lambda: readiness.is_ready)
    engine.observe(metrics.count_question)
    api = build_api(
        ApiState(engine, workers, secret, serve.timeout_seconds, readiness),
        needs_token=bool(serve.tokens()),
    )
    alone = {"token": secret, "role_tokens": (), "allowed_origins": ()}
    for_owner = serve.model_copy(update=alone)
    server = catalog_server(engine, workers, with_answers=with_answers, roles=serve.roles())
    mcp, running = mcp_asgi(server, serve)

    routes: list[BaseRoute] = [
        Route(CALL, endpoint=guard_app(call_endpoint(engine, workers), address, for_owner)),
        Route(MCP, endpoint=guard_app(mcp, address, serve)),
        Route(METRICS, endpoint=guard_app(answer_head(metrics_endpoint(metrics)), address, serve)),
    ]
    if page is not None:
        from catalog.interfaces.server.page.site import page_routes

        routes += page_routes(engine, workers, address, serve, **page)
    app = Starlette(routes=routes, lifespan=lambda _: running)
    # Whatever the path is: no answer comes from outside the guard.
    open_paths = frozenset([HEALTH, READY])
    app.router.default = guard_app(answer_head(api), address, serve, open_paths=open_paths)
    app.router.redirect_slashes = False
    return RequestLog(app, metrics, readiness)


def store_unchanged_check(store: Path) -> Callable[[], None]:
    """Return a fast check that the path still leads to the same file.

    After a change the server still has the old file open, to which its indexes belong. Then the
    check raises :class:`StoreReplacedError`. A file that cannot be examined counts as unchanged.
    """
    before = _file_identity(store)

    def check() -> None:
        if _file_identity(store) not in (before, _UNKNOWN_FILE):
            raise StoreReplacedError(
                f"{store} was deleted or replaced since this server opened it; start the server "
                "again"
            )

    return check


def _file_identity(path: Path) -> tuple[int, int] | None:
    """Return device and number of the file; ``None`` if it does not exist."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return _UNKNOWN_FILE
    return status.st_dev, status.st_ino


def serve(
    engine: LocalEngine,
    address: Address,
    home: Path,
    key: str,
    *,
    page: Mapping[str, Any] | None = MappingProxyType({}),
    opens: Callable[[str], object] = lambda _: None,
) -> None:
    """Answer on the address until SIGINT or SIGTERM; the caller closes the engine.

    Port 0 means any free one. The address is printed on standard output when the server listens,
    and ``opens`` is called with it.
    Raises :class:`ConfigError` if the address is not available, if other machines could connect and
    no token is set, or if the store has a server already.
    """
    with announce(home) as publish, bind_socket(address) as listening:
        host, port = listening.getsockname()[:2]
        secret, bound = secrets.token_hex(32), Address(address.host, port)
        check = store_unchanged_check(engine.library.database.file)
        settings = engine.library.settings
        readiness = Readiness(is_warm=False)
        app = build_app(
            engine,
            bound,
            settings.serve,
            secret,
            check,
            with_answers=settings.answers.tool,
            readiness=readiness,
            page=page,
        )

        def ready() -> None:
            reachable = Address(host, port).reachable_host
            publish(Announcement(os.getpid(), reachable, port, secret, key, __version__))
            offers = "the page, /v1, /mcp" if page is not None else "/v1, /mcp"
            with suppress(OSError):  # a full or closed standard output is no reason not to serve
                print(f"serving {home} on {bound.url} ({offers}); stop with Ctrl-C", flush=True)
            opens(bound.url)

        quiet_libraries()
        add_request_ids()
        warm_in_background(engine, readiness.note_warm)
        drain = Drain(settings.serve.drain_seconds, readiness.drain)
        serve_until_signal(app, listening, ready, drain)
