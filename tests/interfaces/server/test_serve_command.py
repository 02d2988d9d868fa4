"""``catalog serve`` as a process of its own: started, found, asked, stopped, killed."""

import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from catalog.core.errors import ConfigError
from catalog.core.files import settings_key
from catalog.core.settings import Settings
from catalog.embedding.model import EmbeddingModel
from catalog.interfaces.calls import LocalEngine
from catalog.interfaces.home_socket import ServerGoneError, server_of
from catalog.interfaces.server import asgi as run
from catalog.interfaces.server.listen import bind_socket
from catalog.interfaces.server.security import Address
from catalog.library.indexing import Indexer
from catalog.library.library import Library
from fakes import WordEncoder
from interfaces.server.conftest import Remote
from processes import Forked

SCRIPT = Path(__file__).with_name("serve_words.py")
GET = ("get", {"reference": "bread.txt"})


def environment(home, **more):
    return {
        "PYTHONPATH": os.pathsep.join(sys.path), "PATH": "", "HOME": str(home),
        "IDX_HOME": str(home), **more,
    }  # fmt: skip


def start(home, *options, **more):
    return Forked(
        [str(SCRIPT), "serve", *options],
        env=environment(home, **more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def own_engine(home):
    return LocalEngine(Library(Settings(home=home), model=EmbeddingModel(WordEncoder())))


@pytest.fixture
def built(home, notes):
    """The home of a store of three notes, with the settings a command has by itself."""
    with own_engine(home) as engine:
        Indexer(engine.library).build(notes, "notes")
    return home


@pytest.fixture
def serve(built):
    """Starts a server of the store and waits until it listens; all are gone at the end."""
    started = []

    def go(*options, **more):
        server = start(built, *(options or ("--http", "127.0.0.1:0")), **more)
        started.append(server)
        server.said = server.stdout.readline()
        assert server.said, server.communicate()[1]
        return server

    yield go
    for server in started:
        server.kill()
        server.communicate()


def ended(server, seconds=30):
    """Exit code and standard error."""
    _, err = server.communicate(timeout=seconds)
    return server.returncode, err


@pytest.mark.slow
def test_the_page_is_opened_in_the_browser_or_left_out(serve, built, tmp_path):
    browser, seen = tmp_path / "browser", tmp_path / "seen"
    told = f'echo "$1" > {seen}.part && mv {seen}.part {seen} && exec sleep 20 > /dev/null 2>&1'
    browser.write_text(f"#!/bin/sh\n{told}\n")
    browser.chmod(0o700)
    server = serve("--http", "127.0.0.1:0", "--open", BROWSER=str(browser), PATH=os.defpath)
    until = time.monotonic() + 20
    while not seen.exists() and time.monotonic() < until:
        time.sleep(0.05)
    address = seen.read_text().strip()
    assert f" on {address} (the page" in server.said
    assert "yeast" in httpx.get(address, params={"q": "yeast"}).text  # while the browser runs
    server.terminate()
    assert ended(server) == (0, "")
    bare = serve("--http", "127.0.0.1:0", "--no-page")
    assert "(/v1, /mcp)" in bare.said
    found = server_of(built)
    assert httpx.get(f"http://127.0.0.1:{found.port}/").status_code == 404


def test_a_page_that_is_left_out_cannot_be_opened(built):
    server = start(built, "--no-page", "--open")
    code, err = ended(server)
    assert code == 2
    assert "--no-page" in err


@pytest.mark.slow
@pytest.mark.parametrize("stopping", [signal.SIGTERM, signal.SIGINT])
def test_it_is_announced_answers_and_leaves_nothing_when_it_is_stopped(serve, built, stopping):
    server = serve()
    found = server_of(built)
    assert server.said == (
        f"serving {built} on http://127.0.0.1:{found.port} "
        "(the page, /v1, /mcp); stop with Ctrl-C\n"
    )
    assert found.pid == server.pid
    assert found.key == settings_key(built, None, {})
    assert stat.S_IMODE((built / "serve.sock").stat().st_mode) == 0o600
    url = f"http://127.0.0.1:{found.port}"
    assert httpx.get(f"{url}/v1/health").json()["status"] == "ok"
    answer = httpx.get(f"{url}/v1/search", params={"q": "yeast", "top_k": 1})
    assert answer.json()["results"][0]["path"] == "bread.txt"
    assert httpx.get(f"{url}/v1/health", headers={"host": "evil.example"}).status_code == 421
    remote = Remote(built, found.key)
    assert remote.ask(*GET)["path"] == "bread.txt"
    server.send_signal(stopping)
    assert ended(server) == (0, "")
    assert not (built / "serve.sock").exists()
    with pytest.raises(ServerGoneError):
        remote.ask(*GET)


def test_a_port_that_is_taken_is_reported_with_the_way_out(home, engine):
    home.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError) as raised:
            run.serve(engine, Address("127.0.0.1", port), home, "key")
    assert f"cannot listen on 127.0.0.1:{port} (Address already in use)" in str(raised.value)
    assert "--http 127.0.0.1:0" in str(raised.value)
    assert server_of(home) is None


def test_an_answer_in_pieces_does_not_wait_for_each_to_be_acknowledged():
    with bind_socket(Address("127.0.0.1", 0)) as listening:
        # of other sockets asyncio does not see that they are TCP, and leaves Nagle's algorithm on
        assert listening.proto == socket.IPPROTO_TCP


@pytest.mark.slow
def test_a_token_opens_the_public_part_and_the_owner_needs_none(serve, built):
    token = "a token of some length"
    serve("--http", "0.0.0.0:0", IDX_SERVE__TOKEN=token)
    found = server_of(built)
    url = f"http://127.0.0.1:{found.port}/v1/status"
    assert httpx.get(url).status_code == 401
    assert httpx.get(url, headers={"authorization": f"Bearer {token}"}).status_code == 200
    remote = Remote(built, found.key)
    assert remote.ask(*GET)["path"] == "bread.txt"


def slowly(built, gate):
    """A search that has begun and does not end before the gate is there."""
    answers = []
    url = f"http://127.0.0.1:{server_of(built).port}/v1/search"

    def ask():
        try:
            found = httpx.get(url, params={"q": "slowly baked bread"}, timeout=30)
            answers.append((found.status_code, found.json().get("error", {}).get("kind")))
        except httpx.HTTPError as error:
            answers.append(type(error))

    thread = threading.Thread(target=ask)
    thread.start()
    while not gate.with_suffix(".waiting").exists():
        thread.join(0.01)
        assert not answers
    return thread, answers


@pytest.mark.slow
def test_a_request_that_runs_when_it_is_stopped_is_answered(serve, built, tmp_path):
    gate = tmp_path / "gate"
    server = serve(TEST_GATE=str(gate))
    thread, answers = slowly(built, gate)
    server.send_signal(signal.SIGTERM)
    gate.touch()
    thread.join(20)
    assert answers == [(200, None)]
    assert ended(server) == (0, "")


@pytest.mark.slow
def test_a_request_that_does_not_end_holds_it_up_no_longer_than_its_grace(serve, built, tmp_path):
    gate = tmp_path / "gate"
    server = serve(TEST_GATE=str(gate), TEST_GRACE="1")
    thread, answers = slowly(built, gate)
    server.send_signal(signal.SIGTERM)
    assert ended(server)[0] == 0
    assert not gate.exists()
    thread.join(20)
    assert answers == [(503, "Stopping")]
    assert not (built / "serve.sock").exists()


@pytest.mark.slow
def test_a_store_put_in_the_place_of_the_one_it_opened_is_not_answered_from(serve, built):
    serve()
    url = f"http://127.0.0.1:{server_of(built).port}/v1/search"
    assert httpx.get(url, params={"q": "yeast"}).status_code == 200
    (built / "catalog.db").touch()  # what is written to the file does not matter
    assert httpx.get(url, params={"q": "yeast"}).status_code == 200
    copy = built / "copy.db"
    copy.write_bytes((built / "catalog.db").read_bytes())
    copy.replace(built / "catalog.db")
    refused = httpx.get(url, params={"q": "yeast"})
    assert refused.status_code == 503
    assert refused.json()["error"]["kind"] == "StoreReplacedError"
    (built / "catalog.db").unlink()
    assert httpx.get(url, params={"q": "yeast"}).json()["error"]["kind"] == "StoreReplacedError"


def test_what_keeps_it_from_being_announced_is_one_sentence(built):
    (built / "serve.sock").mkdir()
    code, err = ended(start(built, "--http", "127.0.0.1:0"))
    assert code == 1
    assert err == f"catalog: cannot announce the server in {built / 'serve.sock'}: Is a directory\n"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_it_serves_though_nothing_can_be_written_to_standard_output(built):
    command = f"exec '{sys.executable}' '{SCRIPT}' serve --http 127.0.0.1:0 >/dev/full"
    server = subprocess.Popen(
        ["/bin/sh", "-c", command], env=environment(built), stderr=subprocess.PIPE, text=True
    )
    try:
        while server_of(built) is None:
            assert server.poll() is None
            threading.Event().wait(0.05)
    finally:
        server.send_signal(signal.SIGTERM)
        code, err = ended(server)
    assert (code, err) == (0, "")


@pytest.mark.slow
def test_connections_that_do_not_fit_are_reported_in_one_line(built):
    command = f"ulimit -n 48; exec '{sys.executable}' '{SCRIPT}' serve --http 127.0.0.1:0"
    server = subprocess.Popen(
        ["/bin/sh", "-c", command],
        env=environment(built),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    kept = []
    try:
        assert server.stdout.readline()
        where = ("127.0.0.1", server_of(built).port)
        httpx.get(f"http://127.0.0.1:{where[1]}/v1/search", params={"q": "yeast"})  # all is loaded
        kept = [socket.create_connection(where, 20) for _ in range(60)]
        line = server.stderr.readline()
    finally:
        for one in kept:
            one.close()
        server.send_signal(signal.SIGTERM)
        code, err = ended(server)
    assert "new connections wait: Too many open files; raise the limit on open files" in line
    assert code == 0
    assert "Traceback" not in err


@pytest.mark.slow
def test_agents_reach_it_and_its_most_talkative_log_has_no_query(serve, built):
    server = serve(IDX_LOG_LEVEL="DEBUG")
    root = f"http://127.0.0.1:{server_of(built).port}"
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    accept = {"accept": "application/json, text/event-stream"}

    def post(method, params, **headers):
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return httpx.post(f"{root}/mcp", json=body, headers=accept | headers, timeout=30)

    begun = post("initialize", hello)
    assert '"serverInfo"' in begun.text
    found = post("tools/call", {"name": "search", "arguments": {"query": "zymurgy"}})
    assert "zymurgy" in found.text or '"result"' in found.text
    assert httpx.get(f"{root}/v1/search", params={"q": "zymurgy"}).status_code == 200
    assert httpx.get(f"{root}/v1/documents/zymurgy.md").status_code == 404
    assert post("initialize", hello, origin="https://evil.example").status_code == 403
    server.send_signal(signal.SIGTERM)
    code, err = ended(server)
    assert code == 0
    assert "GET /v1/search 200 in" in err
    assert "zymurgy" not in err


def wait_until(holds, seconds=30):
    """Wait until it holds."""
    pauses = threading.Event()
    for _ in range(seconds * 50):
        if holds():
            return
        pauses.wait(0.02)
    raise AssertionError("it never came to hold")


def port_of(server):
    return int(re.search(r":(\d+) ", server.said)[1])


@pytest.mark.slow
def test_after_the_first_signal_it_answers_on_and_after_a_second_one_it_ends(serve):
    server = serve(IDX_SERVE__DRAIN_SECONDS="600")
    url = f"http://127.0.0.1:{port_of(server)}"
    wait_until(lambda: httpx.get(f"{url}/v1/ready").status_code == 200)
    server.send_signal(signal.SIGTERM)
    wait_until(lambda: httpx.get(f"{url}/v1/ready").status_code == 503)
    answer = httpx.get(f"{url}/v1/search", params={"q": "yeast", "top_k": 1})
    assert answer.json()["results"][0]["path"] == "bread.txt"
    server.send_signal(signal.SIGTERM)
    assert ended(server) == (0, "")


class Balancer:
    """Sends requests one after the other to the servers that said that they are ready."""

    def __init__(self):
        self.servers, self.statuses, self._ends = {}, [], threading.Event()
        self._thread = threading.Thread(target=self._send)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ends.set()
        self._thread.join(30)

    def _send(self):
        while not self._ends.is_set():
            for name, url in list(self.servers.items()):
                with suppress(httpx.ConnectError):
                    if httpx.get(f"{url}/v1/ready").status_code == 200:
                        query = {"q": "yeast", "top_k": 1}
                        self.statuses.append((name, self._status(f"{url}/v1/search", query)))

    def _status(self, url, query):
        try:
            return httpx.get(url, params=query).status_code
        except httpx.HTTPError as error:
            return type(error).__name__

    def has_answer_of(self, name):
        return (name, 200) in self.statuses


@pytest.mark.slow
def test_no_request_fails_while_two_servers_of_a_store_restart(serve, built, tmp_path):
    def other_home(name):
        return {
            "IDX_HOME": str(tmp_path / name),
            "IDX_DATABASE_URL": f"sqlite:///{built}/catalog.db",
            "IDX_SERVE__DRAIN_SECONDS": "1",
        }

    with Balancer() as balancer:
        running = {}
        for turn, name in enumerate(("first", "second", "first", "second")):
            if name in running:
                running[name].send_signal(signal.SIGTERM)
                assert ended(running[name]) == (0, "")
            running[name] = serve(**other_home(name))
            balancer.servers[f"{name} {turn}"] = f"http://127.0.0.1:{port_of(running[name])}"
            wait_until(lambda turn=turn, name=name: balancer.has_answer_of(f"{name} {turn}"))
    assert {status for _, status in balancer.statuses} == {200}
