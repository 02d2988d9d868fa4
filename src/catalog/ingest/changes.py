"""What changed since the last run, by file and by document, and the brake on mass deletion."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from catalog.core.documents import ParsedDocument
from catalog.core.errors import MassDeletionError
from catalog.core.ids import sha1_hex
from catalog.ingest.discovery import LATEST_NS, Listing, SourceFile
from catalog.ingest.nodes import Source
from catalog.ingest.readers import ReadLimits
from catalog.ingest.sync_report import Failure
from catalog.store import Database, manifest
from catalog.store.manifest import ManifestEntry, State

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


RACY_SECONDS = 2.0  # a file changed this shortly before it was read may change unseen
BRAKE_FROM = 10  # fewer vanished files than this never stop a run, unless all are gone


@dataclass(frozen=True, slots=True)
class StoredFiles:
    """What the store held of a dataset when the run began.

    ``entries`` by file; by path ``documents``, as :func:`manifest.known_documents` has them, and
    ``incomplete``, the ids of chunks that lack a vector; ``paths`` those of a file's documents.
    """

    dataset: str
    entries: Mapping[str, ManifestEntry]
    documents: Mapping[str, Mapping[str, str]]
    incomplete: Mapping[str, AbstractSet[str]]
    paths: Mapping[str, AbstractSet[str]]

    @classmethod
    def load(cls, database: Database, dataset: str) -> StoredFiles:
        """Read it; everything is empty for a dataset that is not there."""
        with database.read() as connection:
            entries = manifest.entries(connection, dataset)
            documents = manifest.known_documents(connection, dataset)
            incomplete = manifest.incomplete_documents(connection, dataset)
        paths: dict[str, set[str]] = {}
        for path, document in documents.items():
            paths.setdefault(document["file"], set()).add(path)
        return cls(dataset, entries, documents, incomplete, paths)

    def paths_of(self, file: str) -> AbstractSet[str]:
        """The paths of a file's documents; empty for a file that has none."""
        return self.paths.get(file, frozenset())


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """Name how files are read, cut and embedded in this run; others mean: do it again."""

    pipeline: str
    limits: ReadLimits

    def of_file(self, reason: str | None) -> str:
        """How a file was read; one that could not be is read again under other limits."""
        if reason is None:
            return self.pipeline
        return f"{self.pipeline}:{sha1_hex(repr(self.limits))[:8]}"


@dataclass(frozen=True, slots=True)
class Change:
    """A document to publish.

    ``lacking`` are the ids of the chunks for whose vectors alone it is done again; empty if it
    is new or changed.
    """

    source: Source
    is_new: bool
    lacking: AbstractSet[str] = frozenset()


class FolderChanges:
    """A listing beside what is stored; ``vanished`` are the files no longer there, sorted.

    With ``reread`` nothing that is there counts as unchanged.
    """

    def __init__(
        self, listing: Listing, stored: StoredFiles, fingerprints: Fingerprints, *, reread: bool
    ) -> None:
        self._stored, self._fingerprints, self._reread = stored, fingerprints, reread
        self._listed = {file.path for file in listing.files}
        skipped = {one.path for one in listing.skipped}
        self.vanished = sorted(set(stored.entries) - self._listed - skipped)

    def check_deletions(self, root: Path, max_missing_fraction: float) -> None:
        """Raise :class:`MassDeletionError` if all files vanished, or many and most of them."""
        if not self.vanished:
            return
        gone, indexed = len(self.vanished), len(self._stored.entries)
        is_most = gone >= BRAKE_FROM and gone / indexed > max_missing_fraction
        if is_most or not self._listed:
            raise MassDeletionError(
                f"{gone} of {indexed} indexed files are gone from {root}; "
                "if that is meant, run again with --allow-deletions"
            )

    def is_unchanged(self, file: SourceFile) -> bool:
        """Whether the file need not be read, by its size, its time and how it was read."""
        seen = self._stored.entries.get(file.path)
        return (
            seen is not None
            and not self._reread
            and seen.state == "done"
            and seen.pipeline == self._fingerprints.of_file(seen.reason)
            and (seen.size, seen.mtime_ns) == (file.size, file.mtime_ns)
            and seen.seen_at - file.mtime_ns / 1e9 > RACY_SECONDS
        )

    def taken_by(self, path: str, file: str) -> str | None:
        """The other listed file that has a document of this path, if there is one."""
        known = self._stored.documents.get(path)
        owner = known["file"] if known is not None else file
        return owner if owner != file and owner in self._listed else None

    def change(self, parsed: ParsedDocument, file: SourceFile) -> Change | None:
        """What is to be done with a document of the file, ``None`` if nothing."""
        source = _source(self._stored.dataset, parsed, file)
        known = self._stored.documents.get(parsed.path)
        if known is None:
            return Change(source, is_new=True)
        is_same = (
            known["file"] == file.path
            and known["content_hash"] == source.content_hash
            and known["pipeline"] == self._fingerprints.pipeline
        )
        if is_same and parsed.path in self._stored.incomplete:
            return Change(source, is_new=False, lacking=self._stored.incomplete[parsed.path])
        return None if is_same and not self._reread else Change(source, is_new=False)


def _source(dataset: str, parsed: ParsedDocument, file: SourceFile) -> Source:
    if parsed.source_type == "record" or file.mtime_ns >= LATEST_NS:  # no date to believe
        return Source(dataset, file.path, parsed)
    moment = datetime.fromtimestamp(file.mtime_ns // 1_000_000_000, tz=UTC)
    return Source(dataset, file.path, parsed, moment.strftime("%Y-%m-%dT%H:%M:%SZ"))
