"""Calls that may hang, such as a language model's: time limits, and pauses a server asks for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from time import monotonic
from types import SimpleNamespace
from typing import Any, TypeVar

from catalog.core.errors import LLMBusyError, LLMTimeoutError, OutOfTimeError

ResultT = TypeVar("ResultT")
_DEADLINE: ContextVar[float] = ContextVar("catalog_deadline", default=math.inf)
_END = object()
WHOLE = 12  # time limit of all pieces, in multiples of that of one


@contextmanager
def ending_at(deadline: float) -> Iterator[None]:
    """Let the work of the block end at a time of ``monotonic()``: see :func:`check_time`."""
    token = _DEADLINE.set(min(deadline, _DEADLINE.get()))
    try:
        yield
    finally:
        _DEADLINE.reset(token)


def time_left() -> float:
    """Return the seconds that the current call has left, infinity without a deadline."""
    return _DEADLINE.get() - monotonic()


def is_out_of_time() -> bool:
    """Return whether the time of the current call is over."""
    return time_left() < 0


def check_time() -> None:
    """Raise :class:`OutOfTimeError` if the time of the current call is over.

    Nobody waits for its answer any more. Long loops call this; each SQL statement does.
    """
    if is_out_of_time():
        raise OutOfTimeError("the request took longer than the server allows: ask for less")


class BoundedCalls:
    """Run functions in separate threads, and abandon those that take too long.

    An abandoned call runs until its function ends, and its result is not used. While ``limit`` of
    them run, no further call starts. They never delay the end of the process. Safe to share between
    threads.
    """

    def __init__(self, limit: int) -> None:
        self._limit, self._lock = limit, Lock()
        self.abandoned = 0
        """How many abandoned calls are still running."""

    def call(self, function: Callable[[], ResultT], seconds: float) -> ResultT:
        """Return the result of ``function()`` or raise its error, if it ends within ``seconds``.

        The function sees the caller's context variables. Raises :class:`LLMTimeoutError` if it
        takes longer, and :class:`LLMBusyError` at once while too many abandoned calls are running.
        """
        with ending_at(monotonic() + seconds):
            (result,) = self.stream(lambda: (function(),), seconds, math.inf)
        return result

    def stream(
        self, function: Callable[[], Iterable[ResultT]], seconds: float, deadline: float
    ) -> Iterator[ResultT]:
        """Yield the pieces of ``function()``, each within ``seconds`` of the previous one.

        The last one must arrive before ``deadline``, a time of ``monotonic()``. The function runs
        in a separate thread. After the time limit, or when the caller stops reading, it runs to its
        next piece only; a slow caller gets every piece that was in time. Raises like :meth:`call`;
        an error of the function is raised after the pieces before it.
        """
        pieces: SimpleQueue[Any] = SimpleQueue()
        run = SimpleNamespace(has_ended=False, is_abandoned=False, error=None)
        too_long = LLMTimeoutError("the answer did not end in time")

        def produce() -> None:
            try:
                for piece in function():
                    pieces.put(piece)
                    if run.is_abandoned:
                        break
                    if monotonic() > deadline:
                        run.error = too_long
                        break
            except BaseException as error:  # noqa: BLE001 - raised again where it is read
                run.error = error
            with self._lock:
                run.has_ended = True
                self.abandoned -= run.is_abandoned
            pieces.put(_END)

        with self._lock:
            if self.abandoned >= self._limit:
                raise LLMBusyError(f"{self.abandoned} earlier calls are still running")
        context = copy_context()
        context.run(_DEADLINE.set, min(deadline, _DEADLINE.get()))
        Thread(target=context.run, args=(produce,), name="bounded-call", daemon=True).start()
        try:
            while True:
                left = deadline - monotonic()
                try:
                    piece = pieces.get(timeout=max(0.0, min(seconds, left)))
                except Empty:
                    if left <= seconds:
                        raise too_long from None
                    raise LLMTimeoutError(f"no answer within {seconds:g} s") from None
                if piece is _END:
                    break
                yield piece
        finally:
            with self._lock:
                run.is_abandoned = not run.has_ended
                self.abandoned += run.is_abandoned
        if run.error is not None:
            raise run.error


def read_retry_after(value: str | None, now: datetime | None = None) -> float | None:
    """Return the seconds in a ``Retry-After`` header, a number or a date; at least 0.

    ``None`` without a value or for an invalid one. A date is counted from ``now``. See RFC 9110,
    section 10.2.3.
    """
    text = (value or "").strip()
    try:
        seconds = float(text)
    except ValueError:
        try:
            moment = parsedate_to_datetime(text)
        except ValueError:
            return None
        zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        seconds = (zoned - (now or datetime.now(UTC))).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None
