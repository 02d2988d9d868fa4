"""A connection to a server on this machine: as much HTTP/1.1 as ours speaks, and no more.

``http.client`` would do; it loads ``ssl`` and ``email``, which costs a command 25 ms.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping

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
