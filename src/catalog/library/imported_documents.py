"""The documents of an import: published in groups, and their files noted in the manifest."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from catalog.core.portable_lines import FileLine
from catalog.store import Database, embedding_cache, manifest
from catalog.store.manifest import ManifestEntry
from catalog.store.portable_rows import find_files, find_stored
from catalog.store.revisions import NewRevision, publish_all

if TYPE_CHECKING:
    from sqlalchemy import Connection

_TOGETHER = 100  # passages in one transaction: more would hold up other writers for long
_FILES = 1_000  # noted in one transaction


class ImportedDocuments:
    """Publish documents of one dataset after another; the caller holds the dataset's lock.

    ``counts`` has the documents ``added``, ``replaced`` and ``unchanged``, and their ``chunks``.
    While documents are published, their files stay to be read by the next update. So the update
    mends the dataset if the import ends early.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._dataset = ""
        self.counts: Counter[str] = Counter()
        self._group: list[NewRevision] = []
        self._files: list[FileLine] = []
        self._begun: set[str] = set()  # files without an entry before this import
        self._deprived: set[str] = set()  # files that lost a document to another file

    def add(self, revision: NewRevision) -> None:
        """Take a document of the dataset; of two with one id the later one is kept."""
        self._dataset = revision.dataset
        if any(one.source_doc_id == revision.source_doc_id for one in self._group):
            self.publish()
        self._group.append(revision)
        if sum(len(one.chunks) for one in self._group) >= _TOGETHER:
            self.publish()

    def add_file(self, line: FileLine) -> None:
        """Take the line of a file of the dataset."""
        self._dataset = line.dataset
        self._files.append(line)
        if len(self._files) >= _FILES:
            self.note_files()

    def publish(self) -> None:
        """Store the documents of the group that are not stored yet."""
        group, self._group = self._group, []
        if not group:
            return
        now = time.time()
        with self._database.write() as connection:
            before = find_files(connection, group)
            same = find_stored(connection, group)
            new = [it for it in group if it.source_doc_id not in same]
            self._note_unread(connection, new, before)
            publish_all(connection, new, now)
            for one in (it for it in group if it.source_doc_id in same and it.vectors):
                embedding_cache.save(
                    connection,
                    one.vectors,
                    fingerprint=one.embedded_by,
                    side="document",
                    now=now,
                )
        for one in group:
            name = one.source_doc_id
            outcome = "unchanged" if name in same else "replaced" if name in before else "added"
            self.counts[outcome] += 1
            self.counts["chunks"] += len(one.chunks)

    def note_files(self) -> None:
        """Publish the group, and note in the manifest how the files were read."""
        self.publish()
        files, self._files = {line.file: line for line in self._files}, []
        if not files:
            return
        kept = [line.model_dump(exclude={"kind", "dataset"}) for line in files.values()]
        entries = [ManifestEntry(**one) for one in kept]
        with self._database.write() as connection:
            manifest.record(connection, self._dataset, *entries)
            manifest.note_unread(connection, self._dataset, files.keys() & self._deprived)
        self._begun -= files.keys()

    def leave_dataset(self) -> None:
        """Note the files of the dataset; drop the entries of files that have no line."""
        self.note_files()
        if self._begun:
            with self._database.write() as connection:
                manifest.forget(connection, self._dataset, self._begun)
        self._begun.clear()
        self._deprived.clear()

    def _note_unread(
        self, connection: Connection, new: Sequence[NewRevision], before: Mapping[str, str]
    ) -> None:
        """Have the next update read the files that these documents are of now, or were before.

        The line of a file notes it as read later. A file that lost a document to another file may
        still hold it, so it stays to be read.
        """
        lost = {file for it in new if (file := before.get(it.source_doc_id, it.file)) != it.file}
        files = lost | {it.file for it in new}
        self._begun |= manifest.note_unread(connection, self._dataset, files)
        self._deprived |= lost
