"""Qdrant by URL: one collection for each dataset on a server or cluster, with retries.

A collection has the name prefix and the dataset's name. Its metadata have the record of
:mod:`catalog.store.vectors.points`. Several processes may use a collection; one at a time writes.
"""

import random
import re
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property, partial
from itertools import count
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
from qdrant_client import QdrantClient, models
from qdrant_client.common.client_exceptions import QdrantException
from qdrant_client.http.exceptions import ApiException, UnexpectedResponse

from catalog.core.bounded_calls import WHOLE, BoundedCalls, read_retry_after
from catalog.core.errors import ConfigError, EngineError, EngineUnreachableError, LLMError
from catalog.core.ids import sha1_hex
from catalog.core.retrieval_events import holding, tell_retry
from catalog.store.database import EngineSetup
from catalog.store.engines import Vector
from catalog.store.vectors.points import DOC, Point, PointEngine

T = TypeVar("T")

NOTE = "catalog"  # the key of our record in a collection's metadata
_PAGE = 10_000  # ids read at a time
_SENT = 256  # points in one request
_INDEXES = {DOC: "keyword", "source_url": "keyword", "title": "text", "section": "text"}
ATTEMPTS = 4
LONGEST_PAUSE = 30.0  # seconds, even if the server asks for more
PATIENCE = 5.0  # seconds after which a search does not retry
REST = 5.0  # seconds without calls after a search failed
_ABANDONED = 8  # timed-out requests that may still run; with more, calls fail until one ends
_UNREADABLE = (ValueError, RecursionError, AssertionError)  # of JSON, of its shape, of its parts
_AWAY = (ApiException, QdrantException, httpx.HTTPError, OSError, LLMError)
_is_patient: ContextVar[bool] = ContextVar("is_patient", default=False)  # not in a search


