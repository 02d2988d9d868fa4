"""Logging without quoting anybody: defects of ours, and what libraries would tell."""

from __future__ import annotations

import errno
import logging
import math
import os
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catalog.core.os_errors import remedy

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


_LOG = logging.getLogger(__name__)
_FRAMES = 20
_QUIET_SECONDS = 60.0
_SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_TALKATIVE = ("mcp", "sse_starlette", "asyncio", "urllib3", "httpcore", "httpx")


def log_bug(what: str, error: BaseException) -> None:
    """Where it showed, without its message, which may quote a query or a document."""
    frames = "".join(traceback.format_tb(error.__traceback__, limit=-_FRAMES))
    _LOG.error("%s: internal error, %s\n%s", what, type(error).__name__, frames)


def quiet_libraries() -> None:
    """At DEBUG these log whole messages, with the queries and the documents in them."""
    for logger in map(logging.getLogger, _TALKATIVE):
        logger.setLevel(max(logger.getEffectiveLevel(), logging.INFO))


class ScarceResourceHandler:
    """An event loop's exception handler that says once a minute that files or memory run out.

    asyncio reports it with a traceback for each connection that might wait, again and again.
    Anything else goes to the loop's own handler.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._said = -math.inf

    def __call__(self, loop: AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        code = error.errno if "socket" in context and isinstance(error, OSError) else None
        if code not in _SCARCE:
            loop.default_exception_handler(context)
            return
        now = self._clock()
        if now - self._said >= _QUIET_SECONDS:
            self._said = now
            why = filter(None, (os.strerror(code), remedy(code, Path())))
            _LOG.error("new connections wait: %s", "; ".join(why))
