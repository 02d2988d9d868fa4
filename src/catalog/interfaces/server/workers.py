"""Threads that answer requests: how many at once, how many wait, how long each may take."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from threading import Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from catalog.core.bounded_calls import ending_at
from catalog.core.errors import CatalogError, OutOfTimeError, ServingError
from catalog.interfaces.server.crash_log import log_bug

if TYPE_CHECKING:
    from catalog.interfaces.calls import Engine


ResultT = TypeVar("ResultT")
_LOG = logging.getLogger(__name__)
_WAITING_PER_THREAD = 4


class Workers:
    """At most ``max_threads`` threads; four times as many calls may wait for one.

    A thread cannot be stopped from outside: after ``seconds`` the call itself ends at its next SQL
    statement or :func:`~catalog.core.bounded_calls.check_time`. Threads start when first needed and
    do not delay the exit. ``check`` is called before each call's work; its error becomes the
    call's.
    """

    def __init__(
        self, max_threads: int, seconds: float, check: Callable[[], None] = lambda: None
    ) -> None:
        self._max_threads = max_threads
        self._seconds = seconds
        self._check = check
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self._lock = Lock()
        self._threads = 0
        self._pending = 0

    @property
    def pending(self) -> int:
        """Return the number of calls that run or wait, including abandoned ones."""
        return self._pending

    async def run(self, work: Callable[[], ResultT]) -> ResultT:
        """Run the work in a thread and return its result, or raise its error.

        It has the caller's context variables, such as the edge. Raises :class:`ServingError` at
        once, or :class:`OutOfTimeError`.
        """
        future = self._submit(work)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), self._seconds)
        except TimeoutError:
            if future.done() and not future.cancelled():
                raise  # the work's own
            raise OutOfTimeError(f"no answer within {self._seconds:g} seconds") from None

    def call(self, work: Callable[[], ResultT]) -> ResultT:
        """Run the work as :meth:`run` does, for a caller that is a thread."""
        future = self._submit(work)
        try:
            return future.result(self._seconds)
        except TimeoutError:
            if future.done():
                raise
            future.cancel()
            raise OutOfTimeError(f"no answer within {self._seconds:g} seconds") from None

    def _submit(self, work: Callable[[], ResultT]) -> Future[ResultT]:
        context, deadline = copy_context(), monotonic() + self._seconds

        def bounded() -> ResultT:
            with ending_at(deadline):
                return work()

        future: Future[ResultT] = Future()
        with self._lock:
            if self._pending >= self._max_threads * (1 + _WAITING_PER_THREAD):
                raise ServingError(f"{self._pending} requests are waiting: try again in a moment")
            self._pending += 1
            starts = self._threads < min(self._max_threads, self._pending)
            self._threads += starts
        self._calls.put((future, partial(context.run, bounded)))
        if starts:
            Thread(target=self._answer, name="catalog-serve", daemon=True).start()
        return future

    def _answer(self) -> None:
        while True:
            future, work = self._calls.get()
            if future.set_running_or_notify_cancel():
                try:
                    self._check()
                    result = work()
                except BaseException as error:  # noqa: BLE001 - told to whoever waits
                    self._leave()
                    future.set_exception(error)
                else:
                    self._leave()
                    future.set_result(result)
            else:
                self._leave()

    def _leave(self) -> None:
        with self._lock:
            self._pending -= 1


def warm_in_background(engine: Engine, done: Callable[[], None] = lambda: None) -> None:
    """Start a thread that warms the engine if it can be; a failure is just logged.

    ``done`` is called at the end in either case.
    """
    warm = getattr(engine, "warm", None)
    if warm is None:
        done()
        return

    def run() -> None:
        try:
            warm()
        except CatalogError as error:
            _LOG.warning("not warmed up: %s", error)
        except Exception as error:  # noqa: BLE001 - logged; a query tells whoever asks it
            log_bug("warming up", error)
        finally:
            done()

    threading.Thread(target=run, name="catalog-warm", daemon=True).start()
