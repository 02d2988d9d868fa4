"""Qdrant by URL: one collection for each dataset on a server or cluster, with retries.

A collection has the name prefix and the dataset's name. Its metadata have the record of
:mod:`catalog.store.vectors.points`. Several processes may use a collection; one at a time writes.
"""

from __future__ import annotations

import json
import logging
import re
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
from pydantic import ValidationError
from qdrant_client import QdrantClient, models
from qdrant_client.common.client_exceptions import QdrantException
from qdrant_client.http.exceptions import ApiException, UnexpectedResponse
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    stop_after_attempt,
    stop_before_delay,
    stop_never,
    wait_random_exponential,
)

from catalog.core.bounded_calls import WHOLE, BoundedCalls, read_retry_after
from catalog.core.errors import ConfigError, EngineError, EngineUnreachableError, LLMError
from catalog.core.ids import sha1_hex
from catalog.core.retrieval_events import tell_retry
from catalog.store.database import EngineSetup
from catalog.store.restriction import Stamp
from catalog.store.vectors.base import Vector
from catalog.store.vectors.points import DOC, Point, PointEngine

T = TypeVar("T")

NOTE = "catalog"  # the key of our record in a collection's metadata
_PAGE = 10_000  # ids read at a time
_SENT = 256  # points in one request
PAYLOAD_INDEXES: list[dict[str, Any]] = [
    {"field_name": field, "field_schema": models.PayloadSchemaType(kind)}
    for kind, fields in {"keyword": (DOC, "source_url"), "text": ("title", "section")}.items()
    for field in fields
]
ATTEMPTS = 4
LONGEST_PAUSE = 30.0  # seconds, even if the server asks for more
PATIENCE = 5.0  # seconds after which a search does not retry
REST = 5.0  # seconds without calls after a search failed
SECONDS = 30.0  # default time limit of a request
_ABANDONED = 8  # timed-out requests that may still run; with more, calls fail until one ends
_UNREADABLE = (json.JSONDecodeError, UnicodeDecodeError, RecursionError)  # a reply's JSON
_FAILURES = (
    ApiException,
    QdrantException,
    httpx.HTTPError,
    OSError,
    LLMError,
    *_UNREADABLE,
    ValueError,
)

_is_hurried: ContextVar[bool] = ContextVar("is_hurried", default=False)
_random_pause = wait_random_exponential(multiplier=0.2, max=5)
_log = logging.getLogger(__name__)


