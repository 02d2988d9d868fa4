"""A language model's server that redirects, answers without a reply or floods: a failed call."""

import contextlib
import gzip
import json
import threading
import tracemalloc
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from llama_index.core.llms import ChatMessage

from catalog.core.errors import LLMError
from catalog.core.settings import LLMSettings
from catalog.llm import get_llm
from catalog.llm.replies import Reply

pytest.importorskip("llama_index.llms.openai_like", reason="pip install 'catalog[llm]'")
EVENTS = "text/event-stream"


def event(**fields):
    return f"data: {json.dumps({'id': 'x', 'object': 'chat.completion.chunk', **fields})}\n\n"


def said(text, finish=None):
    return event(choices=[{"index": 0, "delta": {"content": text}, "finish_reason": finish}])


@pytest.fixture
def server():
    """A server that sends ``answer`` (status, headers, body), and keeps what it was asked."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.server.asked.append((self.path, dict(self.headers), body))
            status, headers, content = self.server.answer
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            with contextlib.suppress(OSError):  # the client hung up
                self.wfile.write(content)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as opened:
        opened.asked = []
        thread = threading.Thread(target=opened.serve_forever)
        thread.start()
        yield opened
        opened.shutdown()
        thread.join()


def ask(server, answer):
    server.answer = answer
    url = f"http://127.0.0.1:{server.server_port}/v1"
    model = get_llm(LLMSettings(provider="openai", model="m", url=url))
    return "".join(Reply(model, [ChatMessage(content="SECRET passage")], 10.0))


def test_a_reply_is_read(server):
    whole = said("It is ") + said("so.", "stop") + "data: [DONE]\n\n"
    assert ask(server, (200, {"Content-Type": EVENTS}, whole.encode())) == "It is so."
    assert server.asked[0][1]["Accept-Encoding"] == "identity"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(server, status):
    place = f"http://localhost:{server.server_port}/elsewhere"
    with pytest.raises(LLMError, match=f"another address \\({status}\\)"):
        ask(server, (status, {"Location": place}, b""))
    assert [path for path, *_ in server.asked] == ["/v1/chat/completions"]


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("text/html", "<html><body>Log in</body></html>"),
        ("application/json", json.dumps({"choices": []})),
        (EVENTS, ""),
        (EVENTS, "data: [DONE]\n\n"),
        (EVENTS, event(choices=[]) + "data: [DONE]\n\n"),
        (EVENTS, said(" \n", "stop") + "data: [DONE]\n\n"),
        (EVENTS, said("", "stop") + "data: [DONE]\n\n"),
    ],
    ids=["HTML", "JSON", "nothing", "only an end", "no choices", "blanks", "no words"],
)
def test_an_answer_without_a_reply_is_a_failed_call(server, kind, content):
    with pytest.raises(LLMError, match="without a reply"):
        ask(server, (200, {"Content-Type": kind}, content.encode()))


@pytest.mark.parametrize("layers", [1, 2])
def test_a_compressed_answer_is_not_unpacked(server, layers):
    content = b"data: " + b" " * 30_000_000
    for _ in range(layers):
        content = gzip.compress(content)
    headers = {"Content-Type": EVENTS, "Content-Encoding": ", ".join(["gzip"] * layers)}
    server.answer = (200, headers, content)
    tracemalloc.start()
    try:
        with pytest.raises(LLMError, match="compressed"):
            ask(server, (200, headers, content))
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("status", [200, 500])
def test_an_endless_answer_is_read_no_further_than_its_bound(server, status):
    content = b"data: " + b"x" * 21_000_000
    with pytest.raises(LLMError, match="over 20000000 bytes"):
        ask(server, (status, {"Content-Type": EVENTS}, content))
