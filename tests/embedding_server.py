"""An embedding server in a thread, which speaks OpenAI's form and Cohere's and fails as told."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

from catalog.core.settings import EmbeddingSettings
from fakes import DIM, WordEncoder

KEY = "sk-SECRET"
Fault = Callable[["_Handler", dict[str, Any]], None]


class EmbeddingServer(ThreadingHTTPServer):
    """Embed texts by their words, each vector three times too long.

    ``faults`` are used up, one a request, ``None`` for one that is answered well. A text that
    holds ``poison`` has its request refused, whatever ``faults`` say.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.faults: list[Fault | None] = []
        self.poison, self.poison_status = "POISON", 400
        self.dead: Fault | None = None  # what every request gets
        self.key, self.dim = KEY, DIM
        self.name: str | None = None  # under which it says to answer
        self.turn = 0  # by how many places another model's numbers stand elsewhere
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.embedded: list[str] = []  # each text as often as its vector was sent
        self.released = threading.Event()  # ends what is slow
        self.on_request: Callable[[int], None] = lambda _number: None
        self.counting = threading.Lock()

    def settings(self, provider: str = "openai", **more: Any) -> EmbeddingSettings:
        """Return the settings under which it is used."""
        version = {"openai": "v1", "cohere": "v2"}[provider]
        told = {
            "provider": provider,
            "model": "words",
            "dim": self.dim,
            "url": f"http://127.0.0.1:{self.server_port}/{version}",
            "api_key": KEY,
        }
        return EmbeddingSettings(**told | more)

    def texts(self) -> list[list[str]]:
        """Return the texts of each request."""
        return [body.get("input") or body.get("texts") for _, body in self.requests]


class _Handler(BaseHTTPRequestHandler):
    server: EmbeddingServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.counting:
            self.server.requests.append((self.path, body))
            number = len(self.server.requests)
            fault = self.server.faults.pop(0) if self.server.faults else self.server.dead
        self.server.on_request(number)
        texts = body.get("input") or body.get("texts")
        if self.headers["Authorization"] != f"Bearer {self.server.key}":
            self.send(401, {"error": {"message": f"bad key {self.headers['Authorization']}"}})
        elif (
            self.path.partition("?")[0] not in ("/v1/embeddings", "/v2/embed")
            or body["model"] == "unknown"
        ):
            self.send(404, {"message": "no such model"})
        elif fault is not None:
            fault(self, self.answer(texts))
        elif any(self.server.poison in text for text in texts):
            self.send(self.server.poison_status, {"message": f"cannot take {texts}"})
        else:
            self.server.embedded += texts
            self.send(200, self.answer(texts))

    def answer(self, texts: list[str]) -> dict[str, Any]:
        """Return the vectors of the texts as the form of the request has them."""
        vectors = [
            np.resize(3 * np.roll(it, self.server.turn), self.server.dim).tolist()
            for it in WordEncoder().encode(texts)
        ]
        if "/embed?" in f"{self.path}?":
            billed = {"input_tokens": 2 * len(texts)}
            return {"embeddings": {"float": vectors}, "meta": {"billed_units": billed}}
        rows = [{"index": at, "embedding": vector} for at, vector in enumerate(vectors)]
        named = {"model": self.server.name} if self.server.name else {}
        return {"object": "list", **named, "data": rows, "usage": {"total_tokens": 2 * len(texts)}}

    def send(self, status: int, answer: Any, **headers: str) -> None:
        """Send a whole reply; underscores of header names are hyphens."""
        content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_args: Any) -> None:
        """Print nothing."""


def status(code: int, **headers: str) -> Fault:
    """Answer with a status, and the key in the text."""
    return lambda handler, _answer: handler.send(code, {"error": f"SENSITIVE {KEY}"}, **headers)


def slow(handler: _Handler, _answer: dict[str, Any]) -> None:
    """Answer nothing until the test is over."""
    handler.server.released.wait(20)


def cut(handler: _Handler, answer: dict[str, Any]) -> None:
    """Send half of an answer and hang up."""
    content = json.dumps(answer).encode()
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content[: len(content) // 2])


def altered(change: Callable[[list[Any]], list[Any]]) -> Fault:
    """Answer with the list of vectors changed."""

    def fault(handler: _Handler, answer: dict[str, Any]) -> None:
        if "data" in answer:
            answer["data"] = change(answer["data"])
        else:
            answer["embeddings"]["float"] = change(answer["embeddings"]["float"])
        handler.send(200, answer)

    return fault


def with_numbers(change: Callable[[list[float]], list[Any]]) -> Fault:
    """Answer with the numbers of each vector changed."""

    def change_row(row: Any) -> Any:
        return (
            row | {"embedding": change(row["embedding"])} if isinstance(row, dict) else change(row)
        )

    return altered(lambda rows: [change_row(row) for row in rows])


WRONG_DIMENSION = with_numbers(lambda numbers: numbers[:3])
NOT_A_NUMBER = with_numbers(lambda numbers: [float("nan"), *numbers[1:]])
NULL = with_numbers(lambda numbers: [None, *numbers[1:]])
TRUTHS = with_numbers(lambda numbers: [True for _ in numbers])
WORDS = with_numbers(lambda numbers: [str(number) for number in numbers])
ZERO = with_numbers(lambda numbers: [0.0 for _ in numbers])
FEWER = altered(lambda rows: rows[:-1])
REORDERED = altered(lambda rows: rows[::-1])  # of OpenAI's form, which numbers them


@contextmanager
def running_server() -> Iterator[EmbeddingServer]:
    """Run a server until the block ends."""
    with EmbeddingServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.released.set()
            server.shutdown()
            thread.join()
