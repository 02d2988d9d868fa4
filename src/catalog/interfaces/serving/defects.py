"""Logging without quoting anybody: defects of ours, and what libraries would tell."""

from __future__ import annotations

import logging
import traceback

_LOG = logging.getLogger(__name__)
_FRAMES = 20
_TALKATIVE = ("mcp", "sse_starlette", "asyncio", "urllib3", "httpcore", "httpx")


def log_bug(what: str, error: BaseException) -> None:
    """Where it showed, without its message, which may quote a query or a document."""
    frames = "".join(traceback.format_tb(error.__traceback__, limit=-_FRAMES))
    _LOG.error("%s: internal error, %s\n%s", what, type(error).__name__, frames)


def quiet_libraries() -> None:
    """At DEBUG these log whole messages, with the queries and the documents in them."""
    for logger in map(logging.getLogger, _TALKATIVE):
        logger.setLevel(max(logger.getEffectiveLevel(), logging.INFO))
