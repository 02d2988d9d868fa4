"""Nobody who may call can hold up, fill up or misread the server: the edges of D4.13."""

import asyncio
import socket
import subprocess
import sys
import threading
import traceback
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path

import httpx
import pytest
import uvicorn

from catalog.core.errors import ConfigError, InputError
from catalog.core.settings import ServeSettings, load_settings
from catalog.interfaces import calls
from catalog.interfaces.calls import LocalEngine
from catalog.interfaces.server.asgi import build_app
from catalog.interfaces.server.listen import MAX_CONNECTIONS, BoundedConnection
from catalog.interfaces.server.security import Address
from catalog.library.get import find_alike
from catalog.library.indexing import Indexer
from catalog.store import Database
from fakes import open_library, write
from reliability.chaos import seeds


@pytest.mark.slow
def test_no_text_of_a_request_takes_longer_than_its_length_lets_it():
    child = Path(__file__).with_name("request_parsers.py")
    for seed in seeds():
        command = [sys.executable, str(child), "6000", str(seed)]
        run = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        lines = run.stdout.splitlines() or [""]
        assert lines[-1] == "all parsed", f"seed {seed}: {lines[-1]} {run.stderr[-500:]}"


HOST = b"Host: 127.0.0.1\r\n"
HALF_HEAD = b"GET /v1/status HTTP/1.1\r\n" + HOST + b"X-Slow: "
HALF_BODY = b"POST /v1/search HTTP/1.1\r\n" + HOST + b"Content-Length: 100\r\n\r\n{"


class StubEngine:
    """Has no dataset, and answers nothing."""

    def ask(self, verb, arguments):
        return {"datasets": []}

    def observe(self, observer):
        """Nothing is asked that could be told of."""


@contextmanager
def serving(protocol=BoundedConnection):
    """Our app on a free port, in a thread; yields the port."""
    app = build_app(StubEngine(), Address("127.0.0.1", 8180), ServeSettings())
    config = uvicorn.Config(app, http=protocol, log_config=None, limit_concurrency=MAX_CONNECTIONS)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0), backlog=MAX_CONNECTIONS) as listening:
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(60)
            assert not thread.is_alive()


def open_half(port, text):
    half = socket.create_connection(("127.0.0.1", port), timeout=60)
    half.sendall(text)
    return half


def health_status(port):
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    with closing(connection):
        connection.request("GET", "/v1/health")
        return connection.getresponse().status


@pytest.mark.parametrize("half", [HALF_HEAD, HALF_BODY, b""], ids=["head", "body", "nothing"])
def test_a_request_whose_rest_does_not_come_is_ended(half):
    protocol = type("Hasty", (BoundedConnection,), {"head_seconds": 0.2, "body_seconds": 0.2})
    with serving(protocol) as port, open_half(port, half) as connection:
        answer = b"".join(iter(lambda: connection.recv(4096), b""))  # until it is closed
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"RequestTimeout" in answer


