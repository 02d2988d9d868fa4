"""A language model's server that redirects, answers without a reply, or floods: a failed call."""

import contextlib
import gzip
import json
import os
import subprocess
import sys
import threading
import tracemalloc
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from catalog.core.errors import LLMError
from catalog.core.settings import LLMSettings
from catalog.library.indexing import Indexer
from catalog.llm import Message, complete, get_llm
from catalog.llm.replies import Reply
from fakes import open_library
from tables import table

EVENTS = "text/event-stream"


def event(**fields):
    return f"data: {json.dumps({'id': 'x', 'object': 'chat.completion.chunk', **fields})}\n\n"


def said(text, finish=None):
    return event(choices=[{"index": 0, "delta": {"content": text}, "finish_reason": finish}])


@pytest.fixture
def server():
    """A server that sends ``answers`` (status, headers, body) and then ``answer``.

    It keeps what it was asked.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.server.asked.append((self.path, dict(self.headers), body))
            answers = self.server.answers
            answer = answers.pop(0) if answers else self.server.answer
            status, headers, content = answer
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            with contextlib.suppress(OSError):  # the client hung up
                self.wfile.write(content)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as opened:
        opened.asked, opened.answers = [], []
        thread = threading.Thread(target=opened.serve_forever)
        thread.start()
        yield opened
        opened.shutdown()
        thread.join()


def model_of(server, **settings):
    url = f"http://127.0.0.1:{server.server_port}/v1"
    return get_llm(LLMSettings(provider="openai", model="m", url=url, **settings))


def read(server, answer, **settings):
    server.answer = answer
    return Reply(model_of(server, **settings), [Message("user", "SECRET passage")], 10.0)


def ask(server, answer, **settings):
    return "".join(read(server, answer, **settings))


def streamed(*events):
    return 200, {"Content-Type": EVENTS}, "".join([*events, "data: [DONE]\n\n"]).encode()


def body_of(asked):
    return json.loads(asked[2])


def test_a_reply_is_read_with_its_tokens(server):
    usage = event(choices=[], usage={"prompt_tokens": 7, "completion_tokens": 3})
    reply = read(server, streamed(said("It is "), said("so.", "stop"), usage))
    assert "".join(reply) == "It is so."
    assert (reply.usage, reply.is_cut) == ((7, 3), False)
    path, headers, _ = server.asked[0]
    assert path == "/v1/chat/completions"
    assert headers["Accept-Encoding"] == "identity"
    assert body_of(server.asked[0]) == {
        "model": "m",
        "messages": [{"role": "user", "content": "SECRET passage"}],
        "temperature": 0.0,
        "max_tokens": 400,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_only_the_key_that_is_set_is_sent(server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "for-another-server")
    ask(server, streamed(said("Yes.", "stop")))
    ask(server, streamed(said("Yes.", "stop")), api_key="secret")
    keys = [headers.get("Authorization") for _, headers, _ in server.asked]
    assert keys == [None, "Bearer secret"]


def test_a_server_that_does_not_stream_is_read(server):
    whole = {
        "choices": [{"message": {"content": "It is so."}, "finish_reason": "length"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3},
    }
    reply = read(server, (200, {"Content-Type": "application/json"}, json.dumps(whole).encode()))
    assert "".join(reply) == "It is so."
    assert (reply.usage, reply.is_cut) == ((7, 3), True)


@table("refusal, name, instead")
def test_an_option_that_a_server_refuses_is_left_out_from_then_on(server, refusal, name, instead):
    server.answers = [(400, {}, json.dumps({"error": {"message": refusal}}).encode())]
    server.answer = streamed(said("Yes.", "stop"))
    model = model_of(server)
    for _ in range(2):
        assert "".join(Reply(model, [Message("user", "Is it?")], 10.0)) == "Yes."
    assert [name in body_of(asked) for asked in server.asked] == [True, False, False]
    assert ("max_completion_tokens" in body_of(server.asked[-1])) == instead


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((401, {}, b"bad key sk-SECRET"), r"refused the key \(401\): check IDX_LLM__API_KEY"),
        ((404, {}, b"no model"), "no such model or address"),
        ((429, {}, b"slow down"), "limits the rate"),
        ((400, {}, b"exceeds the context length"), "lower IDX_ANSWERS__CONTEXT_TOKENS"),
        ((400, {}, b"SECRET upstream"), r"server failed \(400\)"),
        (streamed(said("It"), event(error={"message": "SECRET"})), r"server failed \(500\)"),
        (streamed(event(error="context size exceeded")), "lower IDX_ANSWERS__CONTEXT_TOKENS"),
        (streamed("data: {\n\n"), "an invalid reply: check IDX_LLM__URL"),
        (streamed(said("It is")), "reply broke off"),
    ],
)
def test_a_failure_is_reported_without_the_servers_words(server, answer, message):
    for call in (lambda: ask(server, answer), lambda: complete(model_of(server), "Is it?")):
        with pytest.raises(LLMError, match=message) as raised:
            call()
        assert "SECRET" not in str(raised.value)
    assert len(server.asked) == 2


def test_a_server_that_is_not_there_is_reported():
    model = get_llm(LLMSettings(provider="ollama", model="m", url="http://127.0.0.1:1/v1"))
    with pytest.raises(LLMError, match="could not be reached: check IDX_LLM__URL"):
        "".join(Reply(model, [Message("user", "Is it?")], 10.0))


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
    with pytest.raises(LLMError, match="has no reply"):
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


@pytest.mark.slow
def test_a_command_that_asks_a_server_loads_no_llama_index(server, notes, tmp_path):
    home = tmp_path / "home"
    with open_library(home) as library:
        Indexer(library).build(notes, "notes")
    server.answer = streamed(said("Bake the bread at 230 degrees [1].", "stop"))
    settings = {
        "HOME": home,
        "LLM__PROVIDER": "ollama",
        "LLM__MODEL": "m",
        "LLM__URL": f"http://127.0.0.1:{server.server_port}/v1",
        "RAG_V2__RERANK_PROVIDER": "llm",
    }
    script = """
import sys
from catalog.interfaces.cli import main
options = ["--mode", "lexical", "--expand", "--rerank"]
for words in (["ask", "how hot to bake bread"], ["generate", "blueprint", "--topic", "bread"]):
    sys.argv = ["catalog", *words, *options]
    try:
        main()
    except SystemExit:
        pass
print([name for name in sys.modules if name.split(".")[0] == "llama_index"])
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {f"IDX_{name}": str(value) for name, value in settings.items()},
    )
    asked = "".join(body.decode() for _, _, body in server.asked)
    for part in ("You answer a question", "You write a blueprint", "lex:", "Document 1:"):
        assert part in asked
    assert "Bake the bread at 230 degrees" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"
