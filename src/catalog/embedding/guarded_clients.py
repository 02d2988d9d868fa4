"""HTTP clients that follow no redirect and unpack no compressed reply."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import cast

import httpx

_FORM = {"Accept-Encoding": "identity"}  # 300 MB of blanks take 300 KB when compressed


def guarded_client(
    error: Callable[[str], Exception], *, most_bytes: int | None = None
) -> httpx.Client:
    """Return a client that refuses a compressed reply, and one of over ``most_bytes``.

    It follows no redirect. ``error`` makes the exception from words for the problem.
    """

    def check(response: httpx.Response) -> None:
        _guard(response, error, most_bytes)

    return httpx.Client(headers=_FORM, follow_redirects=False, event_hooks={"response": [check]})


def guarded_async_client(
    error: Callable[[str], Exception], *, most_bytes: int | None = None
) -> httpx.AsyncClient:
    """Return the same as :func:`guarded_client` for asyncio."""

    async def check(response: httpx.Response) -> None:
        _guard(response, error, most_bytes)

    return httpx.AsyncClient(
        headers=_FORM, follow_redirects=False, event_hooks={"response": [check]}
    )


def _guard(
    response: httpx.Response, error: Callable[[str], Exception], most_bytes: int | None
) -> None:
    encoding = response.headers.get("Content-Encoding", "identity")
    if encoding.strip().casefold() not in ("", "identity"):
        raise error("sent a compressed reply, which is not read")
    if most_bytes is not None:
        response.stream = _BoundedStream(response.stream, error, most_bytes)


class _BoundedStream(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The bytes of a reply; raises when more than ``most_bytes`` come."""

    def __init__(
        self,
        stream: httpx.SyncByteStream | httpx.AsyncByteStream,
        error: Callable[[str], Exception],
        most_bytes: int,
    ) -> None:
        self._stream, self._error, self._most_bytes = stream, error, most_bytes
        self._room = most_bytes

    def __iter__(self) -> Iterator[bytes]:
        for piece in cast(httpx.SyncByteStream, self._stream):
            yield self._counted(piece)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in cast(httpx.AsyncByteStream, self._stream):
            yield self._counted(piece)

    def close(self) -> None:
        cast(httpx.SyncByteStream, self._stream).close()

    async def aclose(self) -> None:
        await cast(httpx.AsyncByteStream, self._stream).aclose()

    def _counted(self, piece: bytes) -> bytes:
        self._room -= len(piece)
        if self._room < 0:
            raise self._error(f"answered with over {self._most_bytes} bytes")
        return piece
