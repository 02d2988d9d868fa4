"""Qdrant by URL: one collection for each dataset on a server or cluster, with retries.

A collection has the name prefix and the dataset's name. Our note in its metadata is the record of
:mod:`catalog.store.vectors.points`. Several processes may use a collection; one at a time writes.
"""

from __future__ import annotations

import json
import logging
import re
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import httpx
from pydantic import ValidationError
from qdrant_client import QdrantClient, models
from qdrant_client.common.client_exceptions import QdrantException, ResourceExhaustedResponse
from qdrant_client.http.exceptions import ApiException, UnexpectedResponse
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    stop_after_attempt,
    stop_before_delay,
    wait_random_exponential,
)

from catalog.core.bounded_calls import WHOLE, BoundedCalls, read_retry_after
from catalog.core.errors import (
    ConfigError,
    EngineError,
    EngineUnreachableError,
    LLMError,
)
from catalog.core.ids import sha1_hex
from catalog.core.retrieval_events import tell_retry
from catalog.store.database import EngineSetup
from catalog.store.engine_types import Stamp
from catalog.store.vectors.points import CHUNK, DOC, SEQ, FoundPoint, Point, PointEngine

if TYPE_CHECKING:
    from catalog.store.vectors.base import Vector

T = TypeVar("T")

NOTE = "catalog"  # the key of our note in a collection's metadata
_PAGE = 10_000  # ids read at a time
_SENT = 256  # points in one request
PAYLOAD_INDEXES: list[dict[str, Any]] = [
    {"field_name": field, "field_schema": models.PayloadSchemaType(schema)}
    for field, schema in (
        (SEQ, "integer"),
        (DOC, "keyword"),
        ("source_url", "keyword"),
        ("title", "text"),
        ("section", "text"),
    )
]
ATTEMPTS = 4
LONGEST_PAUSE = 30.0  # seconds, even if the server asks for more
PATIENCE = 5.0  # seconds after which a search does not retry
REST = 5.0  # seconds without calls after a search failed
SECONDS = 30.0  # default time limit of a request
_ABANDONED = 8  # timed-out requests that may still run; with more, calls fail until one ends
_UNREADABLE = (json.JSONDecodeError, UnicodeDecodeError, RecursionError)  # a reply's JSON
FAILURES = (ApiException, QdrantException, httpx.HTTPError, OSError, *_UNREADABLE)
_NO_NUMBER = re.compile(r"Retry-After header value is not a valid integer: (.*)", re.DOTALL)

_is_hurried: ContextVar[bool] = ContextVar("is_hurried", default=False)
_log = logging.getLogger(__name__)


class QdrantServer:
    """A client that retries calls while the server is away.

    Connection errors, 429 and 5xx are tried :data:`ATTEMPTS` times, with growing random pauses or
    those that the server asks for. After that :class:`EngineUnreachableError` is raised. A request
    that the server refuses raises :class:`EngineError`. Both errors name ``address``. A complete
    reply must arrive within ``seconds`` under :meth:`hurry`, otherwise within :data:`WHOLE` times
    as long.
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
        self.client = client
        self.address = address or address_of(client)
        self._seconds, self._calls = seconds, BoundedCalls(_ABANDONED)
        self._sleep, self._clock = sleep, clock
        self._failure: tuple[float, EngineUnreachableError] | None = None

    def call(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Return the function's result, with retries; under :meth:`hurry` give up soon."""
        stop: Callable[[RetryCallState], bool] = stop_after_attempt(ATTEMPTS)
        seconds = WHOLE * self._seconds
        if _is_hurried.get():
            self._require_rested()
            seconds = self._seconds
            stop = stop_after_attempt(ATTEMPTS) | stop_before_delay(PATIENCE)
        try:
            answer = self._retry(partial(function, *args, **kwargs), stop, seconds)
        except EngineUnreachableError as error:
            self._failure = (self._clock(), error)
            raise
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

    def _require_rested(self) -> None:
        failure = self._failure
        if failure is not None and self._clock() < failure[0] + REST:
            message = f"{failure[1]} (trying again in a few seconds)"
            raise EngineUnreachableError(message) from failure[1]

    def _retry(
        self,
        function: Callable[[], T],
        stop: Callable[[RetryCallState], bool],
        seconds: float,
    ) -> T:
        retrying = Retrying(
            stop=stop,
            wait=_pause,
            retry=retry_if_exception(_is_transient),
            sleep=self._sleep,
            before_sleep=self._log_attempt,
            reraise=True,
        )
        try:
            answer: T = retrying(self._attempt, function, seconds)
        except FAILURES as error:
            kind = EngineUnreachableError if _is_transient(error) else EngineError
            advice = _KEYS if _is_refused(error) else ""
            raise kind(f"Qdrant at {self.address} failed: {reason_of(error)}{advice}") from error
        return answer

    def _attempt(self, function: Callable[[], T], seconds: float) -> T:
        """Return the function's result in time; the client's timeout applies to each piece only."""
        try:
            return self._calls.call(function, seconds)
        except LLMError as error:
            raise TimeoutError(str(error)) from error

    def _log_attempt(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        tell_retry("qdrant", state.attempt_number, error, state.upcoming_sleep)
        _log.warning(
            "Qdrant at %s, attempt %d of %d: %s; trying again in %.1f s",
            self.address,
            state.attempt_number,
            ATTEMPTS,
            reason_of(error) if error else "",
            state.upcoming_sleep,
        )


def open_client(url: str, api_key: str | None, timeout: float) -> QdrantClient:
    """Return a client for the server at an address; nothing is sent yet. ``timeout`` in seconds.

    Raises :class:`ConfigError` for an invalid address.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about a key without TLS: logged below
            client = QdrantClient(
                url=url,
                api_key=api_key,
                timeout=max(1, round(timeout)),
                check_compatibility=False,
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
    client = open_client(url, api_key, timeout)
    server = QdrantServer(client, seconds=timeout)
    try:
        release = server.ask(client.info).version
        started = time.perf_counter()
        server.ask(client.get_collections)  # which needs the key
        took = (time.perf_counter() - started) * 1000
    finally:
        client.close()
    return f"{server.address}, Qdrant {release}, answers in {took:.0f} ms"


def address_of(client: QdrantClient) -> str:
    """Return the address of the client's server without credentials."""
    options = client.init_options
    if options.get("url"):
        parts = urlsplit(str(options["url"]))
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}" if parts.hostname else "a given URL"
    host = options.get("host")
    return f"{host}:{options.get('port')}" if host else "this process"


