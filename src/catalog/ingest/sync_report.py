"""The report of an indexing run, and the progress of a long one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from catalog.embedding.encoder import EmbeddingUsage

_Item = TypeVar("_Item")

METADATA = "metadata not taken: "


@dataclass(frozen=True, slots=True)
class Failure:
    """A file or document that was not, or not completely, indexed, and why.

    A reason that begins with ``read as``: it is indexed, but its encoding is a guess, or it is not
    in the format it seems to have.
    With :data:`METADATA`: some of its metadata was not used. With ``… passages not embedded``: it
    is found by its words, but not completely by meaning.
    """

    path: str
    reason: str

    @property
    def outcome(self) -> str:
        """``indexed`` or ``not indexed``, the beginning of a sentence about the file."""
        if self.reason.partition(": ")[0].endswith(
            ("passage not embedded", "passages not embedded")
        ):
            return "indexed"
        return "indexed" if self.reason.startswith(("read as ", METADATA)) else "not indexed"


@dataclass(frozen=True, slots=True)
class SyncReport:
    """The outcome of a run.

    ``documents`` and ``chunks`` are the dataset's present counts. ``embedded`` counts the texts
    that the model embedded in this run, ``reused`` those whose vectors existed already. ``added``
    and the like count texts; several texts may be one document (docs/reference/recordings.md).
    ``embedded_chunks`` are the ``chunks`` that have a vector. ``incomplete`` counts documents with
    some text not embedded, because the model failed or was down; ``unfinished`` counts files that
    are cut short. The next run retries both. ``files`` are those listed, ``left_out`` those without
    any text in the index. After ``words_seconds`` everything was found by its words; the whole run
    took ``seconds``. ``kept`` counts documents that may have changed or be gone: they are from a
    file that could not be read, or below a place that could not be looked at. ``failed_chunks`` are
    ids of chunks with some text on which the model failed in this run. ``usage`` has the requests,
    tokens and cost of a model on a server, ``None`` without one.
    """

    documents: int
    chunks: int
    embedded: int
    reused: int
    failed: tuple[Failure, ...]
    seconds: float
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
        """Announce the size of the run, or of its next part, and the activity (``doing``).

        A ``total`` of 0 is unknown. ``then`` names a longer part that follows.
        """
        ...

    def advance(self, amount: float, label: str, counts: str = "") -> None:
        """Add completed work; ``label`` names the file or part, ``counts`` describe it."""
        ...


class Silent:
    """A progress that shows nothing."""

    def start(self, total: float, doing: str = "", *, then: str = "") -> None:
        """Do nothing."""

    def advance(self, amount: float, label: str, counts: str = "") -> None:
        """Do nothing."""


_HALF_LIFE = 30.0  # seconds after which a measurement counts half


class Pace:
    """The speed of a work of ``total``, with most weight on the last half minute.

    The first piece is not measured, because it also loads models and libraries.
    """

    def __init__(self, total: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._left, self._clock = total, clock
        self._last: float | None = None
        self._work = self._seconds = 0.0

    def advance(self, amount: float) -> None:
        """Add the work done since the last call."""
        if amount <= 0:
            return
        now, last = self._clock(), self._last
        self._left, self._last = self._left - amount, now
        if last is not None:
            fading = 0.5 ** ((now - last) / _HALF_LIFE)
            self._work = self._work * fading + amount
            self._seconds = self._seconds * fading + now - last

    @property
    def per_second(self) -> float | None:
        """The work done per second; ``None`` until it is known."""
        return self._work / self._seconds if self._seconds > 0 else None

    @property
    def seconds_left(self) -> float | None:
        """The seconds that the rest will take at this pace; ``None`` until the pace is known."""
        rate = self.per_second
        return max(0.0, self._left) / rate if rate else None

    def rate_text(self) -> str:
        """Return ``, 31 a second``; "" until the pace is known."""
        rate = self.per_second
        return "" if rate is None else f", {rate:.{0 if rate >= 10 else 1}f} a second"


_SLOW = 4.0  # seconds a batch may take before the next is made smaller


def in_groups(
    items: Iterable[_Item], size_of: Callable[[_Item], int], enough: int
) -> Iterator[list[_Item]]:
    """Yield groups of items in order; a group is complete when its sizes reach ``enough``."""
    group: list[_Item] = []
    size = 0
    for item in items:
        group.append(item)
        size += size_of(item)
        if size >= enough:
            yield group
            group, size = [], 0
    if group:
        yield group


def next_batch(size: int, seconds: float) -> int:
    """Return the size of the next batch, from how long one of ``size`` took."""
    if seconds > _SLOW:
        return max(1, size // 2)
    return 2 * size if seconds < _SLOW / 4 else size
