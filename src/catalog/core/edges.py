"""Where a request came in, and its id, known to everything that answers it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

Edge = Literal["cli", "http", "mcp", "python"]
_EDGE: ContextVar[Edge | None] = ContextVar("catalog_edge", default=None)
_REQUEST_ID: ContextVar[str] = ContextVar("catalog_request_id", default="")


def current_edge() -> Edge | None:
    """Return the edge that the work at hand was asked at; ``None``: a program's own, as a test."""
    return _EDGE.get()


@contextmanager
def asked_at(edge: Edge) -> Iterator[None]:
    """Let what is done in the block be asked at this edge, unless it was at another before."""
    token = _EDGE.set(_EDGE.get() or edge)
    try:
        yield
    finally:
        _EDGE.reset(token)


def current_request_id() -> str:
    """Return the id of the HTTP request that the work at hand answers; ``""`` for other work."""
    return _REQUEST_ID.get()


@contextmanager
def answering_request(request_id: str) -> Iterator[str]:
    """Let what is done in the block answer the request of this id, which it is given."""
    token = _REQUEST_ID.set(request_id)
    try:
        yield request_id
    finally:
        _REQUEST_ID.reset(token)
