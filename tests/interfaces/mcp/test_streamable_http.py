"""Streamable HTTP: who is refused, and servers that come and go, or answer in turn."""

import http.client
import json
import socket
from urllib.parse import urlsplit

import pytest
from mcp.shared.exceptions import MCPError
from starlette.testclient import TestClient

from catalog.core.settings.sections import ServeSettings
from catalog.interfaces.mcp import catalog_server, streamable_http_app
from catalog.interfaces.server.security import Address
from catalog.interfaces.server.workers import Workers
from interfaces.mcp.running import bearing, http_server, serving, talk
from interfaces.mcp.signs import wait_for
from interfaces.mcp.stubs import StubEngine
from interfaces.mcp.test_stdio import BAD_LINES, OPENING
from tables import table

TOKEN = "a secret of sixteen"
HERE = Address("127.0.0.1", 8181)
ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
BEARER = {"Authorization": f"Bearer {TOKEN}"}
INITIALIZE = {"jsonrpc": "2.0", **OPENING[0]}
PING = {"jsonrpc": "2.0", "id": 3, "method": "ping"}


def server():
    return catalog_server(StubEngine(), Workers(8, 30))


@pytest.fixture
def client():
    """Requests to the app in this process, which demands a token."""
    serve = ServeSettings(token=TOKEN, max_body_bytes=2000, allowed_origins=("https://ok.example",))
    app = streamable_http_app(server(), HERE, serve)
    with TestClient(app, base_url="http://127.0.0.1:8181", headers=ACCEPT) as started:
        yield started


def opened(client, **headers):
    return client.post("/mcp", json=INITIALIZE, headers=BEARER | headers)


@table("headers, status")
def test_host_origin_and_token_are_checked(client, headers, status):
    assert opened(client, **headers).status_code == status


@pytest.mark.parametrize("body", [*BAD_LINES, b""])
def test_a_body_that_is_no_message_keeps_no_other_from_its_answer(client, body):
    bad = client.post("/mcp", content=body, headers=BEARER)
    assert bad.status_code in (200, 202, 400, 413)  # the SDK takes a null id for no id
    assert client.post("/mcp", json=PING, headers=BEARER).status_code == 200


def test_a_server_answers_those_whom_another_one_greeted_or_who_waited_for_long():
    apps = [streamable_http_app(server(), HERE, ServeSettings()) for _ in range(2)]
    of = {"base_url": "http://127.0.0.1", "headers": ACCEPT}
    with TestClient(apps[0], **of) as first, TestClient(apps[1], **of) as second:
        opening = first.post("/mcp", json=INITIALIZE)
        assert (opening.status_code, "mcp-session-id" in opening.headers) == (200, False)
        assert second.post("/mcp", json=PING).status_code == 200
        gone = {"Mcp-Session-Id": "0123456789abcdef0123456789abcdef"}  # of an earlier release
        assert second.post("/mcp", json=PING, headers=gone).status_code == 200


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """The URL of a server process that demands a token, and the folder of its signs."""
    signs = tmp_path_factory.mktemp("signs")
    with http_server(serving("stub", "http"), signs, TEST_TOKEN=TOKEN) as (_, found):
        yield found, signs


def test_a_connection_that_breaks_in_the_middle_of_a_call_affects_no_other_call(url):
    address, signs = url
    for sign in signs.iterdir():
        sign.unlink()
    connection = http.client.HTTPConnection(urlsplit(address).netloc)
    connection.request("POST", "/mcp", json.dumps(INITIALIZE), ACCEPT | BEARER)
    connection.getresponse().read()
    call = {"name": "get", "arguments": {"reference": "hold"}}
    body = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}
    connection.request("POST", "/mcp", json.dumps(body), ACCEPT | BEARER)
    wait_for(signs / "began")
    connection.close()
    with talk(bearing(address, TOKEN)) as other:
        assert other.call("get", reference="a").is_error is False
    connection.request("POST", "/mcp", json.dumps(PING), ACCEPT | BEARER)
    assert connection.getresponse().status == 200
    connection.close()


@pytest.mark.slow
def test_a_server_ends_while_a_call_runs_and_the_next_one_answers_its_client(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    with (
        http_server(serving("stub", "http"), tmp_path, TEST_PORT=port) as (process, address),
        talk(address, "legacy") as session,
    ):
        left = session.later("get", reference="hold")
        wait_for(tmp_path / "began")
        process.terminate()
        assert process.wait(timeout=10) == 0
        with pytest.raises(MCPError):
            left.result(timeout=10)
        with http_server(serving("stub", "http"), tmp_path, TEST_PORT=port) as (_, again):
            assert again == address
            assert session.call("get", reference="a").is_error is False
