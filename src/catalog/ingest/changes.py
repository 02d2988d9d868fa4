"""Compare a folder with the store, and preview a run; nothing is written here."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from catalog.core.dates import date_in_name
from catalog.core.documents import ParsedDocument
from catalog.core.errors import MassDeletionError, ReadError
from catalog.core.globs import Glob, folders_above
from catalog.core.ids import sha1_hex
from catalog.core.settings import IngestSettings
from catalog.core.text import nfc
from catalog.ingest.discovery import LATEST_NS, STREAMED, Listing, SkippedFile, SourceFile, discover
from catalog.ingest.pipeline import Source
from catalog.ingest.readers import ReadLimits
from catalog.ingest.readers.base import file_type
from catalog.ingest.readers.opening import digest_file
from catalog.ingest.sidecars import Originals, Sidecars
from catalog.ingest.sync_report import Failure
from catalog.store import Database, manifest
from catalog.store.chunks import find_root
from catalog.store.manifest import ManifestEntry
from catalog.store.recordings import read_originals

_SPECIAL = re.compile(r"[\\ *?\[]")  # in a glob
_OTHER_SPACES = re.compile(r"[^\S ]")  # a glob may not end with these, escaped or not
_REPLACED = re.compile("\ufffd+")


def find_unmounted(entries: Iterable[ManifestEntry], listing: Listing) -> dict[str, SkippedFile]:
    """Return files on a drive that is no longer mounted at its place, with that place.

    Files that patterns or ignore rules now exclude are left out.
    """
    reason = "the drive is not mounted; if it is gone permanently, run again with --allow-deletions"
    return {
        entry.file: SkippedFile(entry.mount, reason, entry.mount)
        for entry in entries
        if entry.mount is not None
        and entry.mount not in listing.mounts
        and listing.left_out.isdisjoint(folders_above(entry.file))
    }


def find_unseen(files: Iterable[str], skipped: Iterable[SkippedFile]) -> dict[str, SkippedFile]:
    """Return the files at or below a skipped place, with that place.

    A name that is not valid UTF-8 matches any name that has the same valid letters at the same
    positions, because a drive mounted with another encoding shows all its names so.
    """
    places = {file.place: file for file in skipped}
    odd_names: dict[str, list[tuple[Glob, SkippedFile]]] = {}
    for file in places.values():
        folder, _, name = file.place.rpartition("/")
        if "\ufffd" in name:
            escaped = _OTHER_SPACES.sub("?", _SPECIAL.sub(r"\\\g<0>", name))
            glob = Glob.compile("/" + _REPLACED.sub("*", escaped))
            odd_names.setdefault(folder, []).append((glob, file))
    unseen = {}
    for path in files:
        place = _place_of(nfc(path), places, odd_names)
        if place is not None:
            unseen[path] = place
    return unseen


def _place_of(
    path: str,
    places: Mapping[str, SkippedFile],
    odd_names: Mapping[str, Sequence[tuple[Glob, SkippedFile]]],
) -> SkippedFile | None:
    """Return the place at or above a path, the topmost first."""
    names = path.split("/")
    for depth in range(len(names) + 1):
        place = "/".join(names[:depth])
        if place in places:
            return places[place]
        for glob, file in odd_names.get(place, ()):
            if depth < len(names) and glob.matches(names[depth]):
                return file
    return None


RACY_SECONDS = 2.0  # a file changed this shortly before it was read may change unseen
_RACY = "it may have changed since it was read"
_REPLACED_FILE = "another file may have replaced it"
_SIDECARS = re.compile(r"\+[0-9a-f]{16}")  # in a fingerprint
_ELSEWHERE = "elsewhere"  # in a fingerprint: made of a file in another folder
BRAKE_FROM = 10  # fewer vanished files than this never stop a run, unless all are gone


@dataclass(frozen=True)
class StoredFiles:
    """The files and documents of a dataset in the store when the run began.

    ``entries`` are by file; ``documents`` by path, like :func:`manifest.known_documents`. ``root``
    is the folder of that run.
    """

    dataset: str
    entries: Mapping[str, ManifestEntry]
    documents: Mapping[str, Mapping[str, str]]
    root: str = ""

    @classmethod
    def load(cls, database: Database, dataset: str) -> StoredFiles:
        """Read the stored files and documents; all are empty if the dataset does not exist."""
        with database.read() as connection:
            return cls(
                dataset,
                manifest.entries(connection, dataset),
                manifest.known_documents(connection, dataset),
                find_root(connection, dataset),
            )

    def paths_of(self, file: str) -> AbstractSet[str]:
        """Return the paths of a file's documents; may be empty."""
        return self._paths_by_file.get(file, frozenset())

    def has_documents(self, file: str) -> bool:
        """Return whether a file has any documents; a picture, for example, has none."""
        return file in self._paths_by_file

    @cached_property
    def _paths_by_file(self) -> Mapping[str, AbstractSet[str]]:
        paths: dict[str, set[str]] = {}
        for path, document in self.documents.items():
            paths.setdefault(document["file"], set()).add(path)
        return paths


