"""The ASGI app of ``catalog serve``, and running it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from contextvars import copy_context
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.routing import Route

from catalog.core.errors import CatalogError, ConfigError, StoreReplacedError
from catalog.core.retrieval_events import asked_at
from catalog.interfaces.home_socket import Greeting, encode_error, listening, server_of
from catalog.interfaces.mcp import PATH, catalog_server, mcp_asgi
from catalog.interfaces.server.http import HEALTH, READY, ApiState, build_api
from catalog.interfaces.server.listen import bind_socket, serve_until_signal
from catalog.interfaces.server.request_log import (
    METRICS,
    Readiness,
    RequestLog,
    ServerMetrics,
    add_request_ids,
)
from catalog.interfaces.server.security import Address, guard_app
from catalog.interfaces.server.workers import Workers, log_bug, warm_in_background
from catalog.interfaces.terminal import Form, render, stream_answer

if TYPE_CHECKING:
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from catalog.core.settings.sections import ServeSettings
    from catalog.interfaces.calls import LocalEngine


def answer_calls(
    engine: LocalEngine, workers: Workers
) -> Callable[[dict[str, Any]], Iterator[dict[str, Any]]]:
    """Return the function that answers the calls of this user's own processes."""

    def answer(call: dict[str, Any]) -> dict[str, Any]:
        verb, arguments, form = call["verb"], call["arguments"], call["form"]
        if form is None:
            with asked_at("mcp"):  # of an agent's own process
                return {"data": engine.ask(verb, arguments)}
        with asked_at("cli"):
            result = engine.answer(verb, arguments)
        return render(verb, result, Form(**form))._asdict()

    def messages(call: dict[str, Any]) -> Iterator[dict[str, Any]]:
        try:
            if not call.get("streamed"):
                yield workers.call(partial(answer, call))
                return
            parts = stream_answer(engine.answer_events(call["arguments"]), Form(**call["form"]))
            with asked_at("cli"):
                step = partial(copy_context().run, next, parts)  # one context for all parts
            while isinstance(part := workers.call(step), str):
                yield {"write": part}
            yield part._asdict()
        except CatalogError as error:
            yield encode_error(error)
        except Exception as error:  # noqa: BLE001 - a defect of ours: logged, told without details
            log_bug("a command", error)
            message = "internal error; see the server's log"
            yield {"error": {"kind": "InternalError", "message": message}}

    return messages


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
    workers: Workers | None = None,
    *,
    with_answers: bool = False,
    readiness: Readiness | None = None,
    page: Mapping[str, Any] | None = MappingProxyType({}),
) -> ASGIApp:
    """Return the app: ``/v1``, ``/mcp``, ``/metrics``, the page at ``/``.

    Agents have the tool ``ask`` as well ``with_answers``. Without a ``readiness`` it is ready.
    ``page`` has the options of ``page_routes``; ``None``: without a page.
    Raises :class:`ConfigError` as ``guard_app`` does.
    """
    workers = workers or Workers(serve.max_concurrent, serve.timeout_seconds)
    readiness = readiness or Readiness()
    metrics = ServerMetrics(lambda: workers.pending, lambda: readiness.is_ready)
    engine.observe(metrics.count_question)
    api = build_api(
        ApiState(engine, workers, serve.timeout_seconds, readiness),
        needs_token=bool(serve.tokens()),
    )
    api.add_api_route(METRICS, metrics.respond, include_in_schema=False, response_model=None)
    server = catalog_server(engine, workers, with_answers=with_answers, roles=serve.roles())
    mcp, running = mcp_asgi(server, serve)

    routes: list[BaseRoute] = [Route(PATH, endpoint=guard_app(mcp, address, serve))]
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

    def identity() -> tuple[int, int] | None:
        with suppress(FileNotFoundError, NotADirectoryError):
            status = store.stat()
            return status.st_dev, status.st_ino
        return None

    def check() -> None:
        with suppress(OSError):
            if identity() != before:
                told = f"{store} was deleted or replaced since this server opened it"
                raise StoreReplacedError(f"{told}; start the server again")

    before = identity()
    return check


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
    if other := server_of(home):
        process = f"process {other.pid} on port {other.port}"
        raise ConfigError(f"{process} serves {home} already: use it, or stop it first")
    limits = engine.library.settings.serve
    check = store_unchanged_check(engine.library.database.file)
    workers = Workers(limits.max_concurrent, limits.timeout_seconds, check)
    with ExitStack() as stack:
        listened = stack.enter_context(bind_socket(address))
        bound = Address(address.host, listened.getsockname()[1])
        greeting = Greeting(os.getpid(), bound.port, key, limits.timeout_seconds)
        readiness = Readiness(is_warm=False)
        app = build_app(
            engine,
            bound,
            limits,
            workers,
            with_answers=engine.library.settings.answers.tool,
            readiness=readiness,
            page=page,
        )

        def ready() -> None:
            stack.enter_context(listening(home, greeting, answer_calls(engine, workers)))
            warm_in_background(engine, partial(setattr, readiness, "is_warm", True))
            offers = "the page, /v1, /mcp" if page is not None else "/v1, /mcp"
            with suppress(OSError):  # a full or closed standard output is no reason not to serve
                print(f"serving {home} on {bound.url} ({offers}); stop with Ctrl-C", flush=True)
            opens(bound.url)

        add_request_ids()
        drain = partial(setattr, readiness, "is_draining", True)
        serve_until_signal(app, listened, ready, drain, limits.drain_seconds)
