"""The interface of executors: apply a function to items in order, ahead of the caller."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeVar

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
PendingT_co = TypeVar("PendingT_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Lost:
    """The result of an item that ended its process each time it was tried."""

    reason: str


class Pending(Protocol[PendingT_co]):
    """A result that is being computed elsewhere."""

    def result(self) -> PendingT_co:
        """Wait for the result and return it, or raise the error of the work."""
        ...

    def cancel(self) -> object:
        """Cancel the work if it has not begun."""
        ...


class Executor(Protocol):
    """Run work in parallel to the caller, ``size`` items at once."""

    size: int

    def map(
        self,
        work: Callable[[ItemT], ResultT],
        items: Iterable[ItemT],
        *,
        weigh: Callable[[ItemT], float] = lambda _: 1.0,
        room: float = 0.0,
    ) -> Iterator[ResultT | Lost]:
        """Yield the result of ``work`` for each item, in order; its errors are raised.

        Items are taken while there is room: one more than ``size``, and further ones while all
        items without a yielded result weigh no more than ``room``. Work and items must be
        picklable. An item whose process dies is tried once more; then it is lost.
        """
        ...

    def close(self) -> None:
        """End its processes at once, even during work; may be called twice."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class InPlace:
    """Run each item's work in this process, when its result is needed."""

    size = 1

    def map(
        self,
        work: Callable[[ItemT], ResultT],
        items: Iterable[ItemT],
        *,
        weigh: Callable[[ItemT], float] = lambda _: 1.0,  # noqa: ARG002 - nothing is ahead here
        room: float = 0.0,  # noqa: ARG002
    ) -> Iterator[ResultT | Lost]:
        """Yield the result of ``work`` for each item, in order; its errors are raised."""
        yield from map(work, items)

    def close(self) -> None:
        """Do nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


Answer = tuple[Literal["done", "raised"], Any]  # with the result, or the error


def attempt(work: Callable[[Any], Any], item: Any) -> Answer:
    """Return the result or error of ``work`` for an item in a form that can be sent."""
    try:
        return "done", work(item)
    except Exception as error:  # noqa: BLE001 - raised again where the result is asked for
        try:
            pickle.loads(pickle.dumps(error))  # noqa: S301
        except Exception:  # noqa: BLE001 - whatever keeps it from being sent
            return "raised", RuntimeError(f"{type(error).__name__}: {error}")
        return "raised", error


def map_ahead(
    submit: Callable[[ItemT], Pending[ResultT]],
    items: Iterable[ItemT],
    *,
    size: int,
    weigh: Callable[[ItemT], float],
    room: float,
) -> Iterator[ResultT]:
    """Yield results in the order of their items, submitting as :meth:`Executor.map` says."""
    pending: deque[tuple[float, Pending[ResultT]]] = deque()
    load = 0.0
    try:
        for item in items:
            weight = weigh(item)
            pending.append((weight, submit(item)))
            load += weight
            while len(pending) > size and load > room:
                weight, first = pending.popleft()
                load -= weight
                yield first.result()
        while pending:
            yield pending.popleft()[1].result()
    finally:
        for _, left in pending:
            left.cancel()
