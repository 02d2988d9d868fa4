"""What answers in a Qdrant server's place, such as a proxy with a page of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from catalog.core.errors import EngineError, EngineUnreachableError
from catalog.store.vectors.qdrant import describe_server


@contextmanager
def _answering(body: bytes) -> Iterator[str]:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    "body",
    [b"<html>SECRET</html>", b'{"title": ' + b"[" * 100_000, b"\xff\xfe\xfa"],
    ids=["HTML", "deeply nested", "no text"],
)
def test_a_reply_that_is_no_json_is_one_sentence(body):
    with (
        _answering(body) as url,
        pytest.raises(EngineError, match="not a Qdrant server") as caught,
    ):
        describe_server(url, None, 5)
    assert not isinstance(caught.value, EngineUnreachableError)
    assert "SECRET" not in str(caught.value)