def reason_of(error: BaseException) -> str:
    """Return why a call failed; of a reply only the status, because a body may repeat documents."""
    if isinstance(error, UnexpectedResponse):
        return f"{error.status_code} {error.reason_phrase}"
    if isinstance(error, QdrantException):
        return "429 Too Many Requests"
    if _is_nonsense(error):
        return "the answer is not a Qdrant server's"  # the client would repeat the answer
    if _is_unsendable(error):
        return "the request cannot be sent: check address and key"
    return str(error) or type(error).__name__


def _was_answered(error: EngineError, status: int) -> bool:
    """Return whether the server answered with this HTTP status."""
    cause = error.__cause__
    return isinstance(cause, UnexpectedResponse) and cause.status_code == status


_KEYS = (
    "; its key is IDX_COLLECTION__API_KEY for a collection that other software filled, else "
    "IDX_RAG_V2__QDRANT_API_KEY"
)
_random_pause = wait_random_exponential(multiplier=0.2, max=5)


def _pause(state: RetryCallState) -> float:
    """Return the seconds until the next attempt: the server's wish plus a random time."""
    error = state.outcome and state.outcome.exception()
    asked = _asked_pause(error) if error else None
    return min(LONGEST_PAUSE, (asked or 0.0) + _random_pause(state))


def _asked_pause(error: BaseException) -> float | None:
    if isinstance(error, ResourceExhaustedResponse):
        return float(error.retry_after_s)
    if isinstance(error, UnexpectedResponse):
        return read_retry_after(error.headers.get("Retry-After"))
    dated = _NO_NUMBER.fullmatch(str(error))  # the client parses whole seconds only
    return read_retry_after(dated.group(1)) if dated else None


def _is_refused(error: BaseException) -> bool:
    return isinstance(error, UnexpectedResponse) and error.status_code in (401, 403)


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, UnexpectedResponse):
        return error.status_code is None or error.status_code == 429 or error.status_code >= 500
    return isinstance(error, FAILURES) and not (_is_nonsense(error) or _is_unsendable(error))


def _is_unsendable(error: BaseException) -> bool:
    """Return whether the request could not be sent; the error's text may contain the key."""
    source = getattr(error, "source", error)
    return isinstance(source, httpx.LocalProtocolError)


