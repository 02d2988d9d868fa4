"""Publishes changed documents in groups, and writes into the manifest how each file fared.

A file is noted as begun before a document of it is published, and as read, with how that went,
after all of them are. A run that ends in between leaves nothing the next one does not find.

What fails is noted on the file it came from, and the rest of the group goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from llama_index.core.schema import BaseNode

from catalog.core.errors import EmbeddingError
from catalog.ingest.changes import DEFECTS, Change, FileOutcome, Fingerprints, StoredFiles
from catalog.ingest.discovery import SkippedFile, SourceFile
from catalog.ingest.pipeline import PipelineSteps
from catalog.ingest.sync_report import Failure
from catalog.store import Database, embedding_cache, llm_cache, manifest
from catalog.store.manifest import ManifestEntry, State
from catalog.store.revisions import remove_documents


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
            self.removed += remove_documents(connection, self._dataset, sorted(gone), self._clock())
            manifest.record(connection, self._dataset, entry)

    def forget(self, vanished: Collection[str], *, was_updated: bool) -> None:
        """Remove files that are gone with their documents, and what only those needed.

        The caches lose what no document has any more if one was removed or ``was_updated``.
        """
        paths = sorted(path for file in vanished for path in self._stored.paths_of(file))
        with self._database.write() as connection:
            self.removed += remove_documents(connection, self._dataset, paths, self._clock())
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


@dataclass(frozen=True, slots=True)
class _Pending:
    """A change waiting for its group to be full, and the file to note its failures on."""

    change: Change
    file: FileOutcome

    def fail(self, reason: str, *, retry: bool = False) -> None:
        self.file.fail(self.change.source.parsed.path, reason, retry=retry)


class Publisher:
    """Collects changes until they have ``group_chars`` characters, then publishes them.

    ``added`` and ``updated`` count documents published, ``unfinished`` those that were not
    because the model was down.
    """

    def __init__(self, stages: PipelineSteps, recorder: Recorder, *, group_chars: int) -> None:
        self._stages, self._recorder, self._group_chars = stages, recorder, group_chars
        self._group: list[_Pending] = []
        self._chars = 0
        self.added = self.updated = self.unfinished = 0

    def add(self, change: Change, file: FileOutcome) -> None:
        """Publish a document with its group, now if that is full."""
        self._group.append(_Pending(change, file))
        self._chars += len(change.source.parsed.text)
        if self._chars >= self._group_chars:
            self.flush()

    def flush(self) -> None:
        """Publish what is collected, and have the files noted that are wholly published."""
        group, self._group, self._chars = self._group, [], 0
        cut = [(one, nodes) for one in group if (nodes := self._cut(one)) is not None]
        down = self._embed([node for _, nodes in cut for node in nodes])
        self._recorder.begin(one.file.source for one, _ in cut)
        for one, nodes in cut:
            if down is not None:
                one.fail(down, retry=True)
                self.unfinished += 1
            elif not nodes:
                one.fail("it holds no text to search")
            else:
                self._publish(one, nodes)
        self._recorder.note_waiting()

    def _cut(self, one: _Pending) -> list[BaseNode] | None:
        try:
            return self._stages.cut(one.change.source)
        except DEFECTS as error:
            one.fail(f"it cannot be cut: {type(error).__name__}: {error}", retry=True)
            return None

    def _embed(self, nodes: list[BaseNode]) -> str | None:
        """Why the model gave no vectors, ``None`` if it did."""
        try:
            self._stages.embed(nodes)
        except EmbeddingError as error:
            return str(error)
        return None

    def _publish(self, one: _Pending, nodes: list[BaseNode]) -> None:
        failures = self._stages.embedding.failures
        bad = [node.node_id for node in nodes if node.node_id in failures]
        if bad:
            why = f"{len(bad)} of {len(nodes)} chunks not embedded: {failures[bad[0]]}"
            one.fail(why, retry=True)
        if one.change.lacking and set(bad) == one.change.lacking:
            return  # what is published is already all there is
        self._stages.publish(nodes)
        if one.change.is_new:
            self.added += 1
        else:
            self.updated += 1