@dataclass(frozen=True, slots=True)
class Change:
    """A document to publish."""

    source: Source
    is_new: bool


class FolderChanges:
    """The comparison of a listing with the store; ``vanished`` are the missing files, sorted.

    ``unseen`` are files that may still exist, by name, with the reason why the run could not look.
    ``pipeline`` identifies how this run cuts and embeds documents. With ``reread`` no file counts
    as unchanged. With ``allow_deletions`` files on a drive that is not mounted count as vanished.
    """

    def __init__(
        self,
        listing: Listing,
        stored: StoredFiles,
        *,
        pipeline: str,
        limits: ReadLimits,
        reread: bool = False,
        allow_deletions: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._stored, self._reread, self._clock = stored, reread, clock
        self._compared: dict[str, ManifestEntry | None] = {}  # None: the content is another
        self._pipeline, self.limits = pipeline, limits
        self.skipped, self._unmatched = listing.skipped, listing.unmatched
        self.top = top = listing.top
        self.sidecars = Sidecars(listing.beside, top if top.is_dir() else top.parent)
        self._listed = {file.path for file in listing.files}
        missing = sorted(set(stored.entries) - self._listed)
        # A former document that has become a sidecar is neither a document nor unseen.
        self._beside = listing.beside.keys()
        self.unseen = find_unseen(
            [file for file in missing if file not in self._beside], listing.skipped
        )
        if not allow_deletions and stored.root == str(listing.top):
            known = {*self.unseen, *self._beside}
            unlisted = (stored.entries[file] for file in missing if file not in known)
            self.unseen |= find_unmounted(unlisted, listing)
        self.vanished = [file for file in missing if file not in self.unseen]
        skipped = (file.path for file in listing.skipped)  # too large to read, most of them
        self.originals = Originals({*self._listed, *self.unseen, *skipped})
        self.owners = PathOwners(stored, listed=self._listed, unseen=self.unseen)

    def in_order(self, files: Iterable[SourceFile]) -> list[SourceFile]:
        """Return the files in reading order; files that have a conversion come last."""
        return sorted(files, key=lambda file: file.path in self.originals.converted)

    @property
    def told_fingerprint(self) -> str:
        """The fingerprint of a file that is not read because its conversion is indexed instead."""
        return f"{self._pipeline}:told"

    def fingerprint(self, file: str, reason: str | None, *, made_elsewhere: bool = False) -> str:
        """Return the fingerprint of how a file is read in this run; if it changes, read it again.

        It covers the file's sidecars and nearby files from which it may be made. A file that failed
        for a ``reason`` is also read again under other limits, and one that is ``made_elsewhere``
        whenever any sidecar changes.
        """
        sidecars = self.sidecars.fingerprint(file, anywhere=made_elsewhere)[:16]
        parts = [f"{self._pipeline}+{sidecars}" if sidecars else self._pipeline]
        if beside := self.originals.beside(file):
            parts.append(sha1_hex("/".join(beside))[:8])
        if made_elsewhere:
            parts.append(_ELSEWHERE)
        if reason is not None:
            parts.append(sha1_hex(repr(self.limits))[:8])
        return ":".join(parts)

    def check_deletions(self, root: Path, max_missing_fraction: float) -> None:
        """Raise :class:`MassDeletionError` if all files vanished, or many and most of them.

        If the dataset was built from another folder, one vanished file is enough.
        """
        if not self.vanished:
            return
        vanished = (file for file in self.vanished if file not in self._beside)
        gone = sum(map(self._stored.has_documents, vanished))
        indexed = sum(map(self._stored.has_documents, self._stored.entries))
        before, dataset = self._stored.root, self._stored.dataset
        if gone and before and before != str(self.top):
            raise MassDeletionError(
                f"{dataset!r} was built from {before}; building it from {self.top} would remove "
                f"{gone} of {indexed} indexed files: choose another --dataset, or replace it with "
                "--allow-deletions"
            )
        is_most = gone >= BRAKE_FROM and gone / indexed > max_missing_fraction
        is_all = gone == indexed > 0 and self._listed <= self._stored.entries.keys()
        if is_most or is_all:
            raise MassDeletionError(
                f"{gone} of {indexed} indexed files are gone from {root}; if this is correct, "
                "run again with --allow-deletions"
            )

    def is_unchanged(self, file: SourceFile) -> bool:
        """Return whether the stored documents of the file are up to date.

        Its size, times and inode decide; in doubt, a hash of its bytes.
        """
        reason = self.reason_to_read(file)
        if reason not in (_RACY, _REPLACED_FILE):
            return reason is None
        if file.path not in self._compared:
            self._compared[file.path] = self._compare(file)
        return self._compared[file.path] is not None

    def entry_of(self, file: SourceFile) -> ManifestEntry:
        """Return the manifest entry for an unchanged file."""
        entry = self._compared.get(file.path) or self._stored.entries[file.path]
        return replace(entry, mount=file.mount)

    def _compare(self, file: SourceFile) -> ManifestEntry | None:
        """Return the manifest entry for a file whose bytes have not changed, else ``None``."""
        entry, begun_at = self._stored.entries[file.path], self._clock()
        try:
            is_same = entry.digest == digest_file(file.absolute, root=self.top)
        except ReadError:
            return None
        noted = replace(entry, ctime_ns=file.ctime_ns, inode=file.inode, seen_at=begun_at)
        return noted if is_same else None

    def reason_to_read(self, file: SourceFile) -> str | None:
        """Return why a file must be read; ``None`` if size, times and manifest give no reason."""
        entry = self._stored.entries.get(file.path)
        if entry is None:
            return "it is new"
        if (entry.size, entry.mtime_ns) != (file.size, file.mtime_ns):
            return "its size or date changed"
        if self._reread:
            return "every document is read again"
        is_elsewhere = _ELSEWHERE in entry.pipeline.split(":")
        now = self.fingerprint(file.path, entry.reason, made_elsewhere=is_elsewhere)
        if entry.pipeline != now:
            if _SIDECARS.sub("", entry.pipeline) == _SIDECARS.sub("", now):
                return "its metadata files changed"
            return "the settings or readers for it changed"
        if entry.state not in ("done", "kept"):
            return f"it was not wholly indexed: {entry.reason or 'the last run did not end'}"
        if file.path in self.owners.deprived:
            return "another file took one of its paths"
        if len(self._stored.paths_of(file.path)) != entry.documents:
            return "the store lacks documents of it"
        if (entry.ctime_ns, entry.inode) != (file.ctime_ns, file.inode):
            return _REPLACED_FILE
        if entry.seen_at - max(file.mtime_ns, file.ctime_ns) / 1e9 <= RACY_SECONDS:
            return _RACY
        return None

    def notes(self) -> tuple[str, ...]:
        """Describe an empty folder, patterns without a match, and sources that cannot be seen."""
        kept: Counter[SkippedFile] = Counter()
        for file, place in self.unseen.items():
            kept[place] += len(self._stored.paths_of(file))
        said = tuple(f"{pattern} matched nothing" for pattern in self._unmatched)
        if not self._listed:
            said += (f"{self.top} has no file to index; hidden and ignored files do not count",)
        return said + tuple(
            (
                f"kept {count} document{'s' * (count > 1)} below {place.path}, which cannot be "
                f"read ({place.reason})"
            )
            for place, count in kept.items()
            if count
        )

    @property
    def kept(self) -> int:
        """Count the documents of ``unseen`` files."""
        return sum(len(self._stored.paths_of(file)) for file in self.unseen)

    def change_of(self, parsed: ParsedDocument, file: SourceFile) -> Change | None:
        """Return the change for a document of the file, ``None`` if it has not changed."""
        source = Source(self._stored.dataset, file.path, parsed, date_of(parsed, file))
        document = self._stored.documents.get(parsed.path)
        if document is None:
            return Change(source, is_new=True)
        is_same = (
            document["file"] == file.path
            and document["content_hash"] == source.content_hash
            and document["pipeline"] == source.fingerprint(self._pipeline)
        )
        return None if is_same and not self._reread else Change(source, is_new=False)


class PathOwners:
    """Assign each document path to one file, as a run goes through the files in order.

    If several files have a document with the same path, the first file gets it; but a file that
    could not be read keeps its paths. ``deprived`` are the files that lost a path to an earlier one
    in this run.
    """

    def __init__(
        self, stored: StoredFiles, *, listed: AbstractSet[str], unseen: Iterable[str]
    ) -> None:
        present = {*listed, *unseen}
        self._listed = listed
        self._owners = {
            path: document["file"]
            for path, document in stored.documents.items()
            if document["file"] in present
        }
        self.deprived: set[str] = set()

    def claim(self, path: str, file: str) -> str:
        """Return the file that owns the path now: this one, or another."""
        owner = self._owners.setdefault(path, file)
        if owner in self._listed and file < owner:
            self.deprived.add(owner)
            self._owners[path] = file
        return self._owners[path]

    def release(self, file: str, paths: Iterable[str]) -> None:
        """Record that the file no longer has documents with these paths."""
        for path in paths:
            if self._owners.get(path) == file:
                del self._owners[path]

    def without_owner(self, paths: Iterable[str]) -> list[str]:
        """Return the paths that belong to no file, sorted."""
        return sorted(path for path in paths if path not in self._owners)


def date_of(parsed: ParsedDocument, file: SourceFile) -> str | None:
    """Return the date in the document's file name, else when the file was modified.

    In ISO 8601 (UTC); ``None`` if neither dates the document.
    """
    if parsed.path != file.path and file_type(file.path) in STREAMED:  # a record
        return None
    if (named := date_in_name(parsed.path.rpartition("/")[2])) is not None:
        return named
    if file.mtime_ns >= LATEST_NS:  # no date to believe
        return None
    moment = datetime.fromtimestamp(file.mtime_ns // 1_000_000_000, tz=UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class SyncPreview:
    """The changes that a run would make, by file.

    ``added`` and ``changed`` files would be read, the latter for the given reason; a file with just
    a new time counts as changed. ``removed`` files are gone, and their documents would be removed.
    ``kept`` files keep their documents, because they or a folder above them cannot be read.
    ``remarks`` are about files; their ``outcome`` says whether they are indexed all the same.
    ``unchanged`` counts the rest. ``stopped`` says why the run would stop before any change.
    ``settings`` has, by name, the values of the call and of the dataset if they differ; with the
    call's, ``recut_documents`` would be cut differently.
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
    """Return what :func:`catalog.ingest.sync.sync` would do with this pipeline.

    Raises :class:`SourceError` like ``sync``.
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
