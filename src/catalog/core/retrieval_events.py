"""A request's edge and id, and the log of failures, retries and fallbacks in its search.

The events contain no text of a question, a document or a key.
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
EDGE: ContextVar[Edge | None] = ContextVar("catalog_edge", default=None)
"""The edge of the current call; ``None`` for a program that calls directly."""
REQUEST_ID: ContextVar[str] = ContextVar("catalog_request_id", default="")
"""The id of the current HTTP request."""
HOME: ContextVar[str] = ContextVar("catalog_home", default="")
"""The home of the current search."""
_SEARCH_ID: ContextVar[str] = ContextVar("catalog_search", default="-")
_HEARD: ContextVar[list[str]] = ContextVar("catalog_failures")
LOGGER = logging.getLogger("catalog.retrieval")
LOGGER.propagate = False  # messages for users are printed elsewhere
LOGGER.addHandler(logging.NullHandler())  # else Python would print warnings of a program's own
_CAUSES = 6  # of an error, that are named


@contextmanager
def holding(variable: ContextVar[ValueT], value: ValueT) -> Iterator[ValueT]:
    """Set a context variable for the block, and yield its value."""
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)


def asked_at(edge: Edge) -> AbstractContextManager[object]:
    """Set the edge of the calls in the block, unless an outer block has set another."""
    return holding(EDGE, EDGE.get() or edge)


@contextmanager
def searching(home: str) -> Iterator[None]:
    """Log the block's events as one search, and an error that ends it but of an invalid call."""
    if HOME.get() == home:
        yield
        return
    with holding(HOME, home), holding(_SEARCH_ID, REQUEST_ID.get() or uuid4().hex[:12]):
        try:
            yield
        except InputError:
            raise
        except Exception as error:
            _tell("search", "failed", error_text(error))
            raise


def hearing_failures() -> AbstractContextManager[list[str]]:
    """Yield a list to which each failed step of a search in the block is added, with its error."""
    return holding(_HEARD, [])


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


def error_text(error: BaseException | None) -> str:
    """Return the classes of an error and its causes, with an HTTP status or system error number."""
    parts: list[str] = []
    while isinstance(error, BaseException) and len(parts) < _CAUSES:
        number = getattr(error, "status_code", None) or getattr(error, "errno", None)
        parts.append(f"{type(error).__name__}{f' {number}' if isinstance(number, int) else ''}")
        error = error.__cause__ or getattr(error, "source", None)  # as Qdrant's client names it
    return " from ".join(dict.fromkeys(parts))


def _tell(step: str, event: str, reason: str) -> None:
    LOGGER.warning("search=%s %s step=%s: %s", _SEARCH_ID.get(), event, step, reason)
