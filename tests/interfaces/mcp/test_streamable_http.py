"""Streamable HTTP: who is refused, sessions that end, servers that come and go."""

import http.client
import json
import logging
import socket
import threading
from urllib.parse import urlsplit

import pytest
from mcp.shared.exceptions import MCPError
from starlette.testclient import TestClient

from catalog.core.settings.sections import ServeSettings
from catalog.interfaces import mcp as mcp_module
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
def test_a_body_that_is_no_message_does_not_end_the_session(client, body):
    session = {"mcp-session-id": opened(client).headers["mcp-session-id"]}
    bad = client.post("/mcp", content=body, headers=BEARER | session)
    assert bad.status_code in (200, 202, 400, 413)  # the SDK takes a null id for no id
    ping = {"jsonrpc": "2.0", "id": 3, "method": "ping"}
    assert client.post("/mcp", json=ping, headers=BEARER | session).status_code == 200


def test_sessions_are_bounded_and_one_that_is_ended_makes_room(monkeypatch):
    monkeypatch.setattr(mcp_module, "MAX_SESSIONS", 2)
    app = streamable_http_app(server(), HERE, ServeSettings())
    with TestClient(app, base_url="http://127.0.0.1", headers=ACCEPT) as client:
        first, second = (client.post("/mcp", json=INITIALIZE) for _ in range(2))
        assert (first.status_code, second.status_code) == (200, 200)
        assert client.post("/mcp", json=INITIALIZE).status_code == 503
        session = {"Mcp-Session-Id": first.headers["mcp-session-id"]}
        assert client.delete("/mcp", headers=session).status_code == 200
        assert client.post("/mcp", json=INITIALIZE).status_code == 200


@pytest.mark.slow
def test_an_unused_session_is_dropped(monkeypatch, caplog):
    monkeypatch.setattr(mcp_module, "SESSION_IDLE_SECONDS", 0.5)
    dropped = threading.Event()

    def notice(record):
        if "idle timeout" in record.getMessage():
            dropped.set()

    caplog.set_level(logging.INFO, logger="mcp")
    monkeypatch.setattr(caplog.handler, "emit", notice)
    app = streamable_http_app(server(), HERE, ServeSettings())
    with TestClient(app, base_url="http://127.0.0.1", headers=ACCEPT) as client:
        opening = client.post("/mcp", json=INITIALIZE)
        session = {"Mcp-Session-Id": opening.headers["mcp-session-id"]}
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        assert client.post("/mcp", json=ping, headers=session).status_code == 200
        assert dropped.wait(10)  # no asking meanwhile: that is a use of the session
        assert client.post("/mcp", json=ping, headers=session).status_code == 404


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
    opening = connection.getresponse()
    opening.read()
    session = {"Mcp-Session-Id": opening.headers["mcp-session-id"]}
    call = {"name": "get", "arguments": {"reference": "hold"}}
    body = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}
    connection.request("POST", "/mcp", json.dumps(body), ACCEPT | BEARER | session)
    wait_for(signs / "began")
    connection.close()
    with talk(bearing(address, TOKEN)) as other:
        assert other.call("get", reference="a").is_error is False
    ping = json.dumps({"jsonrpc": "2.0", "id": 3, "method": "ping"})
    connection.request("POST", "/mcp", ping, ACCEPT | BEARER | session)
    assert connection.getresponse().status == 200
    connection.close()


@pytest.mark.slow
def test_a_server_ends_while_a_call_runs_and_the_next_one_tells_its_sessions(tmp_path):
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
            with pytest.raises(MCPError):
                session.call("get", reference="a")
            with talk(again, "legacy") as other:
                assert other.call("get", reference="a").is_error is False
