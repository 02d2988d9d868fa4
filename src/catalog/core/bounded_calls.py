"""Calls that may hang, such as a language model's: time limits, and pauses a server asks for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread
from time import monotonic
from typing import Generic, NamedTuple, TypeVar

from catalog.core.errors import LLMBusyError, LLMTimeoutError, OutOfTimeError

ResultT = TypeVar("ResultT")
_DEADLINE: ContextVar[float] = ContextVar("catalog_deadline", default=math.inf)


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
        self._limit = limit
        self._abandoned = 0
        self._lock = Lock()

    @property
    def abandoned(self) -> int:
        """Return how many abandoned calls are still running."""
        return self._abandoned

    def call(self, function: Callable[[], ResultT], seconds: float) -> ResultT:
        """Return the result of ``function()`` or raise its error, if it ends within ``seconds``.

        The function sees the caller's context variables. Raises :class:`LLMTimeoutError` if it
        takes longer, and :class:`LLMBusyError` at once while too many abandoned calls are running.
        """
        with self._lock:
            if self._abandoned >= self._limit:
                raise LLMBusyError(f"{self._abandoned} earlier calls are still running")
        run = _Run(function)
        context = copy_context()
        context.run(_DEADLINE.set, min(monotonic() + seconds, _DEADLINE.get()))
        worker = Thread(target=context.run, args=(self._run, run), name="bounded-call", daemon=True)
        worker.start()
        try:
            run.ended.wait(seconds)
        finally:
            with self._lock:
                run.is_abandoned = not run.ended.is_set()
                self._abandoned += run.is_abandoned
        if run.is_abandoned:
            raise LLMTimeoutError(f"no answer within {seconds:g} s")
        return run.result()

    def stream(
        self, function: Callable[[], Iterable[ResultT]], seconds: float, deadline: float
    ) -> Iterator[ResultT]:
        """Yield the pieces of ``function()``, each within ``seconds`` of the previous one.

        The last one must arrive before ``deadline``, a time of ``monotonic()``. The function runs
        in a separate thread. After the time limit, or when the caller stops reading, it runs to its
        next piece only; a slow caller gets every piece that was in time. Raises like :meth:`call`;
        an error of the function is raised after the pieces before it.
        """
        pieces: SimpleQueue[ResultT | _End] = SimpleQueue()
        is_wanted = True
        too_long = LLMTimeoutError("the answer did not end in time")

        def produce() -> None:
            try:
                for piece in function():
                    pieces.put(piece)
                    if not is_wanted:
                        return
                    if monotonic() > deadline:
                        pieces.put(_End(too_long))
                        return
            except BaseException as error:  # noqa: BLE001 - raised again where it is read
                pieces.put(_End(error))
            else:
                pieces.put(_End(None))

        with self._lock:
            if self._abandoned >= self._limit:
                raise LLMBusyError(f"{self._abandoned} earlier calls are still running")
        run = _Run(produce)
        context = copy_context()
        context.run(_DEADLINE.set, min(deadline, _DEADLINE.get()))
        Thread(
            target=context.run, args=(self._run, run), name="bounded-stream", daemon=True
        ).start()
        try:
            while True:
                try:
                    left = deadline - monotonic()
                    piece = pieces.get(timeout=max(0.0, min(seconds, left)))
                except Empty:
                    if left <= seconds:
                        raise too_long from None
                    raise LLMTimeoutError(f"no answer within {seconds:g} s") from None
                if isinstance(piece, _End):
                    if piece.error is not None:
                        raise piece.error
                    return
                yield piece
        finally:
            is_wanted = False
            with self._lock:
                run.is_abandoned = not run.ended.is_set()
                self._abandoned += run.is_abandoned

    def _run(self, run: _Run[ResultT]) -> None:
        run.execute()
        with self._lock:
            run.ended.set()
            self._abandoned -= run.is_abandoned


class _End(NamedTuple):
    """The end of a stream, and the error that ended it, if any."""

    error: BaseException | None


class _Run(Generic[ResultT]):
    def __init__(self, function: Callable[[], ResultT]) -> None:
        self._function = function
        self._result: list[ResultT] = []
        self._error: BaseException | None = None
        self.ended = Event()
        self.is_abandoned = False

    def execute(self) -> None:
        try:
            self._result.append(self._function())
        except BaseException as error:  # noqa: BLE001 - raised again by result()
            self._error = error

    def result(self) -> ResultT:
        if self._error is not None:
            raise self._error
        return self._result[0]


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