@pytest.mark.slow
def test_hundreds_of_half_sent_requests_delay_no_other_request():
    with serving() as port, ExitStack() as stack:
        for text in (HALF_HEAD, HALF_BODY) * (MAX_CONNECTIONS // 2):
            stack.enter_context(open_half(port, text))
        assert health_status(port) == 200


@pytest.mark.slow
def test_the_connection_in_use_is_not_the_one_given_up_for_another():
    protocol = type("Narrow", (BoundedConnection,), {"max_waiting": 2})
    with serving(protocol) as port, ExitStack() as stack:
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        stack.enter_context(closing(connection))
        for _ in range(20):  # one connection, between others that are never whole
            connection.request("GET", "/v1/health")
            assert connection.getresponse().read()
            stack.enter_context(open_half(port, HALF_HEAD))
        assert health_status(port) == 200


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """An engine on twelve documents of a thousand bytes."""
    folder = tmp_path_factory.mktemp("bounds")
    write(folder / "notes", **{f"n{i:02}_dot_md": f"{'rose ' * 199}{i:04}\n" for i in range(12)})
    with LocalEngine(open_library(folder / "home")) as engine:
        Indexer(engine.library).build(folder / "notes", "notes")
        yield engine


def test_an_answer_has_limited_text_and_says_how_to_continue(store, monkeypatch):
    monkeypatch.setattr(calls.verbs, "MAX_TEXT_BYTES", 5_000)
    answer = store.ask("multi_get", {"patterns": ["**"], "limit": 1000})
    assert [document["path"] for document in answer["documents"]] == [
        f"n{i:02}.md" for i in range(5)
    ]
    assert [skipped["path"] for skipped in answer["skipped"]] == [
        f"n{i:02}.md" for i in range(5, 12)
    ]
    assert answer["notes"] == [
        "a reply has at most 5,000 bytes of text: get the 7 documents left out by their paths"
    ]
    rest = store.ask("multi_get", {"patterns": [s["path"] for s in answer["skipped"]]})
    assert len(rest["documents"]) == 5


def test_a_call_has_a_limited_number_of_patterns_of_limited_length(store):
    paths = [f"n{i:02}.md" for i in range(12)]
    found = store.ask("multi_get", {"patterns": [*paths, *(f"n{i:02}*" for i in range(12))]})
    assert len(found["documents"]) == 12
    for patterns in (paths + [f"n0{i}*" for i in range(101)], ["n*" * 1000]):
        with pytest.raises(InputError, match=r"patterns and #docids|too many for a path"):
            store.ask("multi_get", {"patterns": patterns})


def test_a_document_is_cut_at_the_most_an_answer_holds_though_no_size_is_asked(store, monkeypatch):
    monkeypatch.setattr(calls.verbs, "MAX_TEXT_BYTES", 500)
    answer = store.ask("get", {"reference": "n00.md"})
    assert len(answer["text"]) == 500
    assert answer["notes"] == ["only the first 500 bytes of line 1, which is longer"]


@pytest.mark.parametrize(
    "reference", [f"n00.md:{'9' * 5000}", f"n00.md:1-{'9' * 5000}", "n00.md:0"]
)
def test_lines_that_no_document_has_are_an_error_of_the_caller(store, reference):
    with pytest.raises(InputError):
        store.ask("get", {"reference": reference})


def test_a_misspelt_name_finds_the_most_similar_of_many():
    names = {f"reports/2024/quarter-{i:05}.md": [f"notes:{i}"] for i in range(5000)}
    assert find_alike("reports/2024/quartr-01234.md", names)[0] == "notes:1234"


def ask_http(engine, path):
    """Status and body of a GET to our app, in this process."""
    app = build_app(engine, Address("127.0.0.1", 8180), ServeSettings())

    async def send():
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.get(path)

    answer = asyncio.run(send())
    return answer.status_code, answer.json()


def test_a_number_of_thousands_of_digits_is_an_error_of_the_caller_over_http(store):
    status, body = ask_http(store, f"/v1/documents/n00.md:{'9' * 5000}")
    assert (status, body["error"]["kind"]) == (404, "DocumentNotFoundError")


@pytest.mark.parametrize("query", ["name=a&name=b", "limit=1&limit=2"])
def test_a_parameter_given_twice_is_refused_rather_than_half_heard(store, query):
    status, body = ask_http(store, f"/v1/documents?{query}")
    assert (status, body["error"]["kind"]) == (400, "InputError")
    assert "occurs 2 times" in body["error"]["message"]


SECRETS = {
    "IDX_RAG_V2__QDRANT_API_KEY": "SECRET-qdrant",
    "IDX_RAG_V2__RERANK_API_KEY": "SECRET-rerank",
    "IDX_LLM__API_KEY": "SECRET-llm",
    "IDX_SERVE__TOKEN": "SECRET-token-of-the-server",
}
WRONG = [
    {"IDX_RAG_V2__CHUNK_SIZE": "20", "IDX_RAG_V2__CHUNK_OVERLAP": "200"},
    {"IDX_RAG_V2__CHUNK_SIZE": "9" * 5000},
    {"IDX_SERVE__TOKEN": "SECRET"},
    {"IDX_SERVE__TOKEN": " " * 20},
    {"IDX_SERVE": "foo"},
    {"IDX_HOME__X": "1"},
    {"IDX_RAG_V2": "x"},
    {"IDX_RAG_V2__INGEST": "5", "IDX_RAG_V2__INGEST__MAX_PAGES": "4"},
]


@pytest.mark.parametrize("variables", WRONG, ids=lambda variables: next(iter(variables)))
def test_a_wrong_setting_is_reported_without_any_secret(monkeypatch, tmp_path, variables):
    for name, value in ({"IDX_HOME": str(tmp_path)} | SECRETS | variables).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as raised:
        load_settings()
    told = "".join(traceback.format_exception(raised.value))
    assert "SECRET" not in told
    assert len(str(raised.value)) < 300


def test_an_invalid_database_address_is_refused_without_repeating_it():
    address = f"user:{'5' * 10}@bogus"
    with pytest.raises(ConfigError) as raised:
        Database(address)
    assert "5" * 10 not in "".join(traceback.format_exception(raised.value))
