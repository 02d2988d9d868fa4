"""What differs between a folder and the store, by file and by document; nothing is written here."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from catalog.core.documents import ParsedDocument
from catalog.core.errors import MassDeletionError
from catalog.core.ids import sha1_hex
from catalog.ingest.discovery import LATEST_NS, Listing, SourceFile
from catalog.ingest.nodes import Source
from catalog.ingest.readers import ReadLimits
from catalog.store import Database, manifest
from catalog.store.manifest import ManifestEntry

RACY_SECONDS = 2.0  # a file changed this shortly before it was read may change unseen
BRAKE_FROM = 10  # fewer vanished files than this never stop a run, unless all are gone


@dataclass(frozen=True)
class StoredFiles:
    """What the store held of a dataset when the run began.

    ``entries`` by file; by path ``documents``, as :func:`manifest.known_documents` has them, and
    ``incomplete``, the ids of chunks that lack a vector.
    """

    dataset: str
    entries: Mapping[str, ManifestEntry]
    documents: Mapping[str, Mapping[str, str]]
    incomplete: Mapping[str, AbstractSet[str]]

    @classmethod
    def load(cls, database: Database, dataset: str) -> StoredFiles:
        """Read what is stored; everything is empty for a dataset that is not there."""
        with database.read() as connection:
            return cls(
                dataset,
                manifest.entries(connection, dataset),
                manifest.known_documents(connection, dataset),
                manifest.incomplete_documents(connection, dataset),
            )

    def paths_of(self, file: str) -> AbstractSet[str]:
        """Return the paths of a file's documents; empty for a file that has none."""
        return self._paths_by_file.get(file, frozenset())

    @cached_property
    def _paths_by_file(self) -> Mapping[str, AbstractSet[str]]:
        paths: dict[str, set[str]] = {}
        for path, document in self.documents.items():
            paths.setdefault(document["file"], set()).add(path)
        return paths


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
    """Compares a listing with what is stored; ``vanished`` are the files no longer there, sorted.

    ``pipeline`` names how documents are cut and embedded in this run. With ``reread`` nothing
    that is there counts as unchanged.
    """

    def __init__(
        self,
        listing: Listing,
        stored: StoredFiles,
        *,
        pipeline: str,
        limits: ReadLimits,
        reread: bool = False,
    ) -> None:
        self._stored, self._reread = stored, reread
        self._pipeline, self._limits = pipeline, limits
        self._listed = {file.path for file in listing.files}
        skipped = {file.path for file in listing.skipped}
        self.vanished = sorted(set(stored.entries) - self._listed - skipped)

    def fingerprint(self, reason: str | None) -> str:
        """Name how a file is read in this run; another name means: read it again.

        A file that failed for a ``reason`` is read again under other limits, too.
        """
        if reason is None:
            return self._pipeline
        return f"{self._pipeline}:{sha1_hex(repr(self._limits))[:8]}"

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
        """Tell from its size, its time and how it was read that a file need not be read."""
        entry = self._stored.entries.get(file.path)
        return (
            entry is not None
            and not self._reread
            and entry.state == "done"
            and entry.pipeline == self.fingerprint(entry.reason)
            and (entry.size, entry.mtime_ns) == (file.size, file.mtime_ns)
            and entry.seen_at - file.mtime_ns / 1e9 > RACY_SECONDS
        )

    def other_owner(self, path: str, file: str) -> str | None:
        """Return the other listed file that has a document of this path, if there is one."""
        document = self._stored.documents.get(path)
        owner = document["file"] if document is not None else file
        return owner if owner != file and owner in self._listed else None

    def change_of(self, parsed: ParsedDocument, file: SourceFile) -> Change | None:
        """Return what is to be done with a document of the file, ``None`` if nothing."""
        source = Source(self._stored.dataset, file.path, parsed, _modified(parsed, file))
        document = self._stored.documents.get(parsed.path)
        if document is None:
            return Change(source, is_new=True)
        is_same = (
            document["file"] == file.path
            and document["content_hash"] == source.content_hash
            and document["pipeline"] == self._pipeline
        )
        if is_same and parsed.path in self._stored.incomplete:
            return Change(source, is_new=False, lacking=self._stored.incomplete[parsed.path])
        return None if is_same and not self._reread else Change(source, is_new=False)


def _modified(parsed: ParsedDocument, file: SourceFile) -> str | None:
    if parsed.source_type == "record" or file.mtime_ns >= LATEST_NS:  # no date to believe
        return None
    moment = datetime.fromtimestamp(file.mtime_ns // 1_000_000_000, tz=UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
