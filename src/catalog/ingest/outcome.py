"""How one file fares in a run: which documents it gave, what failed, what to try again."""

from __future__ import annotations

from dataclasses import dataclass, field

from catalog.ingest.discovery import SourceFile
from catalog.ingest.report import Failure
from catalog.store.manifest import State

# What a defect in a reader or chunker may raise on one odd document: the rest must go on.
DEFECTS = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError)


@dataclass(slots=True)
class FileOutcome:
    """A file being read in this run.

    ``paths`` are those of its documents, ``unchanged`` counts the ones to be left as they are.
    ``retry`` says that the next run may fare better though the file is the same; without
    ``whole`` it was not read to its end, so that a document that is missing may still be there.
    """

    source: SourceFile
    paths: set[str] = field(default_factory=set)
    failures: list[Failure] = field(default_factory=list)
    unchanged: int = 0
    retry: bool = False
    whole: bool = True

    def fail(self, path: str, reason: str, *, retry: bool = False) -> None:
        """Note why the file, or the document at ``path``, is not wholly indexed."""
        self.failures.append(Failure(path, reason))
        self.retry = self.retry or retry

    @property
    def reason(self) -> str | None:
        """The first failure's, ``None`` without any."""
        return self.failures[0].reason if self.failures else None

    @property
    def state(self) -> State:
        """What the manifest says of it; a failure that would only repeat itself is done with."""
        if not self.retry:
            return "done"
        return "partial" if self.paths else "failed"
