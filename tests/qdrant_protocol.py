"""A server that speaks Qdrant's REST protocol over the client's in-memory mode, with faults.

It keeps what the in-memory mode drops: payload indexes, and the parameters of a collection.
https://api.qdrant.tech/api-reference has the requests.
"""

import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from qdrant_client import QdrantClient, models

DRIPS, FLOODS = 1, 2


@dataclass
class Fault:
    """What becomes of the next ``times`` requests that match, after ``skip`` of them.

    ``status`` 0 cuts the connection, ``DRIPS`` begins a reply and goes on with a blank now and
    then, ``FLOODS`` goes on without end; ``is_done``: the work is done all the same.
    """

    method: str
    path: str
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    times: int = 1
    skip: int = 0
    is_done: bool = False

    def strikes(self, method: str, path: str) -> bool:
        if self.times <= 0 or method != self.method or not re.search(self.path, path):
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        self.times -= 1
        return True


class QdrantProtocol(ThreadingHTTPServer):
    """The server; ``requests`` holds method, path and body of each request, in order."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.client = QdrantClient(":memory:")
        self.guard = threading.RLock()
        self.requests: list[tuple[str, str, Any]] = []
        self.keys: list[str | None] = []
        self.faults: list[Fault] = []
        self.lies: dict[str, Any] = {}  # by the end of a path: what is answered in place
        self.is_over = threading.Event()
        self.created: dict[str, dict[str, Any]] = {}
        self.indexes: dict[str, dict[str, str]] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def fail(self, method: str, path: str, status: int, **more: Any) -> Fault:
        self.faults.append(Fault(method, path, status, **more))
        return self.faults[-1]

    def writes(self) -> list[tuple[str, str]]:
        """Every request that may have changed something."""
        reads = re.compile(r"^(GET .*|POST .*/points(/(query(/batch)?|search|count|scroll))?)$")
        sent = [(method, path) for method, path, _ in self.requests]
        return [(method, path) for method, path in sent if not reads.match(f"{method} {path}")]

    def answer(self, method: str, path: str, body: dict[str, Any]) -> Any:
        lie = next((lie for end, lie in self.lies.items() if path.endswith(end)), None)
        if lie is not None:
            return lie
        for verb, pattern, handle in _ROUTES:
            found = re.fullmatch(pattern, path)
            if verb == method and found:
                with self.guard:
                    return handle(self, *found.groups(), body)
        raise LookupError(f"{method} {path}")


def _collections(server: QdrantProtocol, body: Any) -> Any:
    return server.client.get_collections()


def _exists(server: QdrantProtocol, name: str, body: Any) -> Any:
    return {"exists": server.client.collection_exists(name)}


def _read(server: QdrantProtocol, name: str, body: Any) -> Any:
    info = _dump(server.client.get_collection(name))
    real = server.client._client.aliases.get(name, name)
    kinds = server.indexes.get(real, {})
    info["payload_schema"] = {key: {"data_type": kind, "points": 0} for key, kind in kinds.items()}
    made = server.created.get(real, {})
    for place in ("shard_number", "replication_factor", "write_consistency_factor"):
        if place in made:
            info["config"]["params"][place] = made[place]
    quantization = made.get("quantization_config")
    info["config"]["quantization_config"] = None if quantization == "Disabled" else quantization
    return info


def _create(server: QdrantProtocol, name: str, body: Any) -> Any:
    wanted = models.CreateCollection.model_validate(body)
    server.client.create_collection(
        name,
        vectors_config=wanted.vectors or {},
        sparse_vectors_config=wanted.sparse_vectors,
        metadata=wanted.metadata,
    )
    server.created[name], server.indexes[name] = body, {}
    return True


def _patch(server: QdrantProtocol, name: str, body: Any) -> Any:
    metadata = body.get("metadata")
    server.created.setdefault(name, {}).update(
        {**body.get("params", {}), **{k: v for k, v in body.items() if k != "params"}}
    )
    return server.client.update_collection(name, metadata=metadata) if metadata else True


def _drop(server: QdrantProtocol, name: str, body: Any) -> Any:
    return server.client.delete_collection(name)


def _index(server: QdrantProtocol, name: str, body: Any) -> Any:
    real = server.client._client.aliases.get(name, name)
    server.indexes.setdefault(real, {})[body["field_name"]] = body["field_schema"]
    return {"operation_id": 0, "status": "completed"}


def _upsert(server: QdrantProtocol, name: str, body: Any) -> Any:
    return server.client.upsert(name, models.PointsList.model_validate(body).points)


def _delete(server: QdrantProtocol, name: str, body: Any) -> Any:
    if "points" in body:
        return server.client.delete(name, body["points"])
    return server.client.delete(name, models.Filter.model_validate(body["filter"]))


def _retrieve(server: QdrantProtocol, name: str, body: Any) -> Any:
    wanted = models.PointRequest.model_validate(body)
    return server.client.retrieve(
        name,
        wanted.ids,
        with_payload=wanted.with_payload if wanted.with_payload is not None else True,
        with_vectors=wanted.with_vector or False,
    )


def _scroll(server: QdrantProtocol, name: str, body: Any) -> Any:
    wanted = models.ScrollRequest.model_validate(body)
    points, following = server.client.scroll(
        name,
        scroll_filter=wanted.filter,
        limit=wanted.limit or 10,
        offset=wanted.offset,
        with_payload=wanted.with_payload if wanted.with_payload is not None else True,
        with_vectors=wanted.with_vector or False,
    )
    return {"points": [_dump(point) for point in points], "next_page_offset": following}


def _count(server: QdrantProtocol, name: str, body: Any) -> Any:
    return server.client.count(name, exact=True)


def _query(server: QdrantProtocol, name: str, body: Any) -> Any:
    wanted = models.QueryRequest.model_validate(body)
    return server.client.query_points(
        name,
        query=wanted.query.nearest
        if isinstance(wanted.query, models.NearestQuery)
        else wanted.query,
        using=wanted.using,
        query_filter=wanted.filter,
        limit=wanted.limit or 10,
        score_threshold=wanted.score_threshold,
        with_payload=wanted.with_payload if wanted.with_payload is not None else False,
        with_vectors=wanted.with_vector or False,
    )


def _query_batch(server: QdrantProtocol, name: str, body: Any) -> Any:
    return [_dump(_query(server, name, one)) for one in body["searches"]]


def _swap(server: QdrantProtocol, body: Any) -> Any:
    wanted = models.ChangeAliasesOperation.model_validate(body)
    return server.client.update_collection_aliases(wanted.actions)


def _aliases(server: QdrantProtocol, body: Any) -> Any:
    return server.client.get_aliases()


def _version(server: QdrantProtocol, body: Any) -> Any:
    return None


_ONE = r"/collections/([^/]+)"
_ROUTES: list[tuple[str, str, Any]] = [
    ("GET", r"/", _version),
    ("GET", r"/collections", _collections),
    ("POST", r"/collections/aliases", _swap),
    ("GET", r"/aliases", _aliases),
    ("GET", rf"{_ONE}/exists", _exists),
    ("GET", _ONE, _read),
    ("PUT", _ONE, _create),
    ("PATCH", _ONE, _patch),
    ("DELETE", _ONE, _drop),
    ("PUT", rf"{_ONE}/index", _index),
    ("PUT", rf"{_ONE}/points", _upsert),
    ("POST", rf"{_ONE}/points/delete", _delete),
    ("POST", rf"{_ONE}/points", _retrieve),
    ("POST", rf"{_ONE}/points/scroll", _scroll),
    ("POST", rf"{_ONE}/points/count", _count),
    ("POST", rf"{_ONE}/points/query", _query),
    ("POST", rf"{_ONE}/points/query/batch", _query_batch),
]


def _dump(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True)
    if isinstance(value, list):
        return [_dump(item) for item in value]
    return value


class _Handler(BaseHTTPRequestHandler):
    server: QdrantProtocol
    protocol_version = "HTTP/1.1"

    def _handle(self) -> None:
        path = unquote(urlsplit(self.path).path)
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        server = self.server
        with server.guard:
            server.requests.append((self.command, path, body))
            server.keys.append(self.headers.get("api-key"))
            fault = next((f for f in server.faults if f.strikes(self.command, path)), None)
        if fault is not None and fault.is_done:
            server.answer(self.command, path, body)
        if fault is not None and fault.status == 0:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        if fault is not None and fault.status in (DRIPS, FLOODS):
            self._go_on(fault.status)
            return
        if fault is not None:
            self._send(fault.status, {"status": {"error": "SECRET of a document"}}, fault.headers)
            return
        try:
            result = _dump(server.answer(self.command, path, body))
        except (LookupError, ValueError) as error:
            status = 409 if "already exists" in str(error) else 404
            self._send(status, {"status": {"error": str(error)}}, {})
            return
        if path == "/":
            self._send(200, {"title": "qdrant - vector search engine", "version": "1.99.0"}, {})
            return
        self._send(200, {"result": result, "status": "ok", "time": 0.0}, {})

    def _go_on(self, how: int) -> None:
        """Send blanks until the client hangs up or the test is over."""
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        blanks = b" " if how == DRIPS else b" " * 100_000
        with suppress(OSError):
            while not self.server.is_over.wait(0.02 if how == DRIPS else 0):
                self.wfile.write(blanks)

    do_GET = _handle  # noqa: N815 - the names that http.server calls
    do_POST = _handle  # noqa: N815
    do_PUT = _handle  # noqa: N815
    do_PATCH = _handle  # noqa: N815
    do_DELETE = _handle  # noqa: N815

    def _send(self, status: int, body: Any, headers: dict[str, str]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_args: Any) -> None:
        return


@contextmanager
def qdrant_protocol(monkeypatch: pytest.MonkeyPatch) -> Iterator[QdrantProtocol]:
    """A running server that is stopped at the end."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with QdrantProtocol() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield running
        finally:
            running.is_over.set()
            running.shutdown()
            thread.join()
            running.client.close()
