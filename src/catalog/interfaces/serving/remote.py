"""Asking the server of a store. Light to import: a command that asks there loads nothing else.

The server proves that it knows the secret before it is told anything: the port of one that died
may belong to a stranger now. On the connection it proved itself on, the secret is then sent with
each call, which tells it nothing new; signing the calls instead would protect no more.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from catalog import __version__
from catalog.core.errors import StoreReplacedError
from catalog.interfaces.serving.connection import Connection
from catalog.interfaces.serving.failures import error_from_wire, is_catalog_error
from catalog.interfaces.serving.proof import is_proof

if TYPE_CHECKING:
    from catalog.interfaces.serving.announcing import Announcement

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
