"""Where a request came in, known to everything that answers it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

Edge = Literal["cli", "http", "mcp", "python"]
_EDGE: ContextVar[Edge | None] = ContextVar("catalog_edge", default=None)


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
