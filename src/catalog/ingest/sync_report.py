"""The report of an indexing run, and the progress of a long one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from catalog.embedding.encoder import EmbeddingUsage

_Item = TypeVar("_Item")

METADATA = "metadata not taken: "


@dataclass(frozen=True, slots=True)
class Failure:
    """A file or document that was not, or not completely, indexed, and why.

    ``outcome`` begins a sentence about it: ``indexed``, ``kept as it was`` or ``not indexed``.
    """

    path: str
    reason: str
    outcome: str = field(default="not indexed", compare=False)


@dataclass(frozen=True, slots=True)
class SyncReport:
    """The outcome of a run; ``documents``, ``chunks`` and ``files`` are the dataset's now.

    ``incomplete`` documents are not all embedded, ``unfinished`` files cut short, ``kept``
    documents could not be looked at. ``left_out`` files have no text in the index.
    """

    failed: tuple[Failure, ...]
    seconds: float
    documents: int = 0
    chunks: int = 0
    embedded: int = 0
    reused: int = 0
    added: int = 0
    updated: int = 0
    unchanged: int = 0
    removed: int = 0
    incomplete: int = 0
    unfinished: int = 0
    kept: int = 0
    files: int = 0
    left_out: int = 0
    embedded_chunks: int = 0
    words_seconds: float = 0.0
    failed_chunks: tuple[str, ...] = ()
    usage: EmbeddingUsage | None = None
    notes: tuple[str, ...] = ()


class Progress(Protocol):
    """A display of a run's progress in its own unit: bytes to read, tokens to embed, queries."""

    def start(self, total: float, doing: str = "", *, then: str = "") -> None:
        """Announce the size of a part (0: unknown), what it does, and a longer part to follow."""

    def advance(self, amount: float, label: str, counts: str = "") -> None:
        """Add completed work; ``label`` names the file or part, ``counts`` describe it."""


class Silent:
    """A progress that shows nothing."""

    def start(self, *args: object, **more: object) -> None: ...

    advance = start


class Pace:
    """The speed of a work, mostly in the last half minute, but for the first, slow piece."""

    def __init__(self, total: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._left, self._clock = total, clock
        self._last: float | None = None
        self._work = self._seconds = 0.0

    def advance(self, amount: float) -> None:
        """Add the work done since the last call."""
        now, last = self._clock(), self._last
        if amount > 0:
            self._left, self._last = self._left - amount, now
        if amount > 0 and last is not None:
            fading = 0.5 ** ((now - last) / 30.0)
            self._work = self._work * fading + amount
            self._seconds = self._seconds * fading + now - last

    @property
    def seconds_left(self) -> float | None:
        """The seconds that the rest will take at this pace; ``None`` until the pace is known."""
        return max(0.0, self._left) * self._seconds / self._work if self._seconds > 0 else None

    def rate_text(self) -> str:
        """Return ``, 31 a second``; "" until the pace is known."""
        rate = self._work / self._seconds if self._seconds > 0 else 0.0
        return f", {rate:.{0 if rate >= 10 else 1}f} a second" if rate else ""


def in_groups(
    items: Iterable[_Item], size_of: Callable[[_Item], int], enough: int
) -> Iterator[list[_Item]]:
    """Yield groups of items in order; a group is complete when its sizes reach ``enough``."""
    group, size = list[_Item](), 0
    for item in items:
        group.append(item)
        size += size_of(item)
        if size >= enough:
            yield group
            group, size = [], 0
    if group:
        yield group


def next_batch(size: int, seconds: float) -> int:
    """Return the size of the next batch, so that it takes one to four seconds."""
    return 2 * size if seconds < 1.0 else size if seconds <= 4.0 else max(1, size // 2)
