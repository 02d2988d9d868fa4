"""Compare a folder with the store, and preview a run; nothing is written here."""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from catalog.core.dates import parse_date
from catalog.core.documents import ParsedDocument
from catalog.core.errors import MassDeletionError, ReadError
from catalog.core.globs import folders_above
from catalog.core.ids import check_dataset_name, sha1_hex
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
from catalog.store.manifest import ManifestEntry
from catalog.store.recordings import read_originals

RACY_SECONDS = 2.0  # a file changed this shortly before it was read may change unseen
BRAKE_FROM = 10  # fewer vanished files than this never stop a run, unless all are gone
_SIDECARS = re.compile(r"\+[0-9a-f]{16}")  # in a fingerprint
_UNMOUNTED = "the drive is not mounted; if it is gone permanently, run again with --allow-deletions"
_IN_NAME = re.compile(  # 2024-05-31, 2024_05_31, 20240531, 2024-05; no part of a longer number
    r"(?<![0-9A-Za-z])(?P<year>(?:19|20)[0-9]{2})"
    r"(?:(?P<sign>[-_]?)(?P<month>[0-9]{2})(?P=sign)(?P<day>[0-9]{2})(?=T[0-9]|(?![0-9A-Za-z]))"
    r"|-(?P<only_month>[0-9]{2})(?![0-9A-Za-z]|[-_][0-9]))"
)


@dataclass(frozen=True)
class StoredFiles:
    """The files of a dataset by name, its documents by path, and its folder, before the run."""

    dataset: str
    entries: Mapping[str, ManifestEntry]
    documents: Mapping[str, Mapping[str, str]]
    root: str = ""

    @classmethod
    def load(cls, database: Database, dataset: str, root: str, folder: str = "") -> StoredFiles:
        """Read the stored files and documents; all are empty if the dataset does not exist."""
        with database.read() as connection:
            entries = manifest.entries(connection, dataset)
            documents = manifest.known_documents(connection, dataset, folder)
            return cls(dataset, entries, documents, root)

    def paths_of(self, file: str) -> AbstractSet[str]:
        """Return the paths of a file's documents; a picture, for example, has none."""
        return self._paths_by_file.get(file, frozenset())

    @cached_property
    def _paths_by_file(self) -> Mapping[str, AbstractSet[str]]:
        paths = defaultdict[str, set[str]](set)
        for path, document in self.documents.items():
            paths[document["file"]].add(path)
        return paths


