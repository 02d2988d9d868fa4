"""Requests to model servers: JSON posted with a time limit, without redirects or secrets."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, cast
from urllib.parse import SplitResult, urlsplit

import httpcore
import httpx

from catalog.core.bounded_calls import BoundedCalls, time_left
from catalog.core.errors import CatalogError, ConfigError, LLMBusyError, LLMTimeoutError

_MOST_BYTES = 20_000_000  # of a reply
_ABANDONED = 8  # timed-out requests that may still run; with more, calls fail until one ends


def guarded_client(error: Callable[[str], Exception]) -> httpx.Client:
    """Return a client that follows no redirect, and refuses compressed, long and slow replies."""

    def check(response: httpx.Response) -> None:
        encoding = response.headers.get("Content-Encoding", "identity")
        if encoding.strip().casefold() not in ("", "identity"):
            raise error("sent a compressed reply, which is not supported")
        response.stream = _BoundedStream(response, error)

    asked = {"Accept-Encoding": "identity"}  # 300 MB of blanks take 300 KB when compressed
    client = httpx.Client(headers=asked, event_hooks={"response": [check]})
    # httpx takes no network backend, so the one of its pools is replaced
    for transport in filter(None, (client._transport, *client._mounts.values())):
        cast(Any, transport)._pool._network_backend = _TimedBackend()
    return client


class _BoundedStream(httpx.SyncByteStream):
    def __init__(self, reply: httpx.Response, error: Callable[[str], Exception]) -> None:
        self._stream, self._error = cast(httpx.SyncByteStream, reply.stream), error
        self._most = reply.request.extensions.get("most_bytes", _MOST_BYTES)
        self.close = self._stream.close  # type: ignore[method-assign]

    def __iter__(self) -> Iterator[bytes]:
        read = 0
        for piece in self._stream:
            read += len(piece)
            if read > self._most:
                raise self._error(f"sent over {self._most} bytes")
            yield piece


class _TimedBackend(httpcore.SyncBackend):
    """Connections are read until the deadline of the call, however slowly their bytes drip."""

    def connect_tcp(self, *args: Any, **options: Any) -> Any:
        return _timed(super().connect_tcp(*args, **options))


def _timed(stream: httpcore.NetworkStream) -> Any:
    read, start_tls, timed = stream.read, stream.start_tls, cast(Any, stream)

    def read_in_time(max_bytes: int, timeout: float | None = None) -> bytes:
        if (left := time_left()) <= 0:
            raise httpcore.ReadTimeout("the reply did not end in time")
        return read(max_bytes, min(left, timeout or left))

    timed.read = read_in_time
    timed.start_tls = lambda *args, **options: _timed(start_tls(*args, **options))
    return timed


class JsonServer:
    """One address of a server, called ``name`` in messages. Safe to share between threads.

    A request without a reply raises ``error``, whose message has neither the key nor the body.
    """

    def __init__(
        self, url: str, *, name: str, setting: str, error: type[CatalogError], api_key: str | None
    ) -> None:
        """Set the address; raise :class:`ConfigError`, naming ``setting``, if it is invalid."""
        parts = split_address(url, setting, api_key)
        host = parts.netloc.rpartition("@")[2]
        self.label, self.public_url = f"{name} at {host}", parts._replace(netloc=host).geturl()
        self._url, self._error, self._setting = url, error, setting
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._calls = BoundedCalls(_ABANDONED)

    def post(
        self, body: Mapping[str, Any], seconds: float, *, most_bytes: int = _MOST_BYTES
    ) -> httpx.Response:
        """Send a request and return the server's reply within ``seconds``, whatever its status."""
        request: dict[str, Any] = {"json": body, "headers": self._headers, "timeout": seconds}
        request["extensions"] = {"most_bytes": most_bytes}
        try:  # in a thread, because a name lookup has no time limit
            return self._calls.call(lambda: self._client.post(self._url, **request), seconds)
        except (LLMTimeoutError, httpx.TimeoutException) as error:
            raise self._error(f"{self.label} did not answer in {seconds:g} s") from error
        except httpx.ConnectError as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                trust = "let SSL_CERT_FILE name a file with the certificate of its authority"
                raise ConfigError(f"{self.label} is not trusted: {error}; {trust}") from error
            why = "connection refused" if "refused" in str(error) else "no connection"
            advice = f"is it running, and is {self._setting} right?"
            raise self._error(f"{self.label} cannot be reached: {why}; {advice}") from error
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, LLMBusyError) as error:
            why = str(error) if isinstance(error, LLMBusyError) else type(error).__name__
            raise self._error(f"{self.label} cannot be reached: {why}") from error

    def read(self, reply: httpx.Response) -> Any:
        """Return the JSON of a reply."""
        try:
            return json.loads(reply.content)
        except (ValueError, RecursionError) as error:
            raise self._error(f"{self.label} answered, but not with valid JSON") from error

    @cached_property
    def _client(self) -> httpx.Client:
        label, error = self.label, self._error  # without self, which the client is closed after
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
