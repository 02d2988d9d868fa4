"""Threads that answer requests: how many at once, how many wait, how long each may take.

A defect found there is logged without any text of queries or documents.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from catalog.core.bounded_calls import ending_at
from catalog.core.errors import CatalogError, OutOfTimeError, ServingError

if TYPE_CHECKING:
    from catalog.interfaces.calls import Engine

ResultT = TypeVar("ResultT")
_LOG = logging.getLogger(__name__)
_WAITING_PER_THREAD = 4  # more are refused at once: they would wait past their time limit
_MAX_FRAMES = 20


def log_bug(what: str, error: BaseException) -> None:
    """Log the place of a defect without its message, which may quote a query or a document."""
    frames = "".join(traceback.format_tb(error.__traceback__, limit=-_MAX_FRAMES))
    _LOG.error("%s: internal error, %s\n%s", what, type(error).__name__, frames)


class Workers:
    """At most ``max_threads`` threads; four times as many calls may wait for one.

    A thread cannot be stopped from outside: after ``seconds`` the call itself ends at its next SQL
    statement or :func:`~catalog.core.bounded_calls.check_time`. ``check`` is called before each
    call's work; its error becomes the call's. ``pending`` calls run or wait, including abandoned
    ones.
    """

    def __init__(
        self, max_threads: int, seconds: float, check: Callable[[], None] = lambda: None
    ) -> None:
        self._threads = ThreadPoolExecutor(max_threads, "catalog-serve")
        self._most, self._seconds = max_threads * (1 + _WAITING_PER_THREAD), seconds
        self._check, self._lock = check, threading.Lock()
        self.pending = 0

    async def run(self, work: Callable[[], ResultT]) -> ResultT:
        """Run the work in a thread and return its result, or raise its error.

        It has the caller's context variables, such as the edge. Raises :class:`ServingError` at
        once, or :class:`OutOfTimeError`.
        """
        with self._submitted(work) as future:
            return await asyncio.wait_for(asyncio.wrap_future(future), self._seconds)

    def call(self, work: Callable[[], ResultT]) -> ResultT:
        """Run the work as :meth:`run` does, for a caller that is a thread."""
        with self._submitted(work) as future:
            return future.result(self._seconds)

    @contextmanager
    def _submitted(self, work: Callable[[], ResultT]) -> Iterator[Future[ResultT]]:
        deadline = monotonic() + self._seconds

        def bounded() -> ResultT:
            self._check()
            with ending_at(deadline):
                return work()

        with self._lock:
            if self.pending >= self._most:
                raise ServingError(f"{self.pending} requests are waiting: try again in a moment")
            self.pending += 1
        future = self._threads.submit(copy_context().run, bounded)
        future.add_done_callback(self._leave)
        try:
            yield future
        except TimeoutError:
            if future.done() and not future.cancelled():
                raise  # the work's own
            future.cancel()
            raise OutOfTimeError(f"no answer within {self._seconds:g} seconds") from None

    def _leave(self, _: Future[ResultT]) -> None:
        with self._lock:
            self.pending -= 1


def warm_in_background(engine: Engine, done: Callable[[], None] = lambda: None) -> None:
    """Warm the engine in a thread, and call ``done``; a failure is just logged."""

    def run() -> None:
        try:
            engine.warm()
        except CatalogError as error:
            _LOG.warning("not warmed up: %s", error)
        except Exception as error:  # noqa: BLE001 - logged; a query tells whoever asks it
            log_bug("warming up", error)
        finally:
            done()

    threading.Thread(target=run, name="catalog-warm", daemon=True).start()
