"""Connections that wait for their peer: for how long, and how many."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from catalog.interfaces.server.http_errors import as_json, error_body

if TYPE_CHECKING:
    from uvicorn.config import Config
    from uvicorn.server import ServerState

MAX_CONNECTIONS = 512
_LATE = as_json(error_body("RequestTimeout", "the rest of the request did not come in time"))
_LATE_ANSWER = (
    b"HTTP/1.1 408 Request Timeout\r\nContent-Type: application/json\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(_LATE), _LATE)
)


class BoundedConnection(H11Protocol):
    """HTTP/1.1 that waits only so long for a head and a body, and for only so many of one peer.

    A request that is late is answered with 408, and its connection closed. Where another connection
    would be too many, that which waits for its peer longest is closed for it, half-sent or idle:
    whoever sends a whole request at once is answered. uvicorn bounds neither.
    """

    head_seconds = 10.0
    body_seconds = 30.0
    max_waiting = MAX_CONNECTIONS // 2  # of one peer

    def __init__(
        self, config: Config, server_state: ServerState, app_state: dict[str, Any], **rest: Any
    ) -> None:
        super().__init__(config, server_state, app_state, **rest)
        self._awaited: object = None  # h11.IDLE: a head, h11.SEND_BODY: a body
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
        """Set a deadline for what has begun to be awaited; one for the same stays as it is."""
        awaited = state if state in (h11.IDLE, h11.SEND_BODY) else None
        if awaited is self._awaited:
            return
        self._awaited = awaited
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if awaited is not None:
            seconds = self.head_seconds if awaited is h11.IDLE else self.body_seconds
            self._deadline = self.loop.call_later(seconds, self._end_late)

    def _end_late(self) -> None:
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(_LATE_ANSWER)
        self.transport.close()

    @property
    def _is_waiting(self) -> bool:
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    def _make_room(self) -> None:
        waiting = [
            other
            for other in self.connections
            if isinstance(other, BoundedConnection) and other is not self and other._is_waiting
        ]
        peer = self.client and self.client[0]
        of_peer = [other for other in waiting if other.client and other.client[0] == peer]
        if len(of_peer) < self.max_waiting:
            of_peer = waiting if len(self.connections) >= MAX_CONNECTIONS else []
        if of_peer:
            oldest = min(of_peer, key=lambda other: other._waits_since)
            self.connections.discard(oldest)
            oldest.transport.abort()
