"""Predict an indexing run from the listing and the store; files are hashed at most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from catalog.core.errors import MassDeletionError
from catalog.core.settings import IngestSettings
from catalog.ingest.changes import FolderChanges, StoredFiles
from catalog.ingest.discovery import discover
from catalog.ingest.readers import ReadLimits
from catalog.ingest.sync_report import Failure
from catalog.store import Database
from catalog.store.recordings import read_originals


@dataclass(frozen=True, slots=True)
class SyncPreview:
    """What a run would do, by file.

    ``added`` and ``changed`` files would be read, the latter for the reason given; a file that was
    only touched counts as changed. ``removed`` files are gone, and their documents would go.
    ``kept`` ones keep their documents, since they or a place above them cannot be read. ``remarks``
    name files for the reason given: their ``outcome`` says whether they are indexed all the same.
    ``unchanged`` counts the others. ``stopped`` says why the run would stop before it changed
    anything. ``settings`` has, by name, what the call says and what the dataset is made with, where
    they differ; the call's would cut ``recut_documents`` anew.
    """

    dataset: str
    root: str
    added: tuple[str, ...]
    changed: tuple[Failure, ...]
    removed: tuple[str, ...]
    kept: tuple[Failure, ...]
    remarks: tuple[Failure, ...]
    unchanged: int
    stopped: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    recut_documents: int = 0
    notes: tuple[str, ...] = ()


def preview_sync(
    database: Database,
    root: Path,
    dataset: str,
    pipeline: str,
    *,
    settings: IngestSettings,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    allow_deletions: bool = False,
    reread: bool = False,
) -> SyncPreview:
    """Tell what :func:`catalog.ingest.sync.sync` would do with a pipeline of that fingerprint.

    Raises :class:`SourceError` as that does.
    """
    limits = ReadLimits.of(settings)
    listing = discover(root, include=include, exclude=exclude, limits=limits)
    stored = StoredFiles.load(database, dataset)
    changes = FolderChanges(
        listing,
        stored,
        pipeline=pipeline,
        limits=limits,
        reread=reread,
        allow_deletions=allow_deletions,
    )
    stopped = None
    if not allow_deletions:
        try:
            changes.check_deletions(root, settings.max_missing_fraction)
        except MassDeletionError as error:
            stopped = str(error)
    known = stored.entries
    told = {path for path, entry in known.items() if entry.pipeline == changes.told_fingerprint}
    with database.read() as connection:
        told |= changes.originals.converted & read_originals(connection, dataset)
    reasons = {
        file.path: None
        if file.path in told or changes.is_unchanged(file)
        else changes.reason_to_read(file)
        for file in listing.files
    }
    left = [known[path] for path, reason in reasons.items() if reason is None]
    kept = [Failure(path, place.reason) for path, place in changes.unseen.items()]
    kept += [Failure(entry.file, entry.reason or "") for entry in left if entry.state == "kept"]
    remarks = [Failure(file.path, file.reason) for file in listing.skipped]
    remarks += [
        Failure(entry.file, entry.reason)
        for entry in left
        if entry.reason is not None and entry.state != "kept"
    ]
    return SyncPreview(
        dataset=dataset,
        root=str(root),
        added=tuple(path for path, reason in reasons.items() if reason and path not in known),
        changed=tuple(
            Failure(path, reason)
            for path, reason in reasons.items()
            if reason is not None and path in known
        ),
        removed=tuple(changes.vanished),
        kept=tuple(kept),
        remarks=tuple(remarks),
        unchanged=sum(entry.reason is None for entry in left),
        stopped=stopped,
    )
