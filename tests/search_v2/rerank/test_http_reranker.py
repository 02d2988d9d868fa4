"""A rerank server, played by a small one in a thread."""

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from time import monotonic, sleep

import pytest

from catalog.core.errors import ConfigError, RerankError
from catalog.core.settings import RAGv2Settings
from catalog.retrieval.rerank import get_reranker
from catalog.retrieval.rerank.http import HttpReranker
from tables import table

GOOD = {
    "results": [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.25}],
    "meta": {},
}


class Server(HTTPServer):
    """Answers every request alike and keeps what it was sent."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.status, self.answer, self.headers = 200, json.dumps(GOOD), {}
        self.requests = []
        self.pause = 0.0  # seconds between the bytes of an answer
        self.slow_head = False  # the pauses are in the headers
        self.closing = threading.Event()
        self.silent = threading.Event()  # set: answers come at once
        self.silent.set()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/v2/rerank"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.path, self.headers, json.loads(body)))
        self.server.silent.wait(20)
        if self.server.slow_head:
            with contextlib.suppress(OSError):  # the client has gone
                self._write(b"HTTP/1.0 200 OK\r\nX-Filler: " + b"x" * 120 + b"\r\n\r\n")
            return
        self.send_response(self.server.status)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.end_headers()
        try:
            self._write(self.server.answer.encode())
        except OSError:
            return  # the client has gone

    def _write(self, content):
        if not self.server.pause:
            self.wfile.write(content)
            return
        for byte in content:
            self.wfile.write(bytes([byte]))
            self.wfile.flush()
            self.server.closing.wait(self.server.pause)

    def log_message(self, *_args):
        return


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.silent.set()
        running.closing.set()
        running.shutdown()
        thread.join()


def reranker(server, **settings):
    return HttpReranker(server.url, **{"model": "m", "api_key": "SECRET"} | settings)


def test_scores_come_in_the_order_of_the_passages(server):
    asked = reranker(server)
    assert asked.scores("the query", ["one", "two"]) == [0.25, 0.9]
    assert asked.relevance(0.25) == 0.25
    ((path, headers, body),) = server.requests
    assert path == "/v2/rerank"
    assert headers["Authorization"] == "Bearer SECRET"
    assert body == {"model": "m", "query": "the query", "documents": ["one", "two"], "top_n": 2}


@table("answer")
def test_other_servers_forms_of_answer_are_read(server, answer):
    server.answer = json.dumps(answer)
    assert reranker(server).scores("q", ["one", "two"]) == [0.25, 0.9]


def test_logits_stay_raw_and_their_sigmoid_is_the_relevance(server):
    server.answer = json.dumps([{"index": 0, "score": -1.0}, {"index": 1, "score": 0.0}])
    asked = reranker(server)
    assert asked.scores("q", ["one", "two"]) == [-1.0, 0.0]
    # 1 / (1 + e)
    assert [asked.relevance(raw) for raw in (-1.0, 0.0)] == pytest.approx([0.268941, 0.5], abs=1e-6)
    server.answer = json.dumps([{"index": 0, "score": 0.0}])  # once logits, they stay logits
    assert (asked.scores("q", ["one"]), asked.relevance(0.0)) == ([0.0], 0.5)
    fresh = HttpReranker("http://a", model="m")
    assert (fresh.relevance(1000.0), fresh.relevance(-1000.0)) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("no JSON", "not with valid JSON"),
        ("[" * 100_000, "not with valid JSON"),
        ('[{"index": 0, "score": 0.1}, {"index": 1, "score": 1' + "0" * 400 + "}]", "not a number"),
        ("{}", "without a list"),
        ('{"results": 3}', "without a list"),
        ('{"results": [1, 2]}', "without a list"),
        ('[{"index": 0, "score": 0.1}]', "each of 2 documents once"),
        ('[{"index": 0, "score": 0.1}, {"index": 0, "score": 0.2}]', "once"),
        ('[{"index": 0, "score": 0.1}, {"index": 2, "score": 0.2}]', "once"),
        ('[{"index": 0, "score": 0.1}, {"score": 0.2}]', "once"),
        ('[{"index": 0, "score": 0.1}, {"index": 1}]', "not a number"),
        ('[{"index": 0, "score": 0.1}, {"index": 1, "score": NaN}]', "not finite"),
    ],
)
def test_an_answer_that_cannot_be_used_is_an_error(server, answer, said):
    server.answer = answer
    with pytest.raises(RerankError, match=said) as raised:
        reranker(server).scores("q", ["SENSITIVE", "two"])
    assert f"127.0.0.1:{server.server_port}" in str(raised.value)


@pytest.mark.parametrize("status", [400, 401, 429, 500])
def test_a_refusal_names_host_and_status_and_no_secret(server, status):
    server.status, server.answer = status, '{"error": "SENSITIVE SECRET"}'
    with pytest.raises(RerankError) as raised:
        reranker(server).scores("q", ["SENSITIVE"])
    said = str(raised.value)
    assert f"127.0.0.1:{server.server_port} answered with status {status}" in said
    assert "SECRET" not in said
    assert "SENSITIVE" not in said


def test_a_redirect_is_not_followed(server):
    with Server() as other:
        server.status, server.headers = 307, {"Location": other.url}
        with pytest.raises(RerankError, match="status 307"):
            reranker(server).scores("q", ["one"])
        assert other.requests == []
    assert len(server.requests) == 1


def test_a_server_that_does_not_answer_is_given_up(server):
    server.silent.clear()
    with pytest.raises(RerankError, match=r"did not answer in 0\.05 s"):
        reranker(server, timeout_seconds=0.05).scores("q", ["one"])
    rag = RAGv2Settings(rerank_provider="http", rerank_url=server.url, rerank_budget_ms=50)
    with pytest.raises(RerankError, match=r"did not answer in 0\.05 s"):
        get_reranker(rag).scores("q", ["one"])


@pytest.mark.parametrize("slow_head", [False, True])
def test_an_answer_that_trickles_in_is_given_up(server, slow_head):
    server.slow_head = slow_head
    server.pause = 0.01  # over a hundred bytes: each in time, and all of them not
    asked = reranker(server, timeout_seconds=0.3)
    with pytest.raises(RerankError, match=r"did not answer in 0\.3 s"):
        asked.scores("q", ["one", "two"])


@pytest.mark.parametrize("slow_head", [False, True])
def test_a_server_that_drips_for_ever_gives_its_slot_back(server, slow_head):
    server.slow_head, server.pause = slow_head, 0.2  # some 25 seconds in all
    asked = reranker(server, timeout_seconds=0.3)
    with pytest.raises(RerankError, match="did not answer"):
        asked.scores("q", ["one", "two"])
    deadline = monotonic() + 12
    while (running := asked._server._calls.abandoned) and monotonic() < deadline:
        sleep(0.01)
    assert running == 0


def test_an_answer_that_is_too_large_is_not_read(server):
    server.answer = " " * 20_000_000 + json.dumps(GOOD)
    with pytest.raises(RerankError, match="over 20000000 bytes"):
        reranker(server).scores("q", ["one", "two"])


def test_no_server_at_all_is_a_rerank_error(server):
    with Server() as gone:
        url = gone.url
    with pytest.raises(RerankError, match="cannot be reached"):
        HttpReranker(url, model="m").scores("q", ["one"])
    with pytest.raises(RerankError, match="cannot be reached"):
        reranker(server).scores("q", ["a lone surrogate \ud800"])
    assert server.requests == []


def test_a_password_in_the_address_is_never_named(server):
    server.status = 500
    url = server.url.replace("127.0.0.1", "user:SECRET@127.0.0.1")
    with pytest.raises(RerankError, match="status 500") as raised:
        HttpReranker(url, model="m").scores("q", ["one"])
    assert "SECRET" not in str(raised.value)
    assert (
        HttpReranker(url, model="m").fingerprint == HttpReranker(server.url, model="m").fingerprint
    )


def test_the_fingerprint_names_server_and_model():
    one = HttpReranker("http://a/rerank", model="m", api_key="x").fingerprint
    assert one == HttpReranker("http://a/rerank", model="m", api_key="y").fingerprint
    assert one != HttpReranker("http://b/rerank", model="m").fingerprint
    assert one != HttpReranker("http://a/rerank", model="n").fingerprint
    assert one != HttpReranker("https://a/rerank", model="m").fingerprint
    assert one != HttpReranker("http://a/rerank?index=2", model="m").fingerprint


def test_a_long_passage_is_cut_before_it_is_sent():
    text, cut = HttpReranker("http://a", model="m", max_tokens=64).fit("q", "words " * 300)
    assert cut
    assert 200 < len(text) <= 64 * 4


@table("url")
def test_an_invalid_address_names_the_setting_to_correct(url):
    with pytest.raises(ConfigError, match="IDX_RAG_V2__RERANK_URL") as raised:
        HttpReranker(url, model="m")
    assert raised.value.__context__ is None  # that would quote the password


@pytest.mark.slow
def test_the_http_provider_needs_an_address(server):
    with pytest.raises(ConfigError, match="IDX_RAG_V2__RERANK_URL"):
        get_reranker(RAGv2Settings(rerank_provider="http"))
    rag = RAGv2Settings(
        rerank_provider="http", rerank_url=server.url, rerank_api_key="k", rerank_model="big"
    )
    assert get_reranker(rag).scores("q", ["one", "two"]) == [0.25, 0.9]
    assert server.requests[0][2]["model"] == "big"
    assert server.requests[0][1]["Authorization"] == "Bearer k"
    reranker(server, api_key=None).scores("q", ["one", "two"])
    assert server.requests[1][1]["Authorization"] is None
