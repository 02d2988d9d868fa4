"""Bringing a dataset in line with its folder, one document at a time.

    list files ─> brake on mass deletion ─> per file: changed? ─> read ─> per document: changed?
        ─> cut ─> embed what the cache lacks (a few documents together)
        ─> publish: one transaction a document ─> note the file in the manifest
    ─> remove what vanished ─> refresh the derived indexes

The old revision answers until the new one commits. Killed anywhere, the next run ends in the
same state: whatever was published is recognised by its hash, whatever was embedded by its key.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from llama_index.core.ingestion import IngestionPipeline

from catalog.core.documents import ParsedDocument
from catalog.core.errors import EmptyDocumentError, InputError, ReadError, TransientReadError
from catalog.ingest.changes import DEFECTS, FileOutcome, Fingerprints, FolderChanges, StoredFiles
from catalog.ingest.discovery import discover
from catalog.ingest.pipeline import PipelineSteps
from catalog.ingest.publishing import Publisher, Recorder
from catalog.ingest.readers import ReadFailure, ReadLimits, read_file
from catalog.ingest.readers.base import DEFAULT_LIMITS
from catalog.ingest.sync_report import Progress, Silent, SyncReport
from catalog.store import Database, manifest
from catalog.store.locks import hold_lock
from catalog.store.revisions import ensure_dataset, set_source

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class SyncOptions:
    """How a run behaves; see :class:`~catalog.core.settings.IngestSettings` for the numbers."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    limits: ReadLimits = DEFAULT_LIMITS
    group_chars: int = 64_000
    max_missing_fraction: float = 0.5
    allow_deletions: bool = False
    reread: bool = False
    lock_seconds: float = 30.0


def check_dataset_name(name: str) -> None:
    """Raise :class:`InputError` unless the name is safe in ids, file names and collections."""
    if _NAME.fullmatch(name) is None:
        raise InputError(
            f"dataset {name!r}: use 1 to 100 letters, digits, '.', '_' or '-', "
            "starting with a letter or digit"
        )


def sync(
    database: Database,
    root: Path,
    dataset: str,
    pipeline: IngestionPipeline,
    *,
    lock: Path,
    options: SyncOptions = SyncOptions(),
    progress: Progress | None = None,
    clock: Callable[[], float] = time.time,
) -> SyncReport:
    """Index what changed under ``root`` (a folder or one file) and forget what vanished.

    Raises :class:`SourceError` for a root that is not there, :class:`MassDeletionError` when
    most files vanished, :class:`StoreBusyError` when another run on the dataset does not end,
    :class:`StoreError` for a lock that cannot be opened; nothing has changed then. A failing file
    or document is named in the report instead.
    """
    check_dataset_name(dataset)
    busy = f"another process is indexing {dataset!r}; try again later"
    with hold_lock(lock, seconds=options.lock_seconds, busy=busy):
        return _sync(database, root, dataset, pipeline, options, progress or Silent(), clock)


def _sync(
    database: Database,
    root: Path,
    dataset: str,
    pipeline: IngestionPipeline,
    options: SyncOptions,
    progress: Progress,
    clock: Callable[[], float],
) -> SyncReport:
    stages, started = PipelineSteps.of(pipeline), time.monotonic()
    include, exclude, limits = options.include, options.exclude, options.limits
    listing = discover(root, include=include, exclude=exclude, limits=limits)
    stored = StoredFiles.load(database, dataset)
    fingerprints = Fingerprints(stages.fingerprint, limits)
    comparison = FolderChanges(listing, stored, fingerprints, reread=options.reread)
    if not options.allow_deletions:
        comparison.check_deletions(root, options.max_missing_fraction)
    with database.write() as connection:
        ensure_dataset(connection, dataset, clock())
        set_source(connection, dataset, str(root.resolve()), include, exclude)
    recorder = Recorder(database, stored, fingerprints, clock)
    recorder.skip(listing.skipped)
    publisher = Publisher(stages, recorder, group_chars=options.group_chars)
    progress.start(sum(file.size for file in listing.files))
    for file in listing.files:
        if comparison.is_unchanged(file):
            recorder.keep(file.path)
        else:
            progress.advance(0, file.path)
            outcome = FileOutcome(file)
            for parsed in _read(outcome, listing.top, limits):
                _compare(parsed, outcome, comparison, publisher)
            recorder.wait(outcome)
        progress.advance(file.size, file.path)
    publisher.flush()
    recorder.forget(comparison.vanished, was_updated=publisher.updated > 0)
    return _report(database, dataset, stages, publisher, recorder, time.monotonic() - started)


def _read(file: FileOutcome, top: Path, limits: ReadLimits) -> Iterator[ParsedDocument]:
    """The documents of a file; what cannot be read is noted on the file."""
    source = file.source
    try:
        for item in read_file(source.absolute, source.path, root=top, limits=limits):
            if isinstance(item, ReadFailure):
                file.fail(item.path, item.reason)
            else:
                yield item
    except EmptyDocumentError as error:
        file.fail(source.path, str(error))
    except ReadError as error:
        file.fail(source.path, str(error), retry=isinstance(error, TransientReadError))
        file.whole = False
    except DEFECTS as error:
        why = f"the reader failed: {type(error).__name__}: {error}"
        file.fail(source.path, why, retry=True)
        file.whole = False


def _compare(
    parsed: ParsedDocument, file: FileOutcome, comparison: FolderChanges, publisher: Publisher
) -> None:
    """Have a document published if it changed."""
    owner = comparison.taken_by(parsed.path, file.source.path)
    if owner is not None:
        file.fail(parsed.path, f"the path is taken by a document of {owner}")
        return
    file.paths.add(parsed.path)
    change = comparison.change(parsed, file.source)
    if change is None:
        file.unchanged += 1
    else:
        publisher.add(change, file)


def _report(
    database: Database,
    dataset: str,
    stages: PipelineSteps,
    publisher: Publisher,
    recorder: Recorder,
    seconds: float,
) -> SyncReport:
    with database.read() as connection:
        totals = manifest.totals(connection, dataset)
        incomplete = manifest.incomplete_documents(connection, dataset)
    embedded = stages.embedding.computed
    return SyncReport(
        documents=totals.documents,
        chunks=totals.chunks,
        embedded=embedded,
        reused=max(0, totals.vectors - embedded),
        failed=tuple(recorder.failed),
        seconds=seconds,
        added=publisher.added,
        updated=publisher.updated,
        unchanged=recorder.unchanged,
        removed=recorder.removed,
        incomplete=len(incomplete),
        unfinished=publisher.unfinished,
        notes=stages.notes(),
    )
