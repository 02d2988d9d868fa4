"""``catalog serve`` under mixed requests and updates: no failure, and nothing that only grows.

150 requests and two updates; with ``IDX_TEST_CHAOS_SECONDS`` 10,000 requests and an update every
second. ``pytest -s`` shows the figures.
"""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import psutil
import pytest

from catalog.core.settings import Settings
from catalog.embedding.model import EmbeddingModel
from catalog.interfaces.home_socket import server_of
from catalog.library.indexing import Indexer
from catalog.library.library import Library
from fakes import WordEncoder
from processes import Forked
from reliability.chaos import seeds

LONG = bool(os.environ.get("IDX_TEST_CHAOS_SECONDS"))
REQUESTS, BATCH = (10_000, 25) if LONG else (150, 10)
CLIENTS = 4
SERVER = Path(__file__).parents[1] / "interfaces" / "server" / "serve_words.py"
SUBJECTS = ["kettle", "bread", "backup", "garden", "harbour", "letter", "engine", "violin"]
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "soak", "version": "1"},
    },
}
HALVES = (
    b"GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ",
    b"POST /v1/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{",
)


class Usage(NamedTuple):
    """What the server holds: resident bytes, open handles, threads."""

    memory: int
    handles: int
    threads: int


def found(**arguments):
    return 200, "POST", "/v1/search", {"json": {"query": "kettle bread", "top_k": 3, **arguments}}


FOUND = [
    found(mode="lexical"),
    found(mode="vector"),
    found(mode="hybrid"),
    found(query='"the kettle" -violin', explain=True),
    found(query="lex: bread / vec: garden"),
    found(filters=["file_type=md"], docs=["notes:*/page-1.md"]),
    (200, "GET", "/v1/search?q=harbour&top_k=2&mode=lexical", {}),
    (200, "GET", "/v1/documents/bread/page-1.md", {}),
    (200, "GET", "/v1/documents/notes:kettle/page-2.md:2-4?max_bytes=200", {}),
    (200, "GET", "/v1/documents/changing.md", {}),
    (200, "POST", "/v1/documents", {"json": {"patterns": ["garden/*.md"], "max_bytes": 5_000}}),
    (200, "GET", "/v1/documents?limit=5&sort=modified", {}),
    (200, "GET", "/v1/status", {}),
    (200, "GET", "/v1/health", {}),
]
REFUSED = [
    found(top_k=0)[1:],
    found(filters=["=ops"])[1:],
    found(query="")[1:],
    found(dataset="nobody")[1:],
    ("POST", "/v1/search", {"content": b"{"}),
    ("POST", "/v1/search", {"content": b"[" * 200_000}),
    ("POST", "/v1/search", {"content": b" " * 1_000_001}),
    ("GET", "/v1/documents/kettel/page-1.md", {}),
    ("GET", "/v1/documents/x:" + "9" * 5_000, {}),
    ("GET", "/v1/documents/..%2f..%2fetc%2fpasswd", {}),
    ("POST", "/v1/documents", {"json": {"patterns": []}}),
    ("GET", "/v1/documents?filters=%00", {}),
    ("DELETE", "/v1/documents/bread/page-1.md", {}),
    ("GET", "/v1/nothing", {}),
    ("GET", "/v1/status", {"headers": {"Host": "evil.example"}}),
]


