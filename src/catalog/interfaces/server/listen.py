"""Listen on an address until a signal, with limits on connections that wait."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from catalog.core.errors import CatalogError, ConfigError
from catalog.core.files import remedy
from catalog.interfaces.server.security import error_response

if TYPE_CHECKING:
    from types import FrameType

    from starlette.types import ASGIApp
    from uvicorn.config import Config
    from uvicorn.server import ServerState

    from catalog.interfaces.calls import Engine
    from catalog.interfaces.server.security import Address

MAX_CONNECTIONS = 512  # half of the files that a process may usually have open
_LOG = logging.getLogger(__name__)
_LATE = error_response(408, "RequestTimeout", "the rest of the request did not arrive in time").body
_LATE_ANSWER = (
    b"HTTP/1.1 408 Request Timeout\r\nContent-Type: application/json\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(_LATE), bytes(_LATE))
)
_WAITS = (h11.IDLE, h11.SEND_BODY)  # for a head, for a body
_GRACE_SECONDS = 5  # for running calls, once the server is told to end
_IDLE_CONNECTION_SECONDS = 60
_CLOSING_SECONDS = 2.0


class BoundedConnection(H11Protocol):
    """HTTP/1.1 with limits on the wait for a head and a body, and on connections of one peer.

    A late request is answered with 408, and its connection closed. If a new connection would exceed
    the limit, the one that has waited longest for its peer is closed, half-sent or idle; a request
    that is sent at once is always answered. uvicorn has neither limit.
    """

    head_seconds = 10.0
    body_seconds = 30.0
    max_waiting = MAX_CONNECTIONS // 2  # of one peer

    def __init__(
        self, config: Config, server_state: ServerState, app_state: dict[str, Any], **rest: Any
    ) -> None:
        super().__init__(config, server_state, app_state, **rest)
        self._awaited: object = None  # one of _WAITS
        self._deadline: asyncio.TimerHandle | None = None
        self._waits_since = self.loop.time()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._make_room()
        self._await(h11.IDLE)

    def connection_lost(self, exc: Exception | None) -> None:
        self._await(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._await(self.conn.their_state)

    def on_response_complete(self) -> None:
        self._waits_since = self.loop.time()
        super().on_response_complete()
        if self.conn.their_state is not h11.IDLE:  # else uvicorn's limit for idle ones holds
            self._await(self.conn.their_state)

    def _await(self, state: object) -> None:
        """Set a deadline when the wait for another state begins; keep it for the same state."""
        awaited = state if state in _WAITS else None
        if awaited is self._awaited:
            return
        self._awaited = awaited
        if self._deadline is not None:
            self._deadline.cancel()
        if awaited is not None:
            seconds = self.head_seconds if awaited is h11.IDLE else self.body_seconds
            self._deadline = self.loop.call_later(seconds, self._end_late)

    def _end_late(self) -> None:
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(_LATE_ANSWER)
        self.transport.close()

    def _make_room(self) -> None:
        others = (one for one in self.connections if isinstance(one, BoundedConnection))
        waiting = [one for one in others if one is not self and one.conn.their_state in _WAITS]
        peer = self.client and self.client[0]
        of_peer = [other for other in waiting if other.client and other.client[0] == peer]
        if len(of_peer) < self.max_waiting:
            of_peer = waiting if len(self.connections) >= MAX_CONNECTIONS else []
        if of_peer:
            oldest = min(of_peer, key=lambda other: other._waits_since)
            self.connections.discard(oldest)
            oldest.transport.abort()


def bind_socket(address: Address) -> socket.socket:
    """Return a socket that listens; raise :class:`ConfigError` if the address is not available.

    TCP is named explicitly, because asyncio would otherwise leave Nagle's algorithm on, and an
    answer in two pieces would wait 40 ms.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":  # elsewhere it lets two servers share a port
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((address.host, address.port))
        listening.listen(MAX_CONNECTIONS)
    except OSError as error:
        listening.close()
        reason = os.strerror(error.errno) if error.errno else str(error)
        told = f"cannot listen on {address.host}:{address.port} ({reason})"
        raise ConfigError(f"{told}; --http 127.0.0.1:0 takes any free port") from error
    return listening


def serve_until_signal(
    app: ASGIApp,
    listening: socket.socket,
    ready: Callable[[], None],
    drain: Callable[[], None] = lambda: None,
    seconds: float = 0.0,
) -> None:
    """Answer until SIGINT or SIGTERM; ``ready`` is called when the server answers.

    After the first signal it calls ``drain`` and goes on for some ``seconds``; a second one ends
    that. Requests that run at the end have five seconds. Raises the error of ``ready`` after
    nothing listens any more, and :class:`CatalogError` if it could not start.
    """
    config = uvicorn.Config(
        app,
        http=BoundedConnection,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="on",
        backlog=MAX_CONNECTIONS,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=_IDLE_CONNECTION_SECONDS,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    server = _Server(config, ready, drain, seconds)
    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn raises them again when it has ended
        signal.signal(number, server.handle_exit)
    server.run([listening])
    if server.failure is not None:
        raise server.failure
    if not server.started:
        raise CatalogError("the server did not start; see its log")


def end_process(engine: Engine) -> NoReturn:
    """End this process with code 0, even if an abandoned request is still running."""
    closing = threading.Thread(target=engine.close, daemon=True)
    closing.start()
    closing.join(_CLOSING_SECONDS)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # full or closed: nobody reads the rest
            stream.flush()
    os._exit(0)


class _Server(uvicorn.Server):
    """A server that reports when it listens, and does not log requests cut off at the end."""

    def __init__(
        self,
        config: uvicorn.Config,
        ready: Callable[[], None],
        drain: Callable[[], None],
        seconds: float,
    ) -> None:
        super().__init__(config)
        self._ready, self._drain, self._seconds = ready, drain, seconds
        self._drains_until: float | None = None
        self.failure: Exception | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(_tell_shortage)
        await super().startup(sockets)
        if not self.started:
            return
        try:
            self._ready()
        except Exception as error:  # noqa: BLE001 - raised again when all has ended in order
            self.failure = error
            self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._seconds > 0 and self._drains_until is None:
            self._drains_until = time.monotonic() + self._seconds
            self._drain()
        else:
            super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        if self._drains_until is not None and time.monotonic() >= self._drains_until:
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # cut streams are meant
        await super().shutdown(sockets)


def _tell_shortage(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log a lack of files or memory in a line; asyncio would add a traceback for each try."""
    error = context.get("exception")
    if "socket" in context and isinstance(error, OSError) and (fix := remedy(error.errno, Path())):
        _LOG.error("new connections wait: %s; %s", error.strerror, fix)
    else:
        loop.default_exception_handler(context)
