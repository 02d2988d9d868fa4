"""Reading and cutting the files of a run before its writer comes to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from catalog.core.documents import ParsedDocument
from catalog.ingest.chunking.chunker import Cut, DocumentChunker
from catalog.ingest.discovery import STREAMED, SourceFile
from catalog.ingest.executors import Executor, InPlace, Lost
from catalog.ingest.file_outcome import FileOutcome
from catalog.ingest.originals import Originals
from catalog.ingest.readers import ReadLimits
from catalog.ingest.readers.base import file_type
from catalog.ingest.sidecars import Sidecars

FILE_COST = 4_000  # bytes whose reading takes as long as opening a file, about
_ROOM = 8_000_000  # bytes of files read and not yet published

CutDocument = tuple[ParsedDocument, Cut | None]


@dataclass(frozen=True, slots=True)
class FileReading:
    """How the files of a run are read and cut: all that it depends on."""

    top: Path
    limits: ReadLimits
    originals: Originals
    sidecars: Sidecars
    chunker: DocumentChunker

    def read(self, outcome: FileOutcome) -> Iterator[CutDocument]:
        """Yield the documents of a file as they are read, none of them cut."""
        for parsed in outcome.read(self.top, self.limits, self.originals, self.sidecars):
            yield parsed, None

    def __call__(self, outcome: FileOutcome) -> tuple[FileOutcome, list[CutDocument]] | None:
        """Return how the file fared and its documents; ``None`` where it does not lie here."""
        if not outcome.file.absolute.is_file():  # on a machine without that folder
            return None
        documents = [(parsed, self._cut(parsed)) for parsed, _ in self.read(outcome)]
        return outcome, documents

    def _cut(self, parsed: ParsedDocument) -> Cut | None:
        """Return its passages; ``None`` leaves it to the writer, which says what is wrong."""
        try:
            cut = self.chunker.cut(parsed)
        except Exception:  # noqa: BLE001 - the writer cuts it again, and records why not
            return None
        return cut if cut.fallback is None else None


class ReadAhead:
    """Gives each file of a run, in the run's order, as an executor or this process reads it.

    What is streamed is read here, as its documents are published, and so is what may not have to
    be read by the time it is reached. ``clock`` tells when reading began, at the latest.
    """

    def __init__(
        self,
        reading: FileReading,
        executor: Executor,
        files: Iterable[SourceFile],
        clock: Callable[[], float],
    ) -> None:
        self._reading, self._clock = reading, clock
        is_beside = not isinstance(executor, InPlace)
        ahead = [file for file in files if is_beside and self._is_sure(file)]
        self._ahead: AbstractSet[str] = {file.path for file in ahead}
        self._results = executor.map(
            reading,
            (FileOutcome(file, begun_at=clock()) for file in ahead),
            weigh=lambda outcome: outcome.file.size + FILE_COST,
            room=_ROOM,
        )

    def read(self, file: SourceFile) -> tuple[FileOutcome, Iterable[CutDocument]]:
        """Return how the file fares, which its documents change while they are gone through."""
        outcome = FileOutcome(file, begun_at=self._clock())
        if file.path not in self._ahead:
            return outcome, self._reading.read(outcome)
        result = next(self._results)
        if isinstance(result, Lost):
            outcome.fail(file.path, result.reason, retry=True)
            outcome.is_whole = False
            return outcome, ()
        return (outcome, self._reading.read(outcome)) if result is None else result

    def _is_sure(self, file: SourceFile) -> bool:
        is_left = file.path in self._reading.originals.converted  # to what was made of it, maybe
        return not is_left and file_type(file.path) not in STREAMED