@contextmanager
def serving(home, log):
    """A server process of the store; yields it and its address."""
    environment = {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "HOME": str(home),
        "IDX_HOME": str(home),
    }
    server = Forked(
        [str(SERVER), "serve", "--http", "127.0.0.1:0"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
    )
    try:
        assert server.stdout.readline().startswith("serving")
        yield server, f"http://127.0.0.1:{server_of(home).port}"
    finally:
        server.kill()
        server.communicate()


class Corpus:
    """Documents that stay, one that every update changes, and guests that come and go."""

    def __init__(self, folder, home):
        self.folder, self.round = folder, 0
        library = Library(Settings(home=home), model=EmbeddingModel(WordEncoder()))
        self._library, self._indexer = library, Indexer(library)
        for subject in SUBJECTS:
            (folder / subject).mkdir(parents=True)
            for page in range(4):
                text = f"The {subject} of the {SUBJECTS[page]}, told in full. " * 20
                (folder / subject / f"page-{page}.md").write_text(f"# {subject}\n\n{text}\n")
        self.change()
        self._indexer.build(folder, "notes")

    def change(self):
        self.round += 1
        (self.folder / "changing.md").write_text(f"# Changing\n\n{self.word} of the kettle.\n")
        (self.folder / f"guest-{self.round % 3}.txt").write_text(f"Guest {self.round} came.\n")
        (self.folder / f"guest-{(self.round + 1) % 3}.txt").unlink(missing_ok=True)

    def update(self):
        self.change()
        report = self._indexer.update("notes")
        assert not report.failed

    @property
    def word(self):
        return f"roundword{self.round}"

    def close(self):
        self._library.close()


class Client:
    """Sends one request after another, chosen by the seed; half-sent ones stay open for a while."""

    def __init__(self, url, seed):
        self._http = httpx.Client(base_url=url, timeout=60)
        self._address = ("127.0.0.1", self._http.base_url.port)
        self._random, self._halves = random.Random(seed), deque()
        self.seed, self.answers = seed, Counter()

    def choose(self):
        kind = self._random.choices(["found", "refused", "half", "agent"], [14, 4, 1, 1])[0]
        choices = {"found": FOUND, "refused": REFUSED, "half": HALVES, "agent": [None]}[kind]
        return kind, self._random.choice(choices)

    def send(self, kind, request):
        if kind == "half":
            half = socket.create_connection(self._address, timeout=60)
            half.sendall(request)
            self._halves.append(half)
            return
        if kind == "agent":
            self._call_as_agent()
            return
        expected, method, path, more = request if kind == "found" else (None, *request)
        answer = self._http.request(method, path, **more)
        self.answers[answer.status_code] += 1
        told = f"{method} {path[:80]}: {answer.status_code} {answer.text[:200]}, seed {self.seed}"
        if expected is None:
            assert 400 <= answer.status_code < 500, told
        else:
            assert answer.status_code == expected, told

    def _call_as_agent(self):
        """Call as agents do, who have no session to end."""
        headers = {"Accept": "application/json, text/event-stream"}
        called = self._http.post("/mcp", json=INITIALIZE, headers=headers)
        ended = self._http.delete("/mcp", headers=headers)
        assert (called.status_code, ended.status_code) == (200, 405), f"seed {self.seed}"

    def first_path(self, word):
        answer = self._http.get("/v1/search", params={"q": word, "mode": "lexical"})
        return answer.json()["results"][0]["path"]

    def drop_halves(self, keep):
        while len(self._halves) > keep:
            self._halves.popleft().close()

    def close(self):
        self.drop_halves(0)
        self._http.close()


def usage(process):
    with process.oneshot():
        return Usage(process.memory_info().rss, process.num_fds(), process.num_threads())


def is_update_due(batch, since):
    return time.monotonic() - since >= 1 if LONG else batch in (5, 10)


def soak(client, corpus, process):
    """Send each request once, then mixed ones with updates; return the usage after each batch."""
    for kind, requests in (("found", FOUND), ("refused", REFUSED), ("agent", [None])):
        for request in requests:
            client.send(kind, request)
    measured, updated = [], time.monotonic()
    with ThreadPoolExecutor(CLIENTS) as pool:
        for batch in range(REQUESTS // BATCH):
            chosen = [client.choose() for _ in range(BATCH)]
            sent = [pool.submit(client.send, *request) for request in chosen]
            if is_update_due(batch, updated):
                updated = time.monotonic()
                corpus.update()
                assert client.first_path(corpus.word) == "changing.md"
            for one in sent:
                one.result()
            client.drop_halves(keep=4)
            measured.append(usage(process))
    return measured


@pytest.fixture
def corpus(tmp_path):
    corpus = Corpus(tmp_path / "notes", tmp_path / "home")
    yield corpus
    corpus.close()


@pytest.mark.slow
def test_a_busy_server_neither_fails_nor_grows(corpus, tmp_path):
    log, began = tmp_path / "serve.log", time.monotonic()
    with log.open("w") as errors, serving(tmp_path / "home", errors) as (server, url):
        client = Client(url, next(seeds()))
        try:
            measured = soak(client, corpus, psutil.Process(server.pid))
        finally:
            client.close()
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
    assert log.read_text() == ""
    warm = measured[len(measured) // 5 :]
    middle = len(warm) // 2
    before = Usage(*map(max, zip(*warm[:middle], strict=True)))
    after = Usage(*map(max, zip(*warm[middle:], strict=True)))
    told = f"seed {client.seed}, {corpus.round - 1} updates, {dict(client.answers)}"
    print(f"{told}, {time.monotonic() - began:.0f} s: {measured[0]}, {before}, {after}")
    assert after.memory < 1.1 * before.memory, f"{told}: {before}, then {after}"
    assert after.handles <= before.handles + 8, f"{told}: {before}, then {after}"
    assert after.threads <= before.threads + 4, f"{told}: {before}, then {after}"
