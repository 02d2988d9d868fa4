"""What a run writes into the manifest: files begun, read and vanished.

A file is noted as begun before a document of it is published, and as read, with how that went,
after all of them are. A run that ends in between leaves nothing the next one does not find.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from catalog.ingest.comparing import Fingerprints, StoredFiles
from catalog.ingest.discovery import SkippedFile, SourceFile
from catalog.ingest.outcome import FileOutcome
from catalog.ingest.report import Failure
from catalog.store import Database, embedding_cache, llm_cache, manifest
from catalog.store.documents import remove
from catalog.store.manifest import ManifestEntry, State


class Recorder:
    """Keeps the manifest of a dataset, and removes the documents that files no longer give.

    ``failed`` names what was not wholly indexed; ``unchanged`` and ``removed`` count documents.
    """

    def __init__(
        self,
        database: Database,
        stored: StoredFiles,
        fingerprints: Fingerprints,
        clock: Callable[[], float],
    ) -> None:
        self._database, self._dataset, self._clock = database, stored.dataset, clock
        self._stored, self._fingerprints = stored, fingerprints
        self._begun = set(stored.entries)
        self._waiting: list[FileOutcome] = []
        self.failed: list[Failure] = []
        self.unchanged = self.removed = 0

    def skip(self, skipped: Iterable[SkippedFile]) -> None:
        """Name files that were not listed; what is stored of them stays."""
        self.failed += [Failure(one.path, one.reason) for one in skipped]

    def keep(self, file: str) -> None:
        """An unchanged file: its documents stay, and what failed before is named again."""
        self.unchanged += len(self._stored.paths_of(file))
        reason = self._stored.entries[file].reason
        if reason is not None:
            self.failed.append(Failure(file, reason))

    def begin(self, files: Iterable[SourceFile]) -> None:
        """Note new files as begun before a document of theirs is published.

        A run that ends before they are done would else leave documents of files nobody remembers:
        were the files deleted then, the documents would stay.
        """
        new = {file.path: file for file in files if file.path not in self._begun}
        if not new:
            return
        with self._database.write() as connection:
            for file in new.values():
                begun = self._entry(file, "partial", None)
                manifest.record(connection, self._dataset, begun)
        self._begun.update(new)

    def wait(self, file: FileOutcome) -> None:
        """All documents of the file are handed on: note it as soon as they are published."""
        self._waiting.append(file)

    def note_waiting(self) -> None:
        """Note the files whose documents are all published by now, one transaction a file."""
        files, self._waiting = self._waiting, []
        for file in files:
            self.failed += file.failures
            self.unchanged += file.unchanged
            self._note(file)

    def _note(self, file: FileOutcome) -> None:
        gone = self._stored.paths_of(file.source.path) - file.paths if file.whole else ()
        entry = self._entry(file.source, file.state, file.reason)
        with self._database.write() as connection:
            self.removed += remove(connection, self._dataset, sorted(gone), self._clock())
            manifest.record(connection, self._dataset, entry)

    def forget(self, vanished: Collection[str], *, was_updated: bool) -> None:
        """Remove files that are gone with their documents, and what only those needed.

        The caches lose what no document has any more if one was removed or ``was_updated``.
        """
        paths = sorted(path for file in vanished for path in self._stored.paths_of(file))
        with self._database.write() as connection:
            self.removed += remove(connection, self._dataset, paths, self._clock())
            manifest.forget(connection, self._dataset, vanished)
            if self.removed or was_updated:
                embedding_cache.purge_unused(connection)
                llm_cache.purge(connection, before=0.0)  # of any age: only searches know a lifetime

    def _entry(self, file: SourceFile, state: State, reason: str | None) -> ManifestEntry:
        return ManifestEntry(
            file=file.path,
            size=file.size,
            mtime_ns=file.mtime_ns,
            pipeline=self._fingerprints.of_file(reason),
            state=state,
            reason=reason,
            seen_at=self._clock(),
        )
