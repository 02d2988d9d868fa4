"""What a request is told that the end of the server cuts off."""

import asyncio
import json

import pytest

from catalog.interfaces.server.asgi import RequestLog

SCOPE = {"type": "http", "method": "GET", "path": "/v1/search"}


def cut_off(begin):
    """What an app that never ends has sent when it is cancelled; ``begin(send)`` comes first."""
    sent = []

    async def send(message):
        sent.append(message)

    async def go():
        runs = asyncio.Event()

        async def app(scope, receive, send):
            await begin(send)
            runs.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(RequestLog(app)(SCOPE, None, send))
        await runs.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())
    return sent


def test_a_request_that_is_cut_off_is_told_so_in_the_shape_of_every_error():
    async def nothing(send):
        pass

    start, body = cut_off(nothing)
    headers = dict(start["headers"])
    assert start["status"] == 503
    assert headers[b"content-type"] == b"application/json"
    assert headers[b"retry-after"] == b"1"
    error = json.loads(body["body"])["error"]
    assert error["kind"] == "Stopping"
    assert "the server stopped" in error["message"]


def test_nothing_is_added_to_an_answer_that_has_begun():
    begun = {"type": "http.response.start", "status": 200, "headers": []}

    async def begin(send):
        await send(begun)

    (only,) = cut_off(begin)
    assert [only["status"], only["type"]] == [begun["status"], begun["type"]]
