"""Calls to the server of a store, and the engine that makes them while a server runs.

This module imports nothing heavy, because a command that asks a server needs only this.
``http.client`` would load ``ssl`` and ``email``, which takes 25 ms.

The server proves that it knows the secret before it gets any data, because the port of a dead
server may belong to a stranger now. On that connection the secret is then sent with each call,
which reveals nothing new to the server. Signed calls would protect no more.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catalog import __version__
from catalog.core.errors import ServingError, StoreReplacedError
from catalog.interfaces.server.announcement import (
    Announcement,
    decode_error,
    is_catalog_error,
    is_proof,
    read_announcement,
)

if TYPE_CHECKING:
    from catalog.core.settings import Settings
    from catalog.interfaces.calls import LocalEngine
    from catalog.interfaces.server.announcement import Announcement


_PIECE = 65_536
_MAX_HEAD = 65_536
_MAX_DIGITS = 16
_PROOF_SECONDS = 1.0
_MAX_PROOF_BYTES = 4096
_EXTRA_SECONDS = 2.0  # beyond the server's own time limit
_OK = 200
_TOO_LARGE = 413
_REFUSALS = frozenset([401, 403, 404, 405, 421, 503])
_PASS_OVER_SECONDS = 10.0


class Connection:
    """One keep-alive connection, for one thread. Every failure is an ``OSError``."""

    def __init__(self, host: str, port: int, seconds: float) -> None:
        try:
            self._socket = socket.create_connection((host, port), timeout=seconds)
        except (ValueError, OverflowError) as error:  # no name of a host, no number of a port
            raise ConnectionError(str(error)) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        name = f"[{host}]" if ":" in host else host
        self._host = f"{name}:{port}"

    def exchange(
        self,
        method: str,
        path: str,
        *,
        seconds: float,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        max_bytes: int | None = None,
    ) -> tuple[int, bytes]:
        """Send a request and return status and body of the answer, all within ``seconds``.

        Raises ``OSError`` for an answer that is late, cut off, longer than ``max_bytes`` or not
        HTTP; the connection is unusable then.
        """
        deadline = time.monotonic() + seconds
        fields = {"Host": self._host, "Content-Length": str(len(body)), **(headers or {})}
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {text}" for name, text in fields.items())]
        self._limit_wait(deadline)
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        head, rest = self._receive_head(deadline)
        status, length = _parse_head(head)
        if max_bytes is not None and length > max_bytes:
            raise ConnectionError("the answer is too long")
        return status, self._receive_body(rest, length, deadline)

    def stream(
        self, path: str, body: bytes, headers: Mapping[str, str], *, seconds: float
    ) -> tuple[int, Iterator[bytes]]:
        """POST a request; return the status and the lines of the answer as they arrive.

        Each piece must arrive within ``seconds``, or ``OSError`` is raised. The request is
        HTTP/1.0, so that the answer is not chunked and ends with the connection.
        """
        fields = {"Host": self._host, "Content-Length": str(len(body)), **headers}
        lines = [f"POST {path} HTTP/1.0", *(f"{name}: {text}" for name, text in fields.items())]
        deadline = time.monotonic() + seconds
        self._limit_wait(deadline)
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        head, rest = self._receive_head(deadline)
        return _parse_status(head.decode("latin-1").split("\r\n")[0]), self._lines(rest, seconds)

    def _lines(self, received: bytes, seconds: float) -> Iterator[bytes]:
        self._socket.settimeout(seconds)
        while piece := self._socket.recv(_PIECE):
            *lines, received = (received + piece).split(b"\n")
            yield from lines
        yield from filter(None, received.split(b"\n"))

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _receive_head(self, deadline: float) -> tuple[bytes, bytes]:
        """Return the head, and the part of the body that arrived with it."""
        received = b""
        while b"\r\n\r\n" not in received:
            if len(received) > _MAX_HEAD:
                raise ConnectionError("the answer is not HTTP")
            received += self._receive(deadline)
        head, _, rest = received.partition(b"\r\n\r\n")
        return head, rest

    def _receive_body(self, rest: bytes, length: int, deadline: float) -> bytes:
        pieces, missing = [rest], length - len(rest)
        while missing > 0:
            pieces.append(self._receive(deadline))
            missing -= len(pieces[-1])
        if missing < 0:
            raise ConnectionError("the answer is longer than its Content-Length")
        return b"".join(pieces)

    def _receive(self, deadline: float) -> bytes:
        self._limit_wait(deadline)
        piece = self._socket.recv(_PIECE)
        if not piece:
            raise ConnectionError("the connection was closed")
        return piece

    def _limit_wait(self, deadline: float) -> None:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("no answer in time")
        self._socket.settimeout(remaining)


def _parse_head(head: bytes) -> tuple[int, int]:
    """Return the status and the length of the body."""
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {
        name.lower(): text.strip() for name, _, text in (line.partition(":") for line in lines)
    }
    status, length = _parse_status(first), headers.get("content-length", "")
    if not _is_number(length):
        raise ConnectionError("the answer has no Content-Length")
    return status, int(length)


def _parse_status(first: str) -> int:
    status = first.split(" ")[1:2]
    if not first.startswith("HTTP/1.") or not status or not _is_number(status[0]):
        raise ConnectionError("the answer is not HTTP")
    return int(status[0])


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) < _MAX_DIGITS


class ServerGoneError(Exception):
    """Our server is not there, or does not accept the call: answer without it."""


class TooLargeError(ServerGoneError):
    """The call is too large for the server; it still answers smaller ones."""


class Remote:
    """The announced server. Thread-safe: it keeps as many connections as parallel calls."""

    def __init__(self, announcement: Announcement) -> None:
        self.announcement = announcement
        self._idle: list[Connection] = []
        self._server_seconds = 0.0  # the server's own time limit; known with the first proof
        self._closed = False
        self._lock = threading.Lock()

    def ask(
        self, verb: str, arguments: Mapping[str, Any], timeout: float | None = None
    ) -> dict[str, Any]:
        """Return the answer's JSON object; raise the errors that the verb raised there.

        Raises :class:`ServerGoneError` without an answer within ``timeout`` seconds (``None``: the
        server's own limit, and a little more).
        """
        answer: dict[str, Any] = self._call(verb, arguments, None, timeout)["data"]
        return answer

    def run_command(
        self, verb: str, arguments: Mapping[str, Any], form: Mapping[str, Any]
    ) -> tuple[str, str, int]:
        """Return standard output, standard error and exit code of the verb's command.

        Raises like :meth:`ask`.
        """
        answer = self._call(verb, arguments, form, None)
        return answer["out"], answer["err"], answer["code"]

    def stream_command(
        self, verb: str, arguments: Mapping[str, Any], form: Mapping[str, Any]
    ) -> Generator[str, None, tuple[str, str, int]]:
        """Yield the output of the verb's command as it arrives; return the rest with the code.

        Before the first output it raises like :meth:`ask`, later :class:`ServingError`.
        """
        call = {"operation": verb, "arguments": dict(arguments), "form": form, "streamed": True}
        connection: Connection | None = None
        has_begun = False
        try:
            connection = self._connect()
            seconds = self._server_seconds + _EXTRA_SECONDS
            body, headers = json.dumps(call).encode(), self._headers()
            status, lines = connection.stream("/call", body, headers, seconds=seconds)
            for line in lines:
                message = _parse_object(line)
                if status != _OK or "error" in message:
                    raise _refusal(status, message)
                if "write" not in message:
                    return message["out"], message["err"], message["code"]
                has_begun = True
                yield message["write"]
            raise ConnectionError("the answer is incomplete")
        except OSError as error:
            if has_begun:
                raise ServingError(f"the connection broke ({error}): try again") from error
            raise ServerGoneError(str(error)) from error
        finally:
            if connection is not None:
                connection.close()

    def close(self) -> None:
        """Close the connections; calls in progress end first, later ones open one each."""
        self._closed = True
        self._close_idle()

    def _call(
        self,
        verb: str,
        arguments: Mapping[str, Any],
        form: Mapping[str, Any] | None,
        timeout: float | None,
    ) -> dict[str, Any]:
        body = json.dumps({"operation": verb, "arguments": dict(arguments), "form": form})
        status, answer = self._exchange(body.encode(), timeout)
        if status == _OK:
            return answer
        raise _refusal(status, answer)

    def _exchange(self, body: bytes, timeout: float | None) -> tuple[int, dict[str, Any]]:
        """Send the call; once more on a new connection if the idle one was closed."""
        with self._lock:
            idle = self._idle.pop() if self._idle else None
        if idle is not None:
            try:
                return self._send(idle, body, timeout)
            except TimeoutError as error:
                raise ServerGoneError(str(error)) from error
            except OSError:
                self._close_idle()  # the rest are of the same age
        try:
            return self._send(self._connect(), body, timeout)
        except OSError as error:
            raise ServerGoneError(str(error)) from error

    def _send(
        self, connection: Connection, body: bytes, timeout: float | None
    ) -> tuple[int, dict[str, Any]]:
        seconds = self._server_seconds + _EXTRA_SECONDS if timeout is None else timeout
        try:
            status, content = connection.exchange(
                "POST", "/call", seconds=seconds, body=body, headers=self._headers()
            )
            answer = _parse_object(content)
        except BaseException:  # half an exchange must not be taken for the next one's answer
            connection.close()
            raise
        with self._lock:
            keeps = not self._closed
            if keeps:
                self._idle.append(connection)
        if not keeps:
            connection.close()
        return status, answer

    def _headers(self) -> dict[str, str]:
        secret = self.announcement.secret
        return {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}

    def _connect(self) -> Connection:
        """Return a new connection after the server has proved its identity."""
        server = self.announcement
        if server.version != __version__:
            raise ServerGoneError(f"the server is catalog {server.version}, not {__version__}")
        deadline = time.monotonic() + _PROOF_SECONDS
        connection = Connection(server.host, server.port, _PROOF_SECONDS)
        try:
            remaining = deadline - time.monotonic()
            self._server_seconds = _demand_proof(connection, server.secret, remaining)
        except BaseException:
            connection.close()
            raise
        return connection

    def _close_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


def _refusal(status: int, answer: dict[str, Any]) -> Exception:
    """Return the error in an answer, or the one that makes the caller answer by itself."""
    if status == _TOO_LARGE:
        return TooLargeError("the call is too large for the server")
    if status in _REFUSALS and not is_catalog_error(answer):
        return ServerGoneError(f"the server refused the call with status {status}")
    error = decode_error(answer)
    return ServerGoneError(str(error)) if isinstance(error, StoreReplacedError) else error


def _demand_proof(connection: Connection, secret: str, seconds: float) -> float:
    """Return the server's own time limit; raise ``OSError`` if it is not our server."""
    nonce = os.urandom(16).hex()
    _, content = connection.exchange(
        "GET", f"/v1/health?nonce={nonce}", seconds=seconds, max_bytes=_MAX_PROOF_BYTES
    )
    health = _parse_object(content)
    if not is_proof(health.get("proof"), secret, nonce):
        raise ConnectionError("another server listens there now")
    return float(health["timeout_seconds"])


def _parse_object(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ConnectionError("the answer is not JSON") from error
    if not isinstance(content, dict):
        raise ConnectionError("the answer is not a JSON object")
    return content


class NearestEngine:
    """Ask the store's server while one runs with the same settings, else answer here.

    The local engine is made when first needed and released when a server answers again. If a server
    is lost during a call, that call only takes longer. Thread-safe.
    """

    def __init__(
        self,
        settings: Settings,
        home: Path,
        key: str,
        make_local: Callable[[], LocalEngine],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._timeout = settings.serve.timeout_seconds + _EXTRA_SECONDS
        self._home = home
        self._key = key
        self._make_local = make_local
        self._clock = clock
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self._remote: Remote | None = None
        self._lost: tuple[Announcement, float] | None = None
        self._local: LocalEngine | None = None
        self._users = 0

    @classmethod
    def of(cls, settings: Settings, preset: str | None = None) -> NearestEngine:
        """Return the engine for settings loaded with that preset in this environment."""
        from catalog.core.files import settings_key

        def local() -> LocalEngine:
            from catalog.interfaces.calls import LocalEngine
            from catalog.library.library import Library
            from catalog.store.database import require_store

            require_store(settings)
            return LocalEngine(Library(settings))

        return cls(settings, settings.home, settings_key(settings.home, preset), local)

    def ask(self, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Answer as ``Engine.ask`` says."""
        remote = self._find_server()
        if remote is not None:
            try:
                answer = remote.ask(verb, arguments, self._timeout)
            except TooLargeError:
                pass
            except ServerGoneError:
                self._pass_over(remote)
            else:
                self._release_local()
                return answer
        with self._use_local() as engine:
            return engine.ask(verb, arguments)

    def warm(self) -> None:
        """Prepare the local engine, if it is the one that would answer."""
        if self._find_server() is None:
            with self._use_local() as engine:
                engine.warm()

    def close(self) -> None:
        """Release the local engine and the connections."""
        with self._lock:
            remote, self._remote = self._remote, None
            local, self._local = self._local, None
        if remote is not None:
            remote.close()
        if local is not None:
            local.close()

    def _find_server(self) -> Remote | None:
        """Return the present server; one that was lost is ignored for a while."""
        announcement = read_announcement(self._home)
        if announcement is None or announcement.key != self._key:
            return None
        with self._lock:
            if self._lost is not None:
                lost, lost_at = self._lost
                if lost == announcement and self._clock() - lost_at < _PASS_OVER_SECONDS:
                    return None
            before = self._remote
            if before is not None and before.announcement == announcement:
                return before
            self._remote = Remote(announcement)
            remote = self._remote
        if before is not None:
            before.close()
        return remote

    def _pass_over(self, remote: Remote) -> None:
        with self._lock:
            self._lost = (remote.announcement, self._clock())

    @contextmanager
    def _use_local(self) -> Iterator[LocalEngine]:
        """Yield the local engine, made if necessary, which stays open meanwhile."""
        with self._making:
            with self._lock:
                engine = self._local
                self._users += engine is not None
            if engine is None:
                engine = self._make_local()
                with self._lock:
                    self._local = engine
                    self._users += 1
        try:
            yield engine
        finally:
            with self._lock:
                self._users -= 1

    def _release_local(self) -> None:
        with self._lock:
            if self._local is None or self._users:
                return
            local, self._local = self._local, None
        local.close()