class FolderChanges:
    """The comparison of a listing with the store; ``vanished`` are the missing files, sorted.

    ``unseen`` are files that may still exist, with the place where the run could not look.
    ``pipeline`` identifies how this run cuts and embeds. With ``allow_deletions`` files on a drive
    that is not mounted count as vanished. ``owners`` has the file of each document path: the first,
    but a file that could not be read keeps its paths. ``deprived`` files lost one in this run.
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
        self.listing, self.stored, self.limits = listing, stored, limits
        self.top, self.reread, self._clock = listing.top, reread, clock
        self._pipeline, self._allows_deletions = pipeline, allow_deletions
        self._compared: dict[str, ManifestEntry] = {}  # of files whose bytes are the same
        folder = self.top if self.top.is_dir() else self.top.parent
        self.sidecars = Sidecars(listing.beside, folder, listing.links)
        self.files = {file.path: file for file in listing.files}
        self._listed = self.files.keys()
        # A former document that has become a sidecar is neither a document nor unseen.
        missing = sorted(stored.entries.keys() - self._listed)
        documents = [file for file in missing if file not in listing.beside]
        self.unseen: dict[str, SkippedFile] = {}
        places = {skipped.place: skipped for skipped in listing.skipped}
        is_same_root = not allow_deletions and stored.root == str(self.top)
        for file in documents:
            names, mount = nfc(file).split("/"), stored.entries[file].mount
            above = ("/".join(names[:depth]) for depth in range(len(names) + 1))
            if place := next(filter(None, map(places.get, above)), None):
                self.unseen[file] = place
            elif is_same_root and mount is not None and mount not in listing.mounts:
                is_listed = listing.left_out.isdisjoint(folders_above(file))
                self.unseen |= {file: SkippedFile(mount, _UNMOUNTED, mount)} if is_listed else {}
        self.vanished = [file for file in missing if file not in self.unseen]
        present = {*self._listed, *self.unseen}
        skipped = {file.path for file in listing.skipped}  # too large to read, most of them
        self.originals = Originals(present | skipped)
        self.owners = {path: file for file in present for path in stored.paths_of(file)}
        self.deprived: set[str] = set()

    @classmethod
    def of_folder(
        cls,
        database: Database,
        root: Path,
        dataset: str,
        *,
        former: str,
        settings: IngestSettings,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        **options: Any,
    ) -> FolderChanges:
        """List a folder or file as :func:`discover` does; ``options`` are the constructor's.

        ``former`` is the folder from which the dataset was built before, "" if there is none.
        """
        check_dataset_name(dataset)
        limits = ReadLimits.of(settings)
        listing = discover(root, include=include, exclude=exclude, limits=limits)
        stored = StoredFiles.load(database, dataset, former, str(listing.top))
        return cls(listing, stored, limits=limits, **options)

    def claim(self, path: str, file: str) -> str:
        """Return the file that owns the path now: this one, or another."""
        owner = self.owners.setdefault(path, file)
        if owner in self._listed and file < owner:
            self.deprived.add(owner)
            self.owners[path] = owner = file
        return owner

    def release(self, file: str, paths: Iterable[str]) -> None:
        """Record that the file no longer has documents with these paths."""
        for path in paths:
            if self.owners.get(path) == file:
                del self.owners[path]

    def in_order(self) -> list[SourceFile]:
        """Return the listed files in reading order; files that have a conversion come last."""
        return sorted(self.listing.files, key=lambda file: file.path in self.originals.converted)

    @property
    def told_fingerprint(self) -> str:
        """The fingerprint of a file that is not read because its conversion is indexed instead."""
        return f"{self._pipeline}:told"

    def fingerprint(self, file: str, reason: str | None) -> str:
        """Return the fingerprint of how a file is read in this run; if it changes, read it again.

        It covers sidecars and originals; of a file that failed for a ``reason``, limits, too.
        """
        sidecars = self.sidecars.fingerprint(file)[:16]
        parts = [f"{self._pipeline}+{sidecars}" if sidecars else self._pipeline]
        if beside := self.originals.beside(file):
            found = filter(None, map(self.files.get, self.originals.converted_from(file)))
            # it may state another level
            stamps = [(one.size, one.mtime_ns, one.ctime_ns) for one in found]
            parts.append(sha1_hex("/".join([*beside, *map(str, stamps)]))[:8])
        if reason is not None:
            parts.append(sha1_hex(repr(self.limits))[:8])
        return ":".join(parts)

    def check_deletions(self, max_missing_fraction: float) -> None:
        """Raise ``MassDeletionError`` if all files vanished, many and most, or a former folder."""
        stored, dataset = self.stored, self.stored.dataset
        documents = (file for file in self.vanished if file not in self.listing.beside)
        vanished = list(filter(stored.paths_of, documents))
        if not (gone := len(vanished)) or self._allows_deletions:
            return
        indexed = sum(map(bool, map(stored.paths_of, stored.entries)))
        if stored.root and stored.root != str(self.top):
            raise MassDeletionError(
                f"{dataset!r} was built from {stored.root}; building it from {self.top} would "
                f"remove {gone} of {indexed} indexed files: choose another --dataset, or replace "
                "it with --allow-deletions"
            )
        is_most = gone >= BRAKE_FROM and gone / indexed > max_missing_fraction
        is_all = gone == indexed and self._listed <= stored.entries.keys()
        if is_most or is_all:
            rules, missing = self.listing.patterns.items(), f"gone from {self.top}"
            for one, rule in rules:  # a file is left out if this differs from what is wanted
                if any(rule.match(file) != one.startswith("include") for file in vanished):
                    missing = f"left out by {one}, or {missing}"
            raise MassDeletionError(
                f"{gone} of {indexed} indexed files are {missing}; if this is correct, run again "
                "with --allow-deletions"
            )

    def reason_to_read(self, file: SourceFile) -> str | None:
        """Return why a file must be read; ``None`` if its stored documents are up to date.

        Its size, times and inode decide; in doubt, a hash of its bytes.
        """
        if (entry := self.stored.entries.get(file.path)) is None:
            return "it is new"
        if (entry.size, entry.mtime_ns) != (file.size, file.mtime_ns):
            return "its size or date changed"
        if self.reread:
            return "every document is read again"
        if entry.pipeline != (now := self.fingerprint(file.path, entry.reason)):
            if _SIDECARS.sub("", entry.pipeline) == _SIDECARS.sub("", now):
                return "its metadata files changed"
            return "the settings or readers for it changed"
        if entry.state not in ("done", "kept"):
            return f"it was not wholly indexed: {entry.reason or 'the last run did not end'}"
        if len(self.stored.paths_of(file.path)) != entry.documents:
            return "the store lacks documents of it"
        begun_at, digest = self._clock(), None
        is_same_file = (entry.ctime_ns, entry.inode) == (file.ctime_ns, file.inode)
        if is_same_file and entry.seen_at - max(file.mtime_ns, file.ctime_ns) / 1e9 > RACY_SECONDS:
            return None
        with suppress(ReadError):
            digest = digest_file(file.absolute, root=self.top)
        if digest is None or entry.digest != digest:
            return "it may have changed since it was read"
        entry = replace(entry, ctime_ns=file.ctime_ns, inode=file.inode, seen_at=begun_at)
        self._compared[file.path] = entry
        return None

    def entry_of(self, file: SourceFile) -> ManifestEntry:
        """Return the manifest entry for an unchanged file."""
        entry = self._compared.get(file.path) or self.stored.entries[file.path]
        return entry if entry.mount == file.mount else replace(entry, mount=file.mount)

    def notes(self) -> tuple[str, ...]:
        """Describe an empty folder, patterns without a match, and sources that cannot be seen."""
        said = [f"{pattern} matched nothing" for pattern in self.listing.unmatched]
        if not self._listed:
            said.append(f"{self.top} has no file to index; hidden and ignored files do not count")
        kept = Counter[SkippedFile]()
        for file, place in self.unseen.items():
            kept[place] += len(self.stored.paths_of(file))
        for place, count in (+kept).items():
            documents = f"{count} document{'s' * (count > 1)} below {place.path}"
            said.append(f"kept {documents}, which cannot be read ({place.reason})")
        return tuple(said)

    def change_of(self, parsed: ParsedDocument, file: SourceFile) -> Source | None:
        """Return a document of the file to publish, ``None`` if it has not changed."""
        source = Source(self.stored.dataset, file.path, parsed, date_of(parsed, file))
        pipeline, known = source.fingerprint(self._pipeline), self.stored.documents.get(parsed.path)
        now = {"file": file.path, "content_hash": source.content_hash, "pipeline": pipeline}
        is_same = known is not None and now.items() <= known.items()
        return None if is_same and not self.reread else source


def date_in_name(name: str) -> str | None:
    """Return the first ISO date in a file's name, a day or a month; ``None`` without one.

    Only the years 1900 to 2099 count. Examples: ``2024-05-31 minutes.md``, ``IMG_20240531.txt``.
    """
    for found in _IN_NAME.finditer(name):
        parts = (found["year"], found["month"] or found["only_month"], found["day"])
        if parse_date(iso := "-".join(filter(None, parts))) is not None:
            return iso
    return None


def date_of(parsed: ParsedDocument, file: SourceFile) -> str | None:
    """Return the date in the document's file name, else the file's (ISO 8601, UTC), if any."""
    if parsed.path != file.path and file_type(file.path) in STREAMED:  # a record
        return None
    if (named := date_in_name(parsed.path.rpartition("/")[2])) is not None:
        return named
    if file.mtime_ns >= LATEST_NS:  # no date to believe
        return None
    return datetime.fromtimestamp(file.mtime_ns // 10**9, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class SyncPreview:
    """The changes that a run would make, by file.

    ``added`` and ``changed`` files would be read. ``kept`` files, or folders above them, cannot be
    read, so they keep their documents. ``stopped`` says why the run would stop before any change.
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
    database: Database, changes: FolderChanges, max_missing_fraction: float
) -> SyncPreview:
    """Return what :func:`catalog.ingest.sync.sync` would do."""
    stopped, known = None, changes.stored.entries
    try:
        changes.check_deletions(max_missing_fraction)
    except MassDeletionError as error:
        stopped = str(error)
    told = {path for path, entry in known.items() if entry.pipeline == changes.told_fingerprint}
    with database.read() as connection:
        told |= changes.originals.converted & read_originals(connection, changes.stored.dataset)
    kept = [Failure(path, place.reason) for path, place in changes.unseen.items()]
    remarks = [Failure(file.path, file.reason) for file in changes.listing.skipped]
    added, changed, unchanged = list[str](), list[Failure](), 0
    for file in changes.listing.files:
        reason = None if file.path in told else changes.reason_to_read(file)
        if reason is not None:
            added += [file.path] * (file.path not in known)
            changed += [Failure(file.path, reason)] * (file.path in known)
            continue
        entry = known[file.path]
        unchanged += entry.reason is None
        if entry.state == "kept" or entry.reason is not None:
            named = kept if entry.state == "kept" else remarks
            outcome = "indexed" if entry.documents else "not indexed"
            named.append(Failure(file.path, entry.reason or "", outcome))
    files = tuple(added), tuple(changed), tuple(changes.vanished), tuple(kept), tuple(remarks)
    return SyncPreview(changes.stored.dataset, str(changes.top), *files, unchanged, stopped)