class QdrantServer:
    """A client that retries calls while the server is away.

    Connection errors, 429 and 5xx are tried :data:`ATTEMPTS` times, with growing random pauses and
    those that the server asks for. After that :class:`EngineUnreachableError` is raised. A request
    that the server refuses raises :class:`EngineError`. Both errors name ``address``.

    A search gives up soon: a complete reply must arrive within ``seconds`` (the client's own time
    limit is for each piece), there are no retries after :data:`PATIENCE` seconds, and none of its
    calls for :data:`REST` seconds after one failed, so that the other leg answers without delay.
    """

    def __init__(
        self,
        client: QdrantClient,
        *,
        seconds: float = 30.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.client, self.address = client, address_of(client)
        self._seconds, self._sleep, self._calls = seconds, sleep, BoundedCalls(_ABANDONED)
        self._failure: tuple[float, EngineUnreachableError] | None = None

    def call(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Return the function's result, with retries."""
        is_patient, failure, started = _is_patient.get(), self._failure, time.monotonic()
        if not is_patient and failure is not None and started < failure[0] + REST:
            message = f"{failure[1]} (trying again in a few seconds)"
            raise EngineUnreachableError(message) from failure[1]
        seconds, last = self._seconds * (WHOLE if is_patient else 1), started + PATIENCE
        for attempt in count(1):
            try:
                answer = self._calls.call(partial(function, *args, **kwargs), seconds)
            except (*_AWAY, *_UNREADABLE) as error:
                reason, asked = _judge(error)
                message = f"Qdrant at {self.address} failed: {reason}"
                if asked is None:
                    raise EngineError(message) from error
                backoff = random.uniform(0, 0.2 * 2**attempt)  # noqa: S311  (no secret)
                pause = min(LONGEST_PAUSE, asked + backoff)
                if attempt == ATTEMPTS or not (is_patient or time.monotonic() + pause <= last):
                    self._failure = time.monotonic(), EngineUnreachableError(message)
                    raise self._failure[1] from error
                tell_retry("qdrant", attempt, error, pause)
                self._sleep(pause)
            else:
                break
        self._failure = None
        return answer


def _judge(error: Any) -> tuple[str, float | None]:
    """Return why a call failed, and the pause that the server asks for, ``None`` if it is final.

    Of a reply only the status is told, because a body may repeat documents, and of a request that
    cannot be sent nothing, because the client's message may contain the key.
    """
    source = getattr(error, "source", error)
    if isinstance(error, UnexpectedResponse):
        code = error.status_code or 0
        keys = "; its key is IDX_COLLECTION__API_KEY for a collection that other software filled, "
        advice = f"{keys}else IDX_RAG_V2__QDRANT_API_KEY" if code in (401, 403) else ""
        asked = read_retry_after(error.headers.get("Retry-After")) or 0.0
        is_away = code == 429 or code >= 500
        return f"{code} {error.reason_phrase}{advice}", asked if is_away else None
    if isinstance(error, QdrantException):
        return "429 Too Many Requests", getattr(error, "retry_after_s", 0.0)
    is_unsent = isinstance(source, httpx.LocalProtocolError | UnicodeError)  # of its address
    if is_unsent and not isinstance(source, UnicodeDecodeError):
        return "the request cannot be sent: check address and key", None
    if isinstance(source, _UNREADABLE):
        return "the answer is not a Qdrant server's", None
    return str(error) or type(error).__name__, 0.0


def open_client(url: str, api_key: str | None, timeout: float) -> QdrantClient:
    """Return a client for the server at an address; nothing is sent yet. ``timeout`` in seconds.

    Raises :class:`ConfigError` for an invalid address.
    """
    seconds = max(1, round(timeout))
    try:
        with warnings.catch_warnings(action="ignore"):  # about a key without TLS
            return QdrantClient(
                url=url, api_key=api_key, timeout=seconds, check_compatibility=False
            )
    except (ValueError, AssertionError) as error:  # their text may hold user and password
        message = "the address of the Qdrant server is not of the form http://host:6333"
        raise ConfigError(message) from error


def describe_server(url: str, api_key: str | None, timeout: float) -> str:
    """Describe a server that answers: address, release and response time; raise if it fails."""
    server = QdrantServer(open_client(url, api_key, timeout), seconds=timeout)
    try:
        release = server.call(server.client.info).version
        started = time.perf_counter()
        server.call(server.client.get_collections)  # which needs the key
        took = (time.perf_counter() - started) * 1000
    finally:
        server.client.close()
    return f"{server.address}, Qdrant {release}, answers in {took:.0f} ms"


def address_of(client: QdrantClient) -> str:
    """Return the address of the client's server without credentials."""
    given = client.init_options
    if not given.get("url"):
        return f"{given['host']}:{given.get('port')}" if given.get("host") else "this process"
    url = urlsplit(str(given["url"]))
    return f"{url.scheme}://{url.netloc.rpartition('@')[2]}" if url.hostname else "a given URL"


def collection_name(prefix: str, dataset: str) -> str:
    """Return a name that Qdrant accepts; other dataset names are changed and get a hash."""
    name = f"{prefix}{dataset}"
    plain = re.sub(r"[^\w.-]", "-", name)[:200]
    return name if plain == name else f"{plain}-{sha1_hex(name)[:8]}"


class QdrantServerEngine(PointEngine):
    """The points of a dataset in the collection ``{collection_prefix}{dataset}`` on a server.

    A collection that is not ours, or that belongs to another store, raises :class:`EngineError`;
    :meth:`rebuild` takes over another store's. ``client`` replaces that of the settings.
    """

    name = "qdrant"
    sleep: Callable[[float], None] = staticmethod(time.sleep)

    def __init__(self, setup: EngineSetup, client: QdrantClient | None = None) -> None:
        super().__init__(setup)
        self._given = client
        self.collection = collection_name(setup.rag.qdrant.collection_prefix, setup.dataset)

    @cached_property
    def server(self) -> QdrantServer:
        """The server; nothing is sent yet."""
        seconds, key = self._rag.qdrant.timeout_seconds, self._rag.qdrant_api_key
        client = self._given or open_client(self._rag.qdrant_url or "", key, seconds)
        return QdrantServer(client, seconds=seconds, sleep=self.sleep)

    @contextmanager
    def lock(self, *, wait: bool) -> Iterator[None]:
        """Take the lock; who waits for it also waits for the server."""
        with holding(_is_patient, wait), super().lock(wait=wait):
            yield

    def _call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        function = getattr(self.server.client, method)
        return self.server.call(function, self.collection, *args, **kwargs)

    def _open(self, *, anew: bool) -> dict[str, Any]:
        if not self._call("collection_exists"):
            return {}
        record = (self._call("get_collection").config.metadata or {}).get(NOTE)
        if not isinstance(record, dict):
            whose, advice = "other software", ""
        elif not anew and record.get("store") != self.database.meta("store_id"):
            whose, advice = "another catalog store", ", or rebuild"
        else:
            return record
        raise EngineError(
            f"the collection {self.collection!r} at {self.server.address} belongs to {whose}: "
            f"choose another collection prefix{advice}"
        )

    def _create(self, record: dict[str, Any]) -> None:
        size = models.VectorParams(size=self.dim, distance=models.Distance.COSINE)
        self._call("delete_collection")
        try:
            self._call("create_collection", vectors_config=size, metadata={NOTE: record})
        except EngineError as error:
            if getattr(error.__cause__, "status_code", 0) != 409:  # made, but the answer was lost
                raise
        for field, kind in _INDEXES.items():
            self._call("create_payload_index", field, models.PayloadSchemaType(kind), wait=True)

    def _write(self, record: dict[str, Any]) -> None:
        self._call("update_collection", metadata={NOTE: record})

    def _ids(self) -> list[int]:
        found, following = list[int](), None
        while True:
            page = self._call("scroll", limit=_PAGE, offset=following, with_payload=False)
            found += [int(one.id) for one in page[0]]
            if (following := page[1]) is None:
                return found

    def _add(self, points: Sequence[Point]) -> None:
        for start in range(0, len(points), _SENT):
            some = points[start : start + _SENT]
            rows = [
                models.PointStruct(id=at, vector=of.tolist(), payload=it) for at, of, it in some
            ]
            self._call("upsert", rows, wait=True)

    def _remove(self, ids: list[int]) -> None:
        self._call("delete", models.PointIdsList(points=[*ids]), wait=True)

    def _find(self, vector: Vector, limit: int, ids: list[int] | None) -> list[tuple[int, float]]:
        some = ids and models.Filter(must=[models.HasIdCondition(has_id=[*ids])])
        how = {"query": vector.tolist(), "query_filter": some, "with_payload": False}
        points = self._call("query_points", limit=limit, **how).points
        return [(int(point.id), point.score) for point in points]

    def _drop(self) -> None:
        if self._open(anew=True).get("store") == self.database.meta("store_id"):
            self._call("delete_collection")

    def close(self) -> None:
        """Close the client unless it was given; the next search opens another one."""
        super().close()
        if self._given is None and "server" in vars(self):
            self.server.client.close()
            del self.server
