"""Logs of defects, libraries and scarce resources, without any text of queries or documents."""

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

from catalog.core.files import remedy

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_LOG = logging.getLogger(__name__)
_MAX_FRAMES = 20
_QUIET_SECONDS = 60.0
_SCARCE_CODES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_LEAST = dict.fromkeys(("mcp", "sse_starlette", "asyncio"), logging.INFO)
_LEAST |= dict.fromkeys(("urllib3", "httpcore", "httpx"), logging.WARNING)


def log_bug(what: str, error: BaseException) -> None:
    """Log the place of a defect without its message, which may quote a query or a document."""
    frames = "".join(traceback.format_tb(error.__traceback__, limit=-_MAX_FRAMES))
    _LOG.error("%s: internal error, %s\n%s", what, type(error).__name__, frames)


def quiet_libraries() -> None:
    """Keep libraries above DEBUG, where they log whole messages with queries and documents.

    Libraries that call servers log each address at INFO, with any password or key in it; they are
    kept above INFO.
    """
    for name, least in _LEAST.items():
        logger = logging.getLogger(name)
        logger.setLevel(max(logger.getEffectiveLevel(), least))
    # Ctrl-C while a connection goes back to the pool is logged there, with a traceback.
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)


class ScarceResourceHandler:
    """An event loop's exception handler that logs once a minute that files or memory run out.

    asyncio would report that with a traceback for each waiting connection, again and again. All
    other errors go to the loop's own handler.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._logged_at = clock, -math.inf

    def __call__(self, loop: AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        code = error.errno if "socket" in context and isinstance(error, OSError) else None
        if code not in _SCARCE_CODES:
            loop.default_exception_handler(context)
            return
        if (now := self._clock()) - self._logged_at >= _QUIET_SECONDS:
            self._logged_at = now
            reasons = filter(None, (os.strerror(code), remedy(code, Path())))
            _LOG.error("new connections wait: %s", "; ".join(reasons))
