"""A Qdrant server: calls with retries, turns at writing, and the collections behind an alias.

A new index is built in a separate collection, ``{alias}@{fingerprint}`` (with ``~2`` at the end if
that is the live one). When it is full, one request moves the alias to it. Until then searches use
the old collection. See docs/decisions/0040.
"""

from __future__ import annotations

import json
import logging
import re
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from threading import RLock
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
from filelock import FileLock, Timeout
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
    EngineLockedError,
    EngineUnreachableError,
    LLMError,
    StoreBusyError,
)
from catalog.core.ids import sha1_hex
from catalog.core.retrieval_events import tell_retry
from catalog.store.database import Database

T = TypeVar("T")

ATTEMPTS = 4
LONGEST_PAUSE = 30.0  # seconds, even if the server asks for more
PATIENCE = 5.0  # seconds after which a search does not retry
REST = 5.0  # seconds without calls after a search failed
SECONDS = 30.0  # default time limit of a request
_ABANDONED = 8  # timed-out requests that may still run; with more, calls fail until one ends
_MOST_BYTES = 200_000_000  # of a reply: enough for 10,000 points of 3,072 numbers in JSON
_UNREADABLE = (json.JSONDecodeError, UnicodeDecodeError, RecursionError)  # a reply's JSON
FAILURES = (ApiException, QdrantException, httpx.HTTPError, OSError, *_UNREADABLE)
_NO_NUMBER = re.compile(r"Retry-After header value is not a valid integer: (.*)", re.DOTALL)

_is_hurried: ContextVar[bool] = ContextVar("is_hurried", default=False)
_log = logging.getLogger(__name__)
BUILD_WAIT_SECONDS = 600.0
APPLY_WAIT_SECONDS = 5.0


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
                headers={"Accept-Encoding": "identity"},
                event_hooks={"response": [_bound]},
            )
    except (ValueError, AssertionError) as error:  # their text may hold user and password
        raise ConfigError(
            "the address of the Qdrant server is not of the form http://host:6333"
        ) from error
    if api_key is not None and urlsplit(url).scheme != "https":
        _log.info("the key for Qdrant at %s is sent without TLS", address_of(client))
    return client


def _bound(reply: httpx.Response) -> None:
    """Make a reply fail while it is read if it is too large, or at once if it is compressed."""
    if reply.headers.get("Content-Encoding", "identity") != "identity":
        raise httpx.DecodingError("the answer is compressed, which was not requested")
    assert isinstance(reply.stream, httpx.SyncByteStream)
    reply.stream = _BoundedStream(reply.stream)


class _BoundedStream(httpx.SyncByteStream):
    def __init__(self, stream: httpx.SyncByteStream) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for piece in self._stream:
            size += len(piece)
            if size > _MOST_BYTES:
                raise httpx.DecodingError(f"the answer has over {_MOST_BYTES} bytes")
            yield piece

    def close(self) -> None:
        self._stream.close()


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


def was_answered(error: EngineError, status: int) -> bool:
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


class CollectionTurns:
    """The locks that let one thread of one process at a time write to a collection.

    There is a lock between the threads of this process, one between the processes of this machine,
    and one between all machines that share a store in Postgres.
    """

    def __init__(self, database: Database, collection: str) -> None:
        self._database, self._collection = database, collection
        lock_file = f"{database.file}.{sha1_hex(collection)[:12]}.lock"
        self._lock = FileLock(lock_file, mode=0o600, thread_local=False)
        self._guard = RLock()

    @contextmanager
    def take(self, seconds: float) -> Iterator[None]:
        """Hold all locks; raise :class:`EngineLockedError` if one takes longer than ``seconds``."""
        with self.enter(seconds), ExitStack() as held:
            try:
                held.enter_context(self._lock.acquire(timeout=seconds))
                held.enter_context(self._hold_shared(seconds))
            except (Timeout, StoreBusyError) as error:
                raise EngineLockedError(
                    f"another process is writing to the collection {self._collection!r}"
                ) from error
            yield

    @contextmanager
    def enter(self, seconds: float) -> Iterator[None]:
        """Hold the lock between threads; raise :class:`EngineLockedError` after ``seconds``."""
        if not self._guard.acquire(timeout=seconds):
            message = f"another thread is writing to the collection {self._collection!r}"
            raise EngineLockedError(message)
        try:
            yield
        finally:
            self._guard.release()

    def _hold_shared(self, seconds: float) -> AbstractContextManager[object]:
        if self._database.engine.dialect.name != "postgresql":
            return nullcontext()
        from catalog.store.postgres import begin_derived

        return begin_derived(
            self._database.engine, self._database.url, f"collection {self._collection}", seconds
        )


class CollectionVersions:
    """The collections behind an alias; ``fingerprint`` is that of the present model."""

    def __init__(self, server: QdrantServer, alias: str, fingerprint: str) -> None:
        self.alias = alias
        self._server = server
        model = re.sub(r"[^\w.-]", "-", fingerprint)
        first = f"{alias}@{model}"
        self.own = (first, f"{first}~2")

    def live(self) -> str | None:
        """Return the collection that searches use; ``None`` before the first one was built.

        A collection with the alias's own name was made by other software; it has no note of ours.
        """
        client = self._server.client
        for entry in self._server.call(client.get_aliases).aliases:
            if entry.alias_name == self.alias:
                return entry.collection_name
        return self.alias if self._server.call(client.collection_exists, self.alias) else None

    def free(self, live: str | None) -> str:
        """Return the name for the next collection to build."""
        return next(name for name in self.own if name != live)

    def publish(self, name: str, live: str | None) -> None:
        """Move the alias to this collection in one step, and drop collections that are not needed.

        The previous collection is kept if it is another model's, so that it can be used again.
        """
        client = self._server.client
        gone = models.DeleteAlias(alias_name=self.alias)
        made = models.CreateAlias(alias_name=self.alias, collection_name=name)
        changes: list[models.AliasOperations] = [models.CreateAliasOperation(create_alias=made)]
        if live is not None:
            changes.insert(0, models.DeleteAliasOperation(delete_alias=gone))
        self._server.call(client.update_collection_aliases, changes)
        previous = None if live in self.own else live
        for other in self._others(name, previous):
            self._server.call(client.delete_collection, other)

    def _others(self, *kept: str | None) -> list[str]:
        """Return the collections of this alias, except for ``kept``."""
        there = self._server.call(self._server.client.get_collections).collections
        names = (collection.name for collection in there)
        return [name for name in names if name.startswith(f"{self.alias}@") and name not in kept]


def collection_name(prefix: str, dataset: str) -> str:
    """Return a name that Qdrant accepts; other dataset names are changed and get a hash."""
    name = f"{prefix}{dataset}"
    plain = re.sub(r"[^\w.-]", "-", name)[:200]
    return name if plain == name else f"{plain}-{sha1_hex(name)[:8]}"
