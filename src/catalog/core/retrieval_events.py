"""A request's edge and id, and the log of failures, retries and fallbacks in its search.

The events (failed, retried, degraded) contain no text of a question, a document or a key: only the
search's id, the step, classes of errors with their numbers, and reasons that the program words. A
library with that setting writes them to a file (``catalog.library.logs``).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Literal, TypeVar
from uuid import uuid4

from catalog.core.errors import InputError

ValueT = TypeVar("ValueT")
Edge = Literal["cli", "http", "mcp", "python"]
_EDGE: ContextVar[Edge | None] = ContextVar("catalog_edge", default=None)
_REQUEST_ID: ContextVar[str] = ContextVar("catalog_request_id", default="")
LOGGER = logging.getLogger("catalog.retrieval")
LOGGER.propagate = False  # messages for users are printed elsewhere
LOGGER.addHandler(logging.NullHandler())  # else Python would print warnings of a program's own
_SEARCH: ContextVar[tuple[str, str]] = ContextVar("catalog_search", default=("-", ""))  # id, home
_HEARD: ContextVar[list[str]] = ContextVar("catalog_failures")
_CAUSES = 6  # of an error, that are named


@contextmanager
def _with(variable: ContextVar[ValueT], value: ValueT) -> Iterator[ValueT]:
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)


def current_edge() -> Edge | None:
    """Return the edge of the current call; ``None`` for a program that calls directly."""
    return _EDGE.get()


def asked_at(edge: Edge) -> AbstractContextManager[object]:
    """Set the edge of the calls in the block, unless an outer block has set another."""
    return _with(_EDGE, _EDGE.get() or edge)


def current_request_id() -> str:
    """Return the id of the current HTTP request; ``""`` outside one."""
    return _REQUEST_ID.get()


def answering_request(request_id: str) -> AbstractContextManager[str]:
    """Set the id of the HTTP request that the block answers, and yield it."""
    return _with(_REQUEST_ID, request_id)


def current_home() -> str:
    """Return the home of the current search; ``""`` outside one."""
    return _SEARCH.get()[1]


@contextmanager
def searching(home: str) -> Iterator[None]:
    """Log the block's events under one search, with the id of its request if it has one.

    An error that ends the block is logged, unless the call itself was invalid.
    """
    if current_home() == home:
        yield
        return
    with _with(_SEARCH, (current_request_id() or uuid4().hex[:12], home)):
        try:
            yield
        except InputError:
            raise
        except Exception as error:
            _tell("search", "failed", error_text(error))
            raise


def hearing_failures() -> AbstractContextManager[list[str]]:
    """Yield a list to which each failed step of a search in the block is added, with its error."""
    return _with(_HEARD, [])


def tell_failure(step: str, error: BaseException) -> None:
    """Log a failed step; the search continues without it."""
    _HEARD.get([]).append(f"stage {step} failed: {type(error).__name__}: {error}")
    _tell(step, "failed", error_text(error))


def tell_fallback(step: str, reason: str) -> None:
    """Log a step that worked in another way than set; ``reason`` must not quote text."""
    _tell(step, "degraded", reason)


def tell_retry(what: str, attempt: int, error: BaseException | None, pause: float) -> None:
    """Log a call that failed for the ``attempt``-th time; it is repeated in ``pause`` seconds."""
    reason = "" if error is None else f"{error_text(error)}, "
    _tell(what, "retried", f"{reason}attempt {attempt}, trying again in {pause:.1f} s")


def error_text(error: BaseException) -> str:
    """Return the classes of an error and its causes, with an HTTP status or system error number."""
    parts: list[str] = []
    cause: BaseException | None = error
    while isinstance(cause, BaseException) and len(parts) < _CAUSES:
        number = getattr(cause, "status_code", None) or getattr(cause, "errno", None)
        suffix = f" {number}" if isinstance(number, int) else ""
        parts.append(f"{type(cause).__name__}{suffix}")
        cause = cause.__cause__ or getattr(cause, "source", None)  # as Qdrant's client names it
    return " from ".join(dict.fromkeys(parts))


def _tell(step: str, event: str, reason: str) -> None:
    if LOGGER.isEnabledFor(logging.WARNING):
        LOGGER.warning("search=%s %s step=%s: %s", _SEARCH.get()[0], event, step, reason)
