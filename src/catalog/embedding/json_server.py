"""Requests to model servers: JSON posted with a time limit, without redirects or secrets."""

from __future__ import annotations

import json
import math
import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from ssl import SSLContext
from typing import Any, cast
from urllib.parse import SplitResult, urlsplit

import httpcore
import httpx

from catalog.core.bounded_calls import BoundedCalls, time_left
from catalog.core.errors import CatalogError, ConfigError, LLMError, LLMTimeoutError

_MOST_BYTES = 20_000_000  # of a reply
_ABANDONED = 8  # timed-out requests that may still run; with more, calls fail until one ends


def guarded_client(error: Callable[[str], Exception]) -> httpx.Client:
    """Return a client that refuses compressed replies and redirects, and long or slow replies.

    A reply may have as many bytes as the request's extension ``most_bytes`` says, and its last one
    must be there at the deadline of the call. ``error`` makes the exception from a description.
    """

    def check(response: httpx.Response) -> None:
        encoding = response.headers.get("Content-Encoding", "identity")
        if encoding.strip().casefold() not in ("", "identity"):
            raise error("sent a compressed reply, which is not supported")
        stream = cast(httpx.SyncByteStream, response.stream)
        most_bytes = response.request.extensions.get("most_bytes", _MOST_BYTES)
        response.stream = _BoundedStream(stream, error, most_bytes)

    asked = {"Accept-Encoding": "identity"}  # 300 MB of blanks take 300 KB when compressed
    client = httpx.Client(headers=asked, event_hooks={"response": [check]})
    # httpx takes no network backend, so the one of its pools is replaced
    for transport in (client._transport, *client._mounts.values()):
        if isinstance(transport, httpx.HTTPTransport):
            transport._pool._network_backend = _TimedBackend()
    return client


class _BoundedStream(httpx.SyncByteStream):
    """The bytes of a reply; raises when more than ``most_bytes`` come."""

    def __init__(
        self, stream: httpx.SyncByteStream, error: Callable[[str], Exception], most_bytes: int
    ) -> None:
        self._stream, self._error, self._most_bytes = stream, error, most_bytes

    def __iter__(self) -> Iterator[bytes]:
        read = 0
        for piece in self._stream:
            read += len(piece)
            if read > self._most_bytes:
                raise self._error(f"sent over {self._most_bytes} bytes")
            yield piece

    def close(self) -> None:
        self._stream.close()


class _TimedStream(httpcore.NetworkStream):
    """A connection that is read until the deadline of the call, however slowly its bytes drip."""

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream
        self.write, self.close = stream.write, stream.close  # type: ignore[method-assign]
        self.get_extra_info = stream.get_extra_info  # type: ignore[method-assign]

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        left = time_left()
        if left <= 0:
            raise httpcore.ReadTimeout("the reply did not end in time")
        if left < math.inf:
            timeout = left if timeout is None else min(left, timeout)
        return self._stream.read(max_bytes, timeout)

    def start_tls(
        self,
        ssl_context: SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        return _TimedStream(self._stream.start_tls(ssl_context, server_hostname, timeout))


class _TimedBackend(httpcore.SyncBackend):
    def connect_tcp(self, *args: Any, **options: Any) -> httpcore.NetworkStream:
        return _TimedStream(super().connect_tcp(*args, **options))


class JsonServer:
    """One address of a server, called ``name`` in messages.

    No redirect is followed and no compressed reply read. A request without a reply raises
    ``error``, whose message contains neither the key nor the body of the request. Thread-safe.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str,
        setting: str,
        error: type[CatalogError],
        api_key: str | None = None,
    ) -> None:
        """Set the address; raise :class:`ConfigError`, naming ``setting``, if it is invalid."""
        parts = split_address(url, setting, api_key)
        host = parts.netloc.rpartition("@")[2]
        self._url, self._error, self._setting = url, error, setting
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._calls = BoundedCalls(_ABANDONED)
        self.label = f"{name} at {host}"
        self.public_url = parts._replace(netloc=host).geturl()

    def post(
        self, body: Mapping[str, Any], seconds: float, *, most_bytes: int = _MOST_BYTES
    ) -> httpx.Response:
        """Send a request and return the server's reply within ``seconds``, whatever its status.

        A reply of over ``most_bytes`` is not read to its end and raises ``error``.
        """
        request: dict[str, Any] = {"json": body, "headers": self._headers, "timeout": seconds}
        request["extensions"] = {"most_bytes": most_bytes}
        try:  # in a thread, because a name lookup has no time limit
            return self._calls.call(lambda: self._client.post(self._url, **request), seconds)
        except (LLMTimeoutError, httpx.TimeoutException) as error:
            raise self._error(f"{self.label} did not answer in {seconds:g} s") from error
        except httpx.ConnectError as error:
            why = "connection refused" if "refused" in str(error) else "no connection"
            advice = f"is it running, and is {self._setting} right?"
            raise self._error(f"{self.label} cannot be reached: {why}; {advice}") from error
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise self._error(f"{self.label} cannot be reached: {type(error).__name__}") from error
        except LLMError as error:
            raise self._error(f"{self.label} cannot be reached: {error}") from error

    def read(self, reply: httpx.Response) -> Any:
        """Return the JSON of a reply."""
        try:
            return json.loads(reply.content)
        except (ValueError, RecursionError) as error:
            raise self._error(f"{self.label} answered, but not with valid JSON") from error

    @cached_property
    def _client(self) -> httpx.Client:
        label, error = self.label, self._error
        client = guarded_client(lambda problem: error(f"{label} {problem}"))
        weakref.finalize(self, client.close)
        return client


def split_address(url: str, setting: str, api_key: str | None = None) -> SplitResult:
    """Return the parts of a server's address; raise :class:`ConfigError`, naming ``setting``."""
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:  # outside the handler: the ValueError may quote a password
        raise ConfigError(f"{setting} must be an http:// or https:// address")
    if api_key and "@" in parts.netloc:  # one of the two would be sent instead of the key
        raise ConfigError(f"{setting} contains a user, but a key is set as well: use only one")
    return parts
