"""Asking the server of a store. Light to import: a command that asks there loads nothing else.

``http.client`` would do; it loads ``ssl`` and ``email``, which costs a command 25 ms.

The server proves that it knows the secret before it is told anything: the port of one that died
may belong to a stranger now. On the connection it proved itself on, the secret is then sent with
each call, which tells it nothing new; signing the calls instead would protect no more.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from catalog import __version__
from catalog.core import errors
from catalog.core.errors import CatalogError, StoreReplacedError
from catalog.interfaces.server.announcement import is_proof

if TYPE_CHECKING:
    from catalog.interfaces.server.announcement import Announcement


_KINDS: dict[str, type[CatalogError]] = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, CatalogError)
}


def error_to_wire(error: CatalogError) -> dict[str, Any]:
    """``{"error": {"kind", "message", "details"}}``; details are the attributes it carries."""
    return {
        "error": {
            "kind": type(error).__name__,
            "message": str(error),
            "details": dict(vars(error)),
        }
    }


def is_catalog_error(answer: Mapping[str, Any]) -> bool:
    """Whether it tells an error of ours."""
    found = answer.get("error")
    return isinstance(found, dict) and found.get("kind") in _KINDS


def error_from_wire(answer: Mapping[str, Any]) -> CatalogError:
    """The error that was told; a :class:`CatalogError` with its words for one of unknown kind."""
    found = answer.get("error")
    if not isinstance(found, dict):
        return CatalogError("the server failed and did not say how")
    kind = _KINDS.get(str(found.get("kind")))
    if kind is None:
        return CatalogError(f"the server says: {found.get('message')}")
    error = kind.__new__(kind)
    error.args = (str(found.get("message")),)
    for name, value in (found.get("details") or {}).items():
        setattr(error, name, tuple(value) if isinstance(value, list) else value)
    return error


_LONGEST_HEAD = 65_536
_PIECE = 65_536
_DIGITS = 16


class Connection:
    """One keep-alive connection; not for several threads. Every failure is an ``OSError``."""

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
        most: int | None = None,
    ) -> tuple[int, bytes]:
        """Status and body of the answer, all within ``seconds``.

        Raises ``OSError`` for an answer that is late, cut off, longer than ``most`` bytes or not
        HTTP; the connection is of no use then.
        """
        until = time.monotonic() + seconds
        told = {"Host": self._host, "Content-Length": str(len(body)), **(headers or {})}
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {text}" for name, text in told.items())]
        self._wait_at_most(until)
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        head, rest = self._head(until)
        status, length = _read_head(head)
        if most is not None and length > most:
            raise ConnectionError("the answer is too long")
        return status, self._body(rest, length, until)

    def close(self) -> None:
        """End it."""
        self._socket.close()

    def _head(self, until: float) -> tuple[bytes, bytes]:
        found = b""
        while b"\r\n\r\n" not in found:
            if len(found) > _LONGEST_HEAD:
                raise ConnectionError("the answer is not HTTP")
            found += self._piece(until)
        head, _, rest = found.partition(b"\r\n\r\n")
        return head, rest

    def _body(self, rest: bytes, length: int, until: float) -> bytes:
        pieces, missing = [rest], length - len(rest)
        while missing > 0:
            pieces.append(self._piece(until))
            missing -= len(pieces[-1])
        if missing < 0:
            raise ConnectionError("more came than was told")
        return b"".join(pieces)

    def _piece(self, until: float) -> bytes:
        self._wait_at_most(until)
        piece = self._socket.recv(_PIECE)
        if not piece:
            raise ConnectionError("the connection was closed")
        return piece

    def _wait_at_most(self, until: float) -> None:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError("no answer in time")
        self._socket.settimeout(left)


def _read_head(head: bytes) -> tuple[int, int]:
    """Status and length of the body."""
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {
        name.lower(): text.strip() for name, _, text in (one.partition(":") for one in lines)
    }
    status, length = first.split(" ")[1:2], headers.get("content-length", "")
    if not first.startswith("HTTP/1.") or not status or not _is_number(status[0]):
        raise ConnectionError("the answer is not HTTP")
    if not _is_number(length):
        raise ConnectionError("the answer does not tell its length")
    return int(status[0]), int(length)


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) < _DIGITS


_PROVEN_WITHIN = 1.0
_MORE_THAN_THE_SERVER = 2.0
_LONGEST_PROOF = 4096
_OK = 200
_TOO_LARGE = 413
_REFUSALS = frozenset([401, 403, 404, 405, 421, 503])


class ServerGoneError(Exception):
    """No server of ours is there, or it does not take the call: answer without it."""


class TooLargeError(ServerGoneError):
    """The server does not read so large a call; it is there for others."""


@dataclass(frozen=True, slots=True)
class _Line:
    """A connection whose other end is proved, and how long the server takes at most."""

    connection: Connection
    seconds: float


class Remote:
    """The announced server. Thread-safe: as many connections are kept as calls were under way."""

    def __init__(self, announcement: Announcement) -> None:
        self.announcement = announcement
        self._idle: list[_Line] = []
        self._closed = False
        self._lock = threading.Lock()

    def ask(
        self, operation: str, arguments: Mapping[str, Any], timeout: float | None = None
    ) -> dict[str, Any]:
        """The answer's JSON object; raises what the operation raised there.

        Raises :class:`ServerGoneError` when there is no answer within ``timeout`` seconds
        (``None``: as long as the server allows itself, and a little).
        """
        answer = self._call(operation, arguments, None, timeout)
        found: dict[str, Any] = answer["data"]
        return found

    def printed(
        self,
        operation: str,
        arguments: Mapping[str, Any],
        form: Mapping[str, bool],
        timeout: float | None = None,
    ) -> tuple[str, str, int]:
        """Standard output, standard error and exit code of the command; raises as :meth:`ask`."""
        answer = self._call(operation, arguments, form, timeout)
        return answer["out"], answer["err"], answer["code"]

    def close(self) -> None:
        """Keep no connection any more; calls under way end first, later ones use one each."""
        self._closed = True
        self._drop_idle()

    def _call(
        self,
        operation: str,
        arguments: Mapping[str, Any],
        form: Mapping[str, bool] | None,
        timeout: float | None,
    ) -> dict[str, Any]:
        body = json.dumps({"operation": operation, "arguments": dict(arguments), "form": form})
        status, answer = self._exchange(body.encode(), timeout)
        if status == _OK:
            return answer
        if status == _TOO_LARGE:
            raise TooLargeError("the server does not read so large a call")
        if status in _REFUSALS and not is_catalog_error(answer):
            raise ServerGoneError(f"the server refused the call with status {status}")
        failed = error_from_wire(answer)
        if isinstance(failed, StoreReplacedError):
            raise ServerGoneError(str(failed))
        raise failed

    def _exchange(self, body: bytes, timeout: float | None) -> tuple[int, dict[str, Any]]:
        """Once more on a new connection if the kept one turns out to be closed."""
        with self._lock:
            kept = self._idle.pop() if self._idle else None
        if kept is not None:
            try:
                return self._send(kept, body, timeout)
            except TimeoutError as error:
                raise ServerGoneError(str(error)) from error
            except OSError:
                self._drop_idle()  # the others are of the same age
        try:
            return self._send(self._connect(), body, timeout)
        except OSError as error:
            raise ServerGoneError(str(error)) from error

    def _send(self, line: _Line, body: bytes, timeout: float | None) -> tuple[int, dict[str, Any]]:
        headers = {
            "Authorization": f"Bearer {self.announcement.secret}",
            "Content-Type": "application/json",
        }
        seconds = line.seconds + _MORE_THAN_THE_SERVER if timeout is None else timeout
        try:
            status, answer = line.connection.exchange(
                "POST", "/call", seconds=seconds, body=body, headers=headers
            )
            found = _object(answer)
        except BaseException:  # half an exchange must not be taken for the next one's answer
            line.connection.close()
            raise
        with self._lock:
            keep = not self._closed
            if keep:
                self._idle.append(line)
        if not keep:
            line.connection.close()
        return status, found

    def _connect(self) -> _Line:
        """A new connection, once its other end has proved itself."""
        found = self.announcement
        if found.version != __version__:
            raise ServerGoneError(f"the server is catalog {found.version}, not {__version__}")
        until = time.monotonic() + _PROVEN_WITHIN
        connection = Connection(found.host, found.port, _PROVEN_WITHIN)
        try:
            return _Line(connection, _proven(connection, found.secret, until - time.monotonic()))
        except BaseException:
            connection.close()
            raise

    def _drop_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for line in idle:
            line.connection.close()


def _proven(connection: Connection, secret: str, seconds: float) -> float:
    """How long the server at the other end takes at most; raises ``OSError`` if it is another."""
    nonce = os.urandom(16).hex()
    _, answer = connection.exchange(
        "GET", f"/v1/health?nonce={nonce}", seconds=seconds, most=_LONGEST_PROOF
    )
    health = _object(answer)
    if not is_proof(health.get("proof"), secret, nonce):
        raise ConnectionError("another server listens there now")
    return float(health["timeout_seconds"])


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ConnectionError("the answer is not JSON") from error
    if not isinstance(found, dict):
        raise ConnectionError("the answer is no JSON object")
    return found
