"""What a run takes for new, changed, unchanged, vanished, and too much gone."""

from pathlib import Path

import pytest

from catalog.core.documents import ParsedDocument
from catalog.core.errors import MassDeletionError
from catalog.ingest.changes import FolderChanges, StoredFiles
from catalog.ingest.discovery import Listing, SkippedFile, SourceFile
from catalog.ingest.readers import ReadLimits
from catalog.store.manifest import ManifestEntry
from catalog.store.publish import content_hash

ROOT = Path("/notes")
READ_AT = 1_700_000_000.0  # seconds
LIMITS = ReadLimits()


def listed(path, *, size=5, age=3.0):
    return SourceFile(path, ROOT / path, size, int((READ_AT - age) * 1e9))


def entry(file, *, state="done", reason=None, pipeline="cut-1"):
    return ManifestEntry(
        file.path,
        file.size,
        file.mtime_ns,
        pipeline,
        state,
        reason,
        READ_AT,
        ctime_ns=file.ctime_ns,
        inode=file.inode,
    )


def parsed(path, text="A walrus."):
    return ParsedDocument(path=path, text=text, title=path, file_type="md", source_type="file")


def stored(*entries, documents=()):
    """``documents`` are pairs of a parsed document and the file it is of."""
    known = {
        document.path: {"content_hash": content_hash(document), "pipeline": "cut-1", "file": file}
        for document, file in documents
    }
    return StoredFiles("notes", {entry.file: entry for entry in entries}, known)


def compare(before, *files, skipped=(), reread=False, pipeline="cut-1", limits=LIMITS):
    listing = Listing(ROOT, files, tuple(SkippedFile(path, "too large", path) for path in skipped))
    return FolderChanges(listing, before, pipeline=pipeline, limits=limits, reread=reread)


def vanishing(gone, left):
    files = [listed(f"{number:03}.md") for number in range(gone + left)]
    documents = [(parsed(file.path), file.path) for file in files]
    return compare(stored(*map(entry, files), documents=documents), *files[gone:])


def test_ten_of_nineteen_files_gone_stop_a_run_and_nine_of_seventeen_do_not():
    with pytest.raises(MassDeletionError, match="/notes"):
        vanishing(10, 9).check_deletions(0.5)
    with pytest.raises(MassDeletionError, match="11 of 20"):
        vanishing(11, 9).check_deletions(0.5)
    vanishing(9, 8).check_deletions(0.5)


def test_just_the_share_that_may_be_missing_does_not_stop_a_run():
    vanishing(10, 10).check_deletions(0.5)
    with pytest.raises(MassDeletionError):
        vanishing(10, 10).check_deletions(0.4)


def test_the_last_file_gone_stops_a_run_and_a_first_run_over_no_files_does_not():
    with pytest.raises(MassDeletionError, match="1 of 1"):
        vanishing(1, 0).check_deletions(1.0)
    vanishing(0, 0).check_deletions(0.0)


@pytest.mark.parametrize("age", [2.0, 1.0, 0.0, -60.0])
def test_a_file_read_within_two_seconds_of_its_change_may_have_changed_since(age):
    file = listed("a.md", age=age)
    assert compare(stored(entry(file)), file).reason_to_read(file)