class QdrantServer:
    """A client that retries calls while the server is away.

    Connection errors, 429 and 5xx are tried :data:`ATTEMPTS` times, with growing random pauses or
    those that the server asks for. After that :class:`EngineUnreachableError` is raised. A request
    that the server refuses raises :class:`EngineError`. Both errors name ``address``. A complete
    reply must arrive within ``seconds`` under :meth:`hurry`, otherwise within :data:`WHOLE` times
    as long; the client's own time limit is for each piece.
    """

    def __init__(
        self,
        client: QdrantClient,
        address: str | None = None,
        *,
        seconds: float = SECONDS,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.client, self.address = client, address or address_of(client)
        self._seconds, self._calls = seconds, BoundedCalls(_ABANDONED)
        self._sleep, self._clock = sleep, clock
        self._failure: tuple[float, EngineUnreachableError] | None = None

    def call(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Return the function's result, with retries; under :meth:`hurry` give up soon."""
        is_hurried, failure = _is_hurried.get(), self._failure
        if is_hurried and failure is not None and self._clock() < failure[0] + REST:
            message = f"{failure[1]} (trying again in a few seconds)"
            raise EngineUnreachableError(message) from failure[1]
        retrying = Retrying(
            stop=stop_after_attempt(ATTEMPTS)
            | (stop_before_delay(PATIENCE) if is_hurried else stop_never),
            wait=_pause,
            retry=retry_if_exception(lambda error: _judge(error)[1]),
            sleep=self._sleep,
            before_sleep=self._tell,
            reraise=True,
        )
        seconds = self._seconds * (1 if is_hurried else WHOLE)
        try:
            answer: T = retrying(self._calls.call, partial(function, *args, **kwargs), seconds)
        except _FAILURES as error:
            reason, is_away = _judge(error)
            message = f"Qdrant at {self.address} failed: {reason}"
            if not is_away:
                raise EngineError(message) from error
            self._failure = self._clock(), EngineUnreachableError(message)
            raise self._failure[1] from error
        self._failure = None
        return answer

    def ask(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Return the function's result like :meth:`call` under :meth:`hurry`."""
        with self.hurry():
            return self.call(function, *args, **kwargs)

    @contextmanager
    def hurry(self) -> Iterator[None]:
        """Let calls in this context and its copies give up soon, because somebody is waiting.

        There are no retries after :data:`PATIENCE` seconds. After a failed call there are no calls
        at all for :data:`REST` seconds, so that the other leg answers without delay.
        """
        token = _is_hurried.set(True)
        try:
            yield
        finally:
            _is_hurried.reset(token)

    def _tell(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        pause, reason = state.upcoming_sleep, _judge(error)[0] if error else ""
        tell_retry("qdrant", state.attempt_number, error, pause)
        told = "Qdrant at %s, attempt %d of %d: %s; trying again in %.1f s"
        _log.warning(told, self.address, state.attempt_number, ATTEMPTS, reason, pause)


def _judge(error: BaseException) -> tuple[str, bool]:
    """Return why a call failed, and whether it may succeed later.

    Of a reply only the status is told, because a body may repeat documents, and of a request that
    cannot be sent nothing, because the client's message may contain the key.
    """
    source = getattr(error, "source", error)
    if isinstance(error, UnexpectedResponse):
        code = error.status_code
        keys = "; its key is IDX_COLLECTION__API_KEY for a collection that other software filled, "
        advice = f"{keys}else IDX_RAG_V2__QDRANT_API_KEY" if code in (401, 403) else ""
        is_away = code is None or code == 429 or code >= 500
        return f"{code} {error.reason_phrase}{advice}", is_away
    if isinstance(error, QdrantException):
        return "429 Too Many Requests", True
    if isinstance(source, (*_UNREADABLE, ValidationError)):  # the client would repeat the answer
        return "the answer is not a Qdrant server's", False
    if isinstance(source, httpx.LocalProtocolError):
        return "the request cannot be sent: check address and key", False
    if isinstance(error, ValueError):  # of the client in memory, such as for a removed collection
        return "the client refuses the request", False
    return str(error) or type(error).__name__, isinstance(error, _FAILURES)


def _pause(state: RetryCallState) -> float:
    """Return the seconds until the next attempt: the server's wish plus a random time."""
    error = state.outcome and state.outcome.exception()
    headers = getattr(error, "headers", None) or {}
    asked = getattr(error, "retry_after_s", None) or read_retry_after(headers.get("Retry-After"))
    return min(LONGEST_PAUSE, (asked or 0.0) + _random_pause(state))


def open_client(url: str, api_key: str | None, timeout: float) -> QdrantClient:
    """Return a client for the server at an address; nothing is sent yet. ``timeout`` in seconds.

    Raises :class:`ConfigError` for an invalid address.
    """
    limit, check = max(1, round(timeout)), False
    try:
        with warnings.catch_warnings(action="ignore"):  # about a key without TLS: logged below
            client = QdrantClient(
                url=url, api_key=api_key, timeout=limit, check_compatibility=check
            )
    except (ValueError, AssertionError) as error:  # their text may hold user and password
        raise ConfigError(
            "the address of the Qdrant server is not of the form http://host:6333"
        ) from error
    if api_key is not None and urlsplit(url).scheme != "https":
        _log.info("the key for Qdrant at %s is sent without TLS", address_of(client))
    return client


def describe_server(url: str, api_key: str | None, timeout: float) -> str:
    """Describe a server that answers: address, release and response time; raise if it fails."""
    server = QdrantServer(open_client(url, api_key, timeout), seconds=timeout)
    try:
        release = server.ask(server.client.info).version
        started = time.perf_counter()
        server.ask(server.client.get_collections)  # which needs the key
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

    def __init__(
        self,
        setup: EngineSetup,
        client: QdrantClient | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(setup)
        self._given, self._sleep = client, sleep
        self.collection = collection_name(setup.rag.qdrant.collection_prefix, setup.dataset)
        self._server: QdrantServer | None = None

    @property
    def server(self) -> QdrantServer:
        """The server; nothing is sent yet."""
        if self._server is None:
            seconds = self._rag.qdrant.timeout_seconds
            url, key = self._rag.qdrant_url or "", self._rag.qdrant_api_key
            client = self._given or open_client(url, key, seconds)
            self._server = QdrantServer(client, seconds=seconds, sleep=self._sleep)
        return self._server

    def follow(self, stamp: Stamp) -> str | None:
        """Bring the points up to date, but give up soon: a search is waiting."""
        with self.server.hurry():
            return super().follow(stamp)

    def _open(self, *, anew: bool) -> dict[str, Any]:
        client, call = self.server.client, self.server.call
        if not call(client.collection_exists, self.collection):
            return {}
        told = call(client.get_collection, self.collection).config.metadata or {}
        if not isinstance(record := told.get(NOTE), dict):
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
        client, name = self.server.client, self.collection
        size = models.VectorParams(size=self.dim, distance=models.Distance.COSINE)
        self.server.call(client.delete_collection, name)
        try:
            create = partial(client.create_collection, vectors_config=size)
            self.server.call(create, name, metadata={NOTE: record})
        except EngineError as error:
            if getattr(error.__cause__, "status_code", 0) != 409:  # made, but the answer was lost
                raise
        for index in PAYLOAD_INDEXES:
            self.server.call(client.create_payload_index, name, wait=True, **index)

    def _write(self, record: dict[str, Any]) -> None:
        update = self.server.client.update_collection
        self.server.call(update, self.collection, metadata={NOTE: record})

    def _count(self) -> int:
        return self.server.call(self.server.client.count, self.collection, exact=True).count

    def _ids(self) -> list[int]:
        found, following, scroll = list[int](), None, self.server.client.scroll
        read = partial(scroll, self.collection, limit=_PAGE, with_payload=False)
        while True:
            records, following = self.server.call(read, offset=following)
            found += [int(one.id) for one in records]
            if following is None:
                return found

    def _add(self, points: Sequence[Point]) -> None:
        upsert = partial(self.server.client.upsert, self.collection, wait=True)
        rows = [
            models.PointStruct(id=one.id, vector=one.vector.tolist(), payload=one.payload)
            for one in points
        ]
        for start in range(0, len(rows), _SENT):
            self.server.call(upsert, rows[start : start + _SENT])

    def _remove(self, ids: list[int]) -> None:
        chosen = models.PointIdsList(points=[*ids])
        self.server.call(self.server.client.delete, self.collection, chosen, wait=True)

    def _find(self, vector: Vector, limit: int, ids: list[int] | None) -> list[tuple[int, float]]:
        some = ids and models.Filter(must=[models.HasIdCondition(has_id=[*ids])])
        response = self.server.ask(
            self.server.client.query_points,
            self.collection,
            query=vector.tolist(),
            query_filter=some,
            limit=limit,
            with_payload=False,
        )
        return [(int(point.id), point.score) for point in response.points]

    def _drop(self) -> None:
        if self._open(anew=True).get("store") == self.database.meta("store_id"):
            self.server.call(self.server.client.delete_collection, self.collection)

    def close(self) -> None:
        """Close the client unless it was given; the next search opens another one."""
        super().close()
        if self._server is not None and self._given is None:
            self._server.client.close()
            self._server = None
