"""Bring a dataset in line with its folder, one document at a time.

    list files ─> brake on mass deletion ─> per file: changed? ─> read ─> per document: changed?
        ─> cut ─> publish: whole documents a transaction ─> record the file in the manifest
    ─> remove what vanished

No model is called: new passages are found by their words, and :mod:`catalog.ingest.embedding`
embeds them later. The old revision answers until the new one commits. If a run is killed at any
point, the next run ends in the same state, because published documents are recognised by their
hashes.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from sqlalchemy import Connection

from catalog.core.errors import ConfigError
from catalog.core.settings import IngestSettings
from catalog.ingest.changes import FolderChanges, date_of
from catalog.ingest.discovery import SourceFile
from catalog.ingest.pipeline import Pipeline, Source, publish
from catalog.ingest.reading import FileOutcome
from catalog.ingest.sync_report import Failure, Pace, Progress, Silent, SyncReport
from catalog.store import Database, embedding_cache, llm_cache, manifest
from catalog.store.document_names import set_file_dates
from catalog.store.manifest import DatasetSettings, ManifestEntry, State, note_dataset_settings
from catalog.store.publish import (
    NewRevision,
    describe_unfit,
    drop_damaged,
    ensure_dataset,
    remove_documents,
    set_source,
)
from catalog.store.recordings import read_originals

_FILE_COST = 4_000  # bytes whose reading takes as long as opening a file, about


def sync(
    database: Database,
    changes: FolderChanges,
    pipeline: Pipeline,
    *,
    settings: IngestSettings,
    made_with: DatasetSettings | None = None,
    patterns: tuple[Sequence[str], Sequence[str]] | None = ((), ()),
    progress: Progress | None = None,
    clock: Callable[[], float] = time.time,
) -> SyncReport:
    """Index the changes of a folder or file, and remove vanished files.

    ``made_with`` is stored as the settings of the pipeline, ``patterns`` as the included and
    excluded ones; ``None`` leaves those stored. The caller holds the dataset's lock. A failing file
    or document is named in the report. Raises :class:`MassDeletionError`, and changes nothing, if
    most files vanished.
    """
    started, progress = time.monotonic(), progress or Silent()
    changes.check_deletions(settings.max_missing_fraction)
    dataset = changes.stored.dataset
    if patterns is not None or made_with is not None or changes.reread:
        with database.write() as connection:
            ensure_dataset(connection, dataset, clock())
            if patterns is not None:
                set_source(connection, dataset, str(changes.top), *patterns)
            if made_with is not None:
                note_dataset_settings(connection, dataset, made_with)
            if changes.reread:
                drop_damaged(connection, dataset, clock())
    run = SyncRun(database, changes, pipeline, settings.group_chars, clock)
    run.failed += [Failure(file.path, file.reason) for file in changes.listing.skipped]
    files, pace = changes.in_order(), Pace(0)
    unchanged = {file.path for file in files if changes.reason_to_read(file) is None}
    work = {file.path: file.size + _FILE_COST for file in files if file.path not in unchanged}
    progress.start(sum(work.values()), "reading", then="embedding")
    for number, file in enumerate(files, start=1):
        is_left, before = run.leave_to_conversions(file), run.passages
        if not is_left and file.path in unchanged and file.path not in changes.deprived:
            run.keep(file)
        elif not is_left:
            progress.advance(0, file.path)
            run.read(file)
        if number == len(files):
            run.publish_group()
        pace.advance(run.passages - before)
        counts = f"{number:,} of {len(files):,} files, {run.passages:,} passages{pace.rate_text()}"
        progress.advance(work.get(file.path, 0), file.path, counts)
    run.remove_vanished()
    return run.report(time.monotonic() - started)


class SyncRun:
    """One run over a dataset, which publishes changed documents in groups.

    A group is published when its texts have ``group_chars`` characters. A file is recorded in the
    manifest as begun before its first document is published, and as read, with the result, after
    the last one. So a run that is interrupted leaves nothing that the next one would miss.
    """

    def __init__(
        self,
        database: Database,
        changes: FolderChanges,
        pipeline: Pipeline,
        group_chars: int,
        clock: Callable[[], float],
    ) -> None:
        self._database, self._changes, self._pipeline = database, changes, pipeline
        self._stored, self._dataset = changes.stored, changes.stored.dataset
        self._group_chars, self._clock = group_chars, clock
        self._group: list[tuple[Source, FileOutcome]] = []
        self._collected_chars = 0
        self._files_read: list[FileOutcome] = []
        self._files_begun = set(self._stored.entries)
        self._files_deprived: set[str] = set()
        self._moved: list[ManifestEntry] = []
        self.failed: list[Failure] = []
        self.passages = 0  # published in this run
        self._added = self._updated = self._unchanged = self._removed = self._unfinished = 0
        self._kept: dict[str, int] = {}  # documents by file that could not be read
        self._uncounted: dict[str, str] = {}  # why not in the model's tokens, by document

    def keep(self, file: SourceFile) -> None:
        """Keep the documents of an unchanged file, and repeat its earlier failure in the report."""
        entry, count = self._stored.entries[file.path], len(self._stored.paths_of(file.path))
        self._unchanged += count
        if entry.state == "kept":
            self._kept[file.path] = count
        if entry.reason is not None:
            self.failed.append(Failure(file.path, entry.reason))
        if (noted := self._changes.entry_of(file)) is not entry:
            self._moved.append(noted)

    def read(self, file: SourceFile) -> None:
        """Read a file, and publish its changed documents when their group is full."""
        outcome, changes = FileOutcome(file, begun_at=self._clock()), self._changes
        if (unfit := describe_unfit(file.path)) is not None:
            self.failed.append(Failure(file.path, unfit))  # its name cannot be stored either
            return
        entry, known = self._stored.entries.get(file.path), self._stored.paths_of(file.path)
        for parsed in outcome.read(changes):
            is_same = entry and (entry.state, entry.digest) == ("done", outcome.digest)
            if known and entry and not is_same and outcome.is_refused(parsed.path):
                continue  # its file was cut short: it keeps its earlier text
            if (unfit := describe_unfit(parsed.path, *parsed.metadata)) is not None:
                outcome.fail(parsed.path, unfit)
            elif (owner := changes.claim(parsed.path, file.path)) != file.path:
                reason = f"a document of {owner} has this path already"
                outcome.fail(parsed.path, reason, retry=True)  # until the owner gives it up
            else:
                outcome.paths.add(parsed.path)
                if (source := changes.change_of(parsed, file)) is None:
                    outcome.unchanged += 1
                    if "modified" not in parsed.metadata:
                        outcome.dates[parsed.path] = date_of(parsed, file)
                    continue
                self._group.append((source, outcome))
                self._collected_chars += len(parsed.text)
                if self._collected_chars >= self._group_chars:
                    self.publish_group()
        changes.release(file.path, known - outcome.paths - outcome.unread(known))
        self._files_read.append(outcome)

    def leave_to_conversions(self, file: SourceFile) -> bool:
        """Drop the documents of a converted file; return whether its conversion is indexed."""
        if file.path not in self._changes.originals.converted:
            return False
        self.publish_group()
        with self._database.write() as connection:
            if file.path not in read_originals(connection, self._dataset):
                return False
            paths = manifest.paths_of_files(connection, self._dataset, [file.path])
            self._removed += remove_documents(connection, self._dataset, paths, self._clock())
            self._changes.release(file.path, paths)
            entry = self._entry(file, "done", None, self._clock())
            entry = replace(entry, pipeline=self._changes.told_fingerprint)
            manifest.record(connection, self._dataset, entry)
        return True

    def publish_group(self) -> None:
        """Publish the collected documents, and record files whose documents are all published."""
        group, self._group, self._collected_chars = self._group, [], 0
        self._note_begun(outcome.file for _, outcome in group)
        revisions: list[NewRevision] = []
        for source, outcome in group:
            if (revision := self._cut(source, outcome)) is not None:
                is_new = source.parsed.path not in self._stored.documents
                self._added += is_new
                self._updated += not is_new
                revisions.append(revision)
        publish(self._database, revisions)
        self.passages += sum(len(revision.chunks) for revision in revisions)
        self._note_read()

    def _cut(self, source: Source, outcome: FileOutcome) -> NewRevision | None:
        try:
            revision, fallback = self._pipeline.prepare(source)
        except ConfigError:
            raise
        except Exception as error:  # noqa: BLE001 - recorded: the other documents go on
            reason = f"it cannot be cut: {type(error).__name__}: {error}"
            outcome.fail(source.parsed.path, reason, retry=True)
            return None
        if fallback is not None:
            self._uncounted[source.source_doc_id] = fallback
        if not revision.chunks:
            outcome.fail(source.parsed.path, "it has no text to search")
        return revision if revision.chunks else None

    def _note_begun(self, files: Iterable[SourceFile]) -> None:
        """Record new files, and those that lose a path, as begun: their documents may not stay."""
        new = {file.path: file for file in files if file.path not in self._files_begun}
        begun = [self._entry(file, "partial", None, self._clock()) for file in new.values()]
        deprived = self._changes.deprived - self._files_deprived
        begun += [replace(self._stored.entries[file], state="partial") for file in sorted(deprived)]
        if begun:
            with self._database.write() as connection:
                manifest.record(connection, self._dataset, *begun)
        self._files_begun.update(new)
        self._files_deprived |= deprived

    def _note_read(self) -> None:
        if not self._files_read:
            return
        with self._database.write() as connection:
            entries = [self._settle(connection, outcome) for outcome in self._files_read]
            manifest.record(connection, self._dataset, *entries, *self._moved)
        self._files_read, self._moved = [], []

    def _settle(self, connection: Connection, outcome: FileOutcome) -> ManifestEntry:
        """Remove a file's documents that are gone from it; return its manifest entry."""
        self.failed += outcome.failures
        self._unchanged += outcome.unchanged
        self._unfinished += outcome.is_cut_short
        file, known = outcome.file, self._stored.paths_of(outcome.file.path)
        if unread := outcome.unread(known):
            self._kept[file.path] = len(unread)
            outcome.retry = outcome.retry or outcome.is_whole
        state = "kept" if unread and not outcome.retry else outcome.state
        set_file_dates(connection, self._dataset, outcome.dates, self._clock())
        gone = sorted(known - outcome.paths - unread - self._changes.owners.keys())
        if gone:
            self._removed += remove_documents(connection, self._dataset, gone, self._clock())
        entry = self._entry(file, state, outcome.reason, outcome.begun_at)
        return replace(entry, digest=outcome.digest)

    def _entry(
        self, file: SourceFile, state: State, reason: str | None, seen_at: float
    ) -> ManifestEntry:
        now = self._changes.fingerprint(file.path, reason)
        entry = ManifestEntry(file.path, file.size, file.mtime_ns, now, state, reason, seen_at)
        return replace(entry, mount=file.mount, ctime_ns=file.ctime_ns, inode=file.inode)

    def remove_vanished(self) -> None:
        """Remove vanished files with their documents, and cache entries that are now unused.

        Failures of files whose conversion is indexed are dropped.
        """
        changes, dataset = self._changes, self._dataset
        with self._database.write() as connection:
            manifest.record(connection, dataset, *self._moved)
            if changes.vanished:
                paths = manifest.paths_of_files(connection, dataset, changes.vanished)
                self._removed += remove_documents(connection, dataset, paths, self._clock())
                manifest.forget(connection, dataset, changes.vanished)
            if self._removed or self._updated:
                embedding_cache.purge_unused(connection)
                llm_cache.purge(connection)
            if self.failed:
                told = manifest.excuse(connection, dataset, changes.told_fingerprint)
                self.failed = [failure for failure in self.failed if failure.path not in told]

    def report(self, seconds: float) -> SyncReport:
        """Return the report of the run, without the counts of the dataset's present content."""
        notes, kept = [*self._changes.notes()], sum(self._kept.values())
        if files_kept := len(self._kept):
            they = f"{kept} document{'s' * (kept > 1)} of {files_kept} file{'s' * (files_kept > 1)}"
            notes.append(f"kept {they} unchanged: the new content could not be read")
        for first in list(self._uncounted.values())[:1]:
            said = f"the size of {len(self._uncounted)} documents is an estimate"
            notes.append(f"{said}, 4 characters per token: {first}")
        unseen = (len(self._stored.paths_of(file)) for file in self._changes.unseen)
        dataset, skipped = self._dataset, {file.path for file in self._changes.listing.skipped}
        with self._database.read() as connection:
            files = manifest.count_files(connection, dataset)
            skipped -= manifest.entries(connection, dataset).keys() if skipped else set()
            documents = manifest.known_documents(connection, dataset) if self.failed else {}
        indexed = {*documents, *(it["file"] for it in documents.values())}
        outcomes = dict.fromkeys(indexed, "indexed") | dict.fromkeys(self._kept, "kept as it was")
        failed = [replace(it, outcome=outcomes.get(it.path, it.outcome)) for it in self.failed]
        return SyncReport(
            failed=tuple(failed),
            seconds=seconds,
            words_seconds=seconds,
            files=files.listed + len(skipped),
            left_out=files.listed - files.indexed + len(skipped),
            added=self._added,
            updated=self._updated,
            unchanged=self._unchanged,
            removed=self._removed,
            unfinished=self._unfinished,
            kept=sum(unseen) + kept,
            notes=tuple(notes),
        )