def _is_nonsense(error: BaseException) -> bool:
    return isinstance(error, _UNREADABLE) or isinstance(
        getattr(error, "source", None), ValidationError
    )


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
        self._rag, self._given, self._sleep = setup.rag, client, sleep
        self.collection = collection_name(setup.rag.qdrant.collection_prefix, setup.dataset)
        self._opened: QdrantServer | None = None

    @property
    def server(self) -> QdrantServer:
        """The server; nothing is sent yet."""
        if self._opened is None:
            seconds = self._rag.qdrant.timeout_seconds
            url, key = self._rag.qdrant_url or "", self._rag.qdrant_api_key
            client = self._given or open_client(url, key, seconds)
            self._opened = QdrantServer(client, seconds=seconds, sleep=self._sleep)
        return self._opened

    def locks(self, seconds: float) -> list[AbstractContextManager[None]]:
        """Return the locks of this machine and of all that share a store in Postgres."""
        of_all = self.database.hold_dataset(
            f"collection {self.collection}",
            seconds=seconds,
            busy="it is held",
            on_wait=lambda: None,
        )
        return [*super().locks(seconds), of_all]

    def follow(self, stamp: Stamp) -> str | None:
        """Bring the points up to date, but give up soon: a search is waiting."""
        with self.server.hurry():
            return super().follow(stamp)

    def open(self, *, anew: bool = False) -> str:
        """Return the state in our note; create the collection if it is missing or another's."""
        note, call, client = self._read_note(), self.server.call, self.server.client
        if note is not None and not anew and note.get("store") != self.database.meta("store_id"):
            raise EngineError(
                f"the collection {self.collection!r} at {self.server.address} belongs to another "
                "catalog store: choose another collection prefix, or rebuild"
            )
        if note is None or anew or not self.made_by.items() <= note.items():
            call(client.delete_collection, self.collection)
            size = models.VectorParams(size=self.dim, distance=models.Distance.COSINE)
            try:
                call(
                    client.create_collection,
                    self.collection,
                    vectors_config=size,
                    metadata=self._note(""),
                )
            except EngineError as error:
                if not _was_answered(error, 409):  # made, though the answer was lost
                    raise
            note = {}
        if not note.get("state"):
            for index in PAYLOAD_INDEXES:
                call(client.create_payload_index, self.collection, wait=True, **index)
        return str(note.get("state", ""))

    def note(self, state: str) -> None:
        """Write our note."""
        metadata = self._note(state)
        self.server.call(self.server.client.update_collection, self.collection, metadata=metadata)

    def count(self) -> int:
        """Return the number of points."""
        return self.server.call(self.server.client.count, self.collection, exact=True).count

    def ids(self) -> dict[int, int]:
        """Return the row number of every point by its id."""
        found, following, most = dict[int, int](), None, self.count() + _PAGE
        while True:
            records, following = self.server.call(
                self.server.client.scroll,
                self.collection,
                limit=_PAGE,
                offset=following,
                with_payload=[SEQ],
            )
            found |= {int(one.id): (one.payload or {})[SEQ] for one in records}
            if following is None:
                return found
            most -= len(records)
            if most < 0 or not records:
                raise EngineError(
                    f"Qdrant at {self.server.address} lists more points than it counts"
                )

    def add(self, points: Sequence[Point]) -> None:
        """Add points, or replace those of the same id."""
        for start in range(0, len(points), _SENT):
            sent = [
                models.PointStruct(id=one.id, vector=one.vector.tolist(), payload=one.payload)
                for one in points[start : start + _SENT]
            ]
            self.server.call(self.server.client.upsert, self.collection, sent, wait=True)

    def remove(self, seqs: list[int]) -> None:
        """Remove the points of these passages."""
        chosen = models.FilterSelector(filter=_of_passages(seqs))
        self.server.call(self.server.client.delete, self.collection, chosen, wait=True)

    def find(self, vector: Vector, limit: int, seqs: list[int] | None) -> list[FoundPoint]:
        """Return the points of these passages nearest to a vector, best first."""
        response = self.server.ask(
            self.server.client.query_points,
            self.collection,
            query=vector.tolist(),
            query_filter=None if seqs is None else _of_passages(seqs),
            limit=limit,
            with_payload=[SEQ, CHUNK],
        )
        payloads = [(one.payload or {}, one.score) for one in response.points]
        return [FoundPoint(payload[SEQ], payload[CHUNK], score) for payload, score in payloads]

    def drop(self) -> None:
        """Remove the collection if it is ours."""
        note = self._read_note()
        if note is not None and note.get("store") == self.database.meta("store_id"):
            self.server.call(self.server.client.delete_collection, self.collection)

    def close(self) -> None:
        """Close the client unless it was given; the next search opens another one."""
        super().close()
        if self._opened is not None and self._given is None:
            self._opened.client.close()
            self._opened = None

    def _note(self, state: str) -> dict[str, Any]:
        store = self.database.meta("store_id")
        return {NOTE: {**self.made_by, "store": store, "state": state}}

    def _read_note(self) -> dict[str, Any] | None:
        """Return our note, ``None`` without a collection; raise for one that is not ours."""
        call, client = self.server.call, self.server.client
        if not call(client.collection_exists, self.collection):
            return None
        note = (call(client.get_collection, self.collection).config.metadata or {}).get(NOTE)
        if not isinstance(note, dict):
            raise EngineError(
                f"the collection {self.collection!r} at {self.server.address} was not made by "
                "catalog: choose another collection prefix"
            )
        return note


def _of_passages(seqs: list[int]) -> models.Filter:
    wanted = models.FieldCondition(key=SEQ, match=models.MatchAny(any=seqs))
    return models.Filter(must=[wanted])
