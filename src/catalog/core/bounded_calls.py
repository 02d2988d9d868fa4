"""Calls that may hang, such as a language model's: time limits, and pauses a server asks for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar, copy_context
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any, TypeVar

from catalog.core.errors import LLMBusyError, LLMTimeoutError, OutOfTimeError
from catalog.core.retrieval_events import holding

ResultT = TypeVar("ResultT")
_DEADLINE: ContextVar[float] = ContextVar("catalog_deadline", default=math.inf)
WHOLE = 12  # time limit of all pieces, in multiples of that of one


def ending_at(deadline: float) -> AbstractContextManager[object]:
    """Let the work of the block end at a time of ``monotonic()``: see :func:`check_time`."""
    return holding(_DEADLINE, min(deadline, _DEADLINE.get()))


def time_left() -> float:
    """Return the seconds that the current call has left, infinity without a deadline."""
    return _DEADLINE.get() - monotonic()


def check_time() -> None:
    """Raise :class:`OutOfTimeError` if the time of the current call is over, in long loops."""
    if time_left() < 0:
        raise OutOfTimeError("the request took longer than the server allows: ask for less")


class BoundedCalls:
    """Run functions in separate threads, and abandon those that take too long.

    An abandoned call runs until its function ends. While ``limit`` of them run, no further call
    starts. They never delay the end of the process. Safe to share between threads.
    """

    def __init__(self, limit: int) -> None:
        self._limit, self._lock = limit, Lock()
        self.abandoned = 0
        """How many abandoned calls are still running."""

    def call(self, function: Callable[[], ResultT], seconds: float) -> ResultT:
        """Return the result of ``function()`` or raise its error, if it ends within ``seconds``.

        Raises :class:`LLMTimeoutError` if it takes longer, and :class:`LLMBusyError` at once while
        too many abandoned calls are running.
        """
        with ending_at(monotonic() + seconds):
            (result,) = self.stream(lambda: (function(),), seconds, math.inf)
        return result

    def stream(
        self, function: Callable[[], Iterable[ResultT]], seconds: float, deadline: float
    ) -> Iterator[ResultT]:
        """Yield the pieces of ``function()``, each within ``seconds`` of the previous one.

        The last one must arrive before ``deadline``, a time of ``monotonic()``. After that, or when
        the caller stops reading, the function runs to its next piece only; a slow caller gets every
        piece that was in time. Raises like :meth:`call`, after the pieces before the error.
        """
        pieces: SimpleQueue[tuple[Any, bool]] = SimpleQueue()  # and whether it is the end
        has_ended, is_abandoned = Event(), Event()
        too_late = LLMTimeoutError("the answer did not end in time")

        def produce() -> None:
            end: BaseException | None = None
            try:
                for piece in function():
                    pieces.put((piece, False))
                    if is_abandoned.is_set():
                        break
                    if monotonic() > deadline:
                        end = too_late
                        break
            except BaseException as error:  # noqa: BLE001 - raised again where it is read
                end = error
            with self._lock:
                has_ended.set()
                self.abandoned -= is_abandoned.is_set()
            pieces.put((end, True))

        with self._lock:
            if self.abandoned >= self._limit:
                raise LLMBusyError(f"{self.abandoned} earlier calls are still running")
        with ending_at(deadline):
            context = copy_context()
        Thread(target=context.run, args=(produce,), name="bounded-call", daemon=True).start()
        try:
            while True:
                left = deadline - monotonic()
                try:
                    piece, is_end = pieces.get(timeout=max(0.0, min(seconds, left)))
                except Empty:
                    slow = LLMTimeoutError(f"no answer within {seconds:g} s")
                    raise (too_late if left <= seconds else slow) from None
                if is_end:
                    break
                yield piece
        finally:
            with self._lock:
                if not has_ended.is_set():
                    is_abandoned.set()
                    self.abandoned += 1
        if piece is not None:
            raise piece


def read_retry_after(value: str | None) -> float | None:
    """Return the seconds in a ``Retry-After`` header; ``None`` without any: RFC 9110, 10.2.3."""
    import urllib3

    try:
        return urllib3.Retry().parse_retry_after(value or "")
    except urllib3.exceptions.InvalidHeader:
        return None
