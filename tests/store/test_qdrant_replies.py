"""What answers in a Qdrant server's place, such as a proxy with a page of its own."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from catalog.core.errors import EngineError, EngineUnreachableError
from catalog.store.vectors.qdrant import QdrantServer, describe_server, open_client


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


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [b"<html>SECRET</html>", b'{"title": ' + b"[" * 100_000, b"\xff\xfe\xfa", b"[]"],
    ids=["HTML", "deeply nested", "no text", "another service"],
)
def test_a_reply_that_is_no_json_is_one_sentence(body):
    with _answering(body) as url, pytest.raises(EngineError, match="not a Qdrant server") as caught:
        describe_server(url, None, 5)
    assert not isinstance(caught.value, EngineUnreachableError)
    assert "SECRET" not in str(caught.value)


@pytest.mark.slow
def test_a_reply_without_a_result_is_an_engine_error():
    with _answering(b"{}") as url:
        server = QdrantServer(open_client(url, None, 5))
        with pytest.raises(EngineError, match="not a Qdrant server"):
            server.call(server.client.get_collection, "notes")


@pytest.mark.parametrize("host", ["h\xe9\xe9..x", "xn--", "a..b"])
def test_an_address_that_is_no_host_is_an_engine_error(host):
    with pytest.raises(EngineError, match="check address"):
        describe_server(f"http://{host}:6333", None, 5)
