"""The protocol over standard input and output, which carry nothing else, and over guarded HTTP.

The SDK silently ignores lines that are no message of the protocol, and their sender waits for ever.
Here they are repaired, or answered with an error.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, redirect_stdout, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import anyio
import anyio.to_thread
import mcp_types as types
from anyio import BrokenResourceError, ClosedResourceError
from mcp.server.runner import serve_dual_era_loop
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.shared.message import SessionMessage
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from catalog import __version__
from catalog.core.errors import CatalogError
from catalog.core.text import all_storable
from catalog.interfaces.plain_text import complaint
from catalog.interfaces.server.listen import bind_socket, end_process, serve_until_signal
from catalog.interfaces.server.security import Address, guard_app

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectSendStream
    from mcp.server.lowlevel import Server
    from mcp.shared._stream_protocols import ReadStream, WriteStream
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from catalog.core.settings.sections import ServeSettings
    from catalog.interfaces.calls import Engine
    from catalog.interfaces.server.workers import Workers


Item = SessionMessage | Exception
PATH, HEALTH = "/mcp", "/health"
MAX_SESSIONS = 256
SESSION_IDLE_SECONDS = 600.0


class _NoIdError(Exception):
    """A request without a valid id."""


def serve_stdio(engine: Engine, make: Callable[[Engine], Server[Workers]]) -> NoReturn:
    """Answer until the input ends or SIGINT or SIGTERM arrives, then end this process with code 0.

    The server is made after standard output is reserved for the protocol; whatever prints from then
    on goes to standard error. When the input ends, the engine is closed. If calls are still
    running, they are abandoned instead, which does not harm the store. An error while the server is
    made ends the process with code 1.
    """
    busy = True
    try:
        busy = anyio.run(partial(_serve, engine, make))
    except* (BrokenPipeError, ConnectionResetError):
        pass  # the client is gone: nobody to answer
    with suppress(CatalogError, OSError):
        os.dup2(2, 1)  # text printed at the end is not protocol either
        if not busy:
            engine.close()
    _leave()


async def _serve(engine: Engine, make: Callable[[Engine], Server[Workers]]) -> bool:
    """Answer; return whether calls are still running when the input has ended."""
    async with stdio_server() as (read, write), anyio.create_task_group() as tasks:
        with _print_to_stderr():
            tasks.start_soon(_end_at_signal)
            try:
                server = await anyio.to_thread.run_sync(make, engine)
            except Exception as error:  # noqa: BLE001 - told, and the process ends
                _give_up(error)
            good, repaired = anyio.create_memory_object_stream[Item](0)
            tasks.start_soon(_repair_messages, read, write, good)
            async with server.lifespan(server) as workers:
                options = server.create_initialization_options()
                await serve_dual_era_loop(
                    server, repaired, write, lifespan_state=workers, init_options=options
                )
            tasks.cancel_scope.cancel()
    return workers.pending > 0


async def _end_at_signal() -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            # No joining the thread that waits for the next line of input.
            _leave()


@contextmanager
def _print_to_stderr() -> Iterator[None]:
    """Send ``print`` to standard error, so that nothing is left to be written at the end."""
    sys.stdout.flush()
    with redirect_stdout(sys.stderr):
        yield


def _give_up(error: Exception) -> NoReturn:
    """End the process with code 1, after printing the error.

    Raising would wait for the thread that waits for the next line of input.
    """
    if isinstance(error, CatalogError):
        print(complaint(str(error)), file=sys.stderr)
    else:
        traceback.print_exception(error)
    _leave(1)


def _leave(code: int = 0) -> NoReturn:
    """End the process at once, regardless of threads and of buffered output of libraries."""
    with suppress(OSError):
        sys.stderr.flush()
    os._exit(code)


async def _repair_messages(
    read: ReadStream[Item], write: WriteStream[SessionMessage], good: MemoryObjectSendStream[Item]
) -> None:
    """Pass on readable messages; answer the rest with an error, with their id if they have one.

    A text with half a surrogate pair, which JavaScript writes and UTF-8 lacks, is passed on with
    U+FFFD instead. A request whose id is neither text nor a whole number arrives as a notification
    with a method that notifications do not have.
    """
    async with good:
        async for item in read:
            message = _repair_message(item) if isinstance(item, Exception) else item
            if message is not None and _lost_its_id(message):
                message, item = None, _NoIdError()
            try:
                if message is not None:
                    await good.send(message)
                elif isinstance(item, Exception):
                    await write.send(SessionMessage(_invalid_message_error(item)))
            except (BrokenResourceError, ClosedResourceError):
                return


def _lost_its_id(message: SessionMessage) -> bool:
    """Return whether this is a request whose id the SDK dropped."""
    content = message.message
    return isinstance(content, types.JSONRPCNotification) and not content.method.startswith(
        "notifications/"
    )


def _repair_message(error: Exception) -> SessionMessage | None:
    """Return the intended message, if only its text was invalid."""
    content = _content(error)
    if not isinstance(content, dict):
        return None
    try:
        return SessionMessage(
            types.jsonrpc_message_adapter.validate_python(all_storable(content), by_name=False)
        )
    except ValidationError:
        return None


def _invalid_message_error(error: Exception) -> types.JSONRPCError:
    """Return JSON-RPC's error for a line that is not JSON, or not a request."""
    content = _content(error)
    if isinstance(error, _NoIdError):
        return no_id_error()
    if content is None:
        problem = types.ErrorData(code=types.PARSE_ERROR, message="this line is not JSON")
        return types.JSONRPCError(jsonrpc="2.0", id=None, error=problem)
    value = content.get("id") if isinstance(content, dict) else None
    message_id = value if isinstance(value, str) or type(value) is int else None
    return no_id_error().model_copy(update={"id": message_id})


