"""Requests to model servers: JSON posted with a time limit, without redirects or secrets."""

from __future__ import annotations

import json
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import SplitResult, urlsplit

import httpx

from catalog.core.bounded_calls import BoundedCalls
from catalog.core.errors import CatalogError, ConfigError, LLMError, LLMTimeoutError

if TYPE_CHECKING:
    import httpx

_FORM = {"Accept-Encoding": "identity"}  # 300 MB of blanks take 300 KB when compressed


def guarded_client(
    error: Callable[[str], Exception], *, most_bytes: int | None = None
) -> httpx.Client:
    """Return a client that refuses a compressed reply, and one of over ``most_bytes``.

    It follows no redirect. ``error`` makes the exception from a description of the problem.
    """

    def check(response: httpx.Response) -> None:
        _guard(response, error, most_bytes)

    return httpx.Client(headers=_FORM, follow_redirects=False, event_hooks={"response": [check]})


def _guard(
    response: httpx.Response, error: Callable[[str], Exception], most_bytes: int | None
) -> None:
    encoding = response.headers.get("Content-Encoding", "identity")
    if encoding.strip().casefold() not in ("", "identity"):
        raise error("sent a compressed reply, which is not supported")
    if most_bytes is not None:
        response.stream = _BoundedStream(
            cast(httpx.SyncByteStream, response.stream), error, most_bytes
        )


class _BoundedStream(httpx.SyncByteStream):
    """The bytes of a reply; raises when more than ``most_bytes`` come."""

    def __init__(
        self,
        stream: httpx.SyncByteStream,
        error: Callable[[str], Exception],
        most_bytes: int,
    ) -> None:
        self._stream, self._error, self._most_bytes = stream, error, most_bytes
        self._room = most_bytes

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._stream:
            yield self._counted(piece)

    def close(self) -> None:
        self._stream.close()

    def _counted(self, piece: bytes) -> bytes:
        self._room -= len(piece)
        if self._room < 0:
            raise self._error(f"sent over {self._most_bytes} bytes")
        return piece


_ABANDONED = 8  # timed-out requests that may still run; with more, calls fail until one ends


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """The answer of a server; names of ``headers`` are in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def is_success(self) -> bool:
        """Return whether the server fulfilled the request."""
        return 200 <= self.status < 300


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
        parts = split_address(url, setting)
        host = parts.netloc.rpartition("@")[2]
        if api_key and host != parts.netloc:  # one of the two would be sent instead of the key
            raise ConfigError(f"{setting} contains a user, but a key is set as well: use only one")
        self._url, self._error, self._setting = url, error, setting
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._calls = BoundedCalls(_ABANDONED)
        self.label = f"{name} at {host}"
        self.public_url = parts._replace(netloc=host).geturl()

    def post(
        self, body: Mapping[str, Any], seconds: float, *, most_bytes: int = 20_000_000
    ) -> ServerAnswer:
        """Send a request and return the server's reply within ``seconds``, whatever its status.

        A reply of over ``most_bytes`` is not read to its end and raises ``error``.
        """
        try:  # limits the whole request; httpx limits only each wait
            return self._calls.call(lambda: self._post(body, seconds, most_bytes), seconds)
        except LLMTimeoutError as error:
            raise self._late(seconds) from error
        except LLMError as error:
            raise self._error(f"{self.label} cannot be reached: {error}") from error

    def read(self, reply: ServerAnswer) -> Any:
        """Return the JSON of a reply."""
        try:
            return json.loads(reply.content)
        except (ValueError, RecursionError) as error:
            raise self._error(f"{self.label} answered, but not with valid JSON") from error

    def _post(self, body: Mapping[str, Any], seconds: float, most_bytes: int) -> ServerAnswer:
        import httpx

        deadline = time.monotonic() + seconds
        content = bytearray()
        try:
            with self._client.stream(
                "POST", self._url, json=body, headers=self._headers, timeout=seconds
            ) as response:
                for chunk in response.iter_bytes():
                    content += chunk
                    if len(content) > most_bytes:
                        raise self._error(f"{self.label} sent over {most_bytes} bytes")
                    if time.monotonic() > deadline:
                        raise self._late(seconds)
                return ServerAnswer(response.status_code, dict(response.headers), bytes(content))
        except httpx.TimeoutException as error:
            raise self._late(seconds) from error
        except httpx.ConnectError as error:
            why = "connection refused" if "refused" in str(error) else "no connection"
            advice = f"is it running, and is {self._setting} right?"
            raise self._error(f"{self.label} cannot be reached: {why}; {advice}") from error
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise self._error(f"{self.label} cannot be reached: {type(error).__name__}") from error

    @cached_property
    def _client(self) -> httpx.Client:

        label, error = self.label, self._error
        client = guarded_client(lambda problem: error(f"{label} {problem}"))
        weakref.finalize(self, client.close)
        return client

    def _late(self, seconds: float) -> CatalogError:
        return self._error(f"{self.label} did not answer in {seconds:g} s")


def split_address(url: str, setting: str) -> SplitResult:
    """Return the parts of a server's address; raise :class:`ConfigError`, naming ``setting``."""
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:  # outside the handler: the ValueError may quote a password
        raise ConfigError(f"{setting} must be an http:// or https:// address")
    return parts
