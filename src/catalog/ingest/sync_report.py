"""What an indexing run did, and how a long run reports its progress."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

METADATA = "metadata not taken: "


@dataclass(frozen=True, slots=True)
class Failure:
    """One file or document that was not, or not wholly, indexed, and why.

    A reason that begins with ``as text`` is of one that is indexed, but not as what it looks like;
    with :data:`METADATA`, of one of which not all that is said was taken.
    """

    path: str
    reason: str

    @property
    def outcome(self) -> str:
        """``indexed`` or ``not indexed``, as a sentence about the file begins."""
        return "indexed" if self.reason.startswith(("as text", METADATA)) else "not indexed"


@dataclass(frozen=True, slots=True)
class SyncReport:
    """The outcome of a run.

    ``documents`` and ``chunks`` are what the dataset holds now; ``embedded`` counts the texts
    the model was asked for in this run and ``reused`` those whose vectors were there already.
    ``added`` and the like count texts, of which several may be one document: see docs/time.md.
    ``incomplete`` counts documents of which some text could not be embedded, ``unfinished``
    documents that were not published because the model was down, or because their file is cut
    short; the next run retries both.
    ``kept`` counts documents that may have changed or be gone: they come from a file that could
    not be read, or lie below a place that could not be looked at.
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
    notes: tuple[str, ...] = ()


class Progress(Protocol):
    """Shows how far a run is, in a unit of its own: bytes of listed files, queries searched."""

    def start(self, total: int) -> None:
        """Announce how much the run, or its next part, will cover."""
        ...

    def advance(self, amount: int, label: str) -> None:
        """Add what is done; ``label`` names the file or the part."""
        ...


class Silent:
    """A progress that shows nothing."""

    def start(self, total: int) -> None:
        """Do nothing."""

    def advance(self, amount: int, label: str) -> None:
        """Do nothing."""