def no_id_error() -> types.JSONRPCError:
    """Return the error of JSON-RPC for an invalid request, such as one without an id."""
    message = "this is not a JSON-RPC 2.0 message: one object with jsonrpc, id, method and params"
    problem = types.ErrorData(code=types.INVALID_REQUEST, message=message)
    return types.JSONRPCError(jsonrpc="2.0", id=None, error=problem)


def _content(error: Exception) -> Any:
    """Return the line's value if it is in the SDK's error; ``None`` if it was not JSON."""
    if not isinstance(error, ValidationError):
        return None
    inputs = [problem["input"] for problem in error.errors() if _tells_whole_line(problem)]
    for value in sorted(inputs, key=lambda value: not isinstance(value, dict)):
        if not isinstance(value, str | bytes):
            return value
        try:
            return json.loads(value.lstrip("\ufeff") if isinstance(value, str) else value)
        except (ValueError, RecursionError):
            continue
    return None


def _tells_whole_line(problem: Mapping[str, Any]) -> bool:
    """Return whether its input is the whole line, or the whole object in it."""
    return problem["type"] in ("json_invalid", "missing", "model_type", "dict_type") or (
        isinstance(problem["input"], dict) and "method" in problem["input"]
    )


def mcp_asgi(
    server: Server[Workers], serve: ServeSettings
) -> tuple[ASGIApp, AbstractAsyncContextManager[None]]:
    """Return the endpoint, and the context in which it answers: a pair for one use.

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
    """The app behind an error for requests whose id is null or missing.

    The SDK takes them for notifications, and their sender waits for ever. A body of more than
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
    """Return whether the body is a request (not a notification) without a text or number as id."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return False
    if not isinstance(content, dict) or not isinstance(content.get("method"), str):
        return False
    has_id = isinstance(content.get("id"), str) or type(content.get("id")) is int
    return not has_id and not content["method"].startswith("notifications/")


def streamable_http_app(server: Server[Workers], address: Address, serve: ServeSettings) -> ASGIApp:
    """Return ``/mcp``, guarded, and ``GET /health``, which answers anyone.

    Raises :class:`ConfigError` without a token for an address that other machines can reach.
    """
    endpoint, running = mcp_asgi(server, serve)

    routes = [Route(PATH, endpoint=endpoint), Route(HEALTH, endpoint=_health, methods=["GET"])]
    app = Starlette(routes=routes, lifespan=lambda _: running)
    return guard_app(app, address, serve, open_paths=frozenset((HEALTH,)))


async def _health(_: Request) -> JSONResponse:
    return JSONResponse({"status": "ok", "name": "catalog", "version": __version__})


def serve_http(
    server: Server[Workers], engine: Engine, address: Address, serve: ServeSettings
) -> NoReturn:
    """Answer on the address until SIGINT or SIGTERM, then end this process with code 0.

    Port 0 means any free one; the URL is printed on standard error. Raises :class:`ConfigError` if
    the address is not available.
    """
    app = streamable_http_app(server, address, serve)
    with bind_socket(address) as listening:
        url = Address(address.host, listening.getsockname()[1]).url

        def ready() -> None:
            print(f"MCP on {url}{PATH}; stop with Ctrl-C", file=sys.stderr, flush=True)

        serve_until_signal(app, listening, ready)
    end_process(engine)
