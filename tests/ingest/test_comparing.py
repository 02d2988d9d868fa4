"""What a run takes for new, changed, unchanged, vanished, and too much gone."""

from dataclasses import replace
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


def test_a_file_that_was_skipped_has_not_vanished():
    before = stored(entry(listed("b.md")), entry(listed("a.md")), entry(listed("c.md")))
    assert compare(before, skipped=["a.md"]).vanished == ["b.md", "c.md"]


def test_a_file_is_unchanged_by_its_size_its_time_and_how_it_was_read():
    file = listed("a.md")
    assert compare(stored(entry(file)), file).reason_to_read(file) is None
    assert compare(stored(entry(file)), file, reread=True).reason_to_read(file)
    assert compare(stored(entry(file, state="partial")), file).reason_to_read(file)
    for other in ("cut-0", "cut-2"):
        assert compare(stored(entry(file, pipeline=other)), file).reason_to_read(file)
    assert compare(stored(entry(file)), file).reason_to_read(listed("a.md", size=6))
    assert compare(stored(entry(file)), file).reason_to_read(listed("a.md", age=4.0))
    assert compare(stored(), file).reason_to_read(file)


@pytest.mark.parametrize("age", [2.0, 1.0, 0.0, -60.0])
def test_a_file_read_within_two_seconds_of_its_change_may_have_changed_since(age):
    file = listed("a.md", age=age)
    assert compare(stored(entry(file)), file).reason_to_read(file)


def test_other_limits_are_another_reading_only_of_a_file_that_failed():
    file, other = listed("a.md"), ReadLimits(pages=1)
    reason = "too many pages"
    fingerprint = compare(stored()).fingerprint("a.md", reason)
    failed = stored(entry(file, reason=reason, pipeline=fingerprint))
    assert compare(failed, file).reason_to_read(file) is None
    assert compare(failed, file, limits=other).reason_to_read(file)
    assert compare(stored(entry(file)), file, limits=other).reason_to_read(file) is None


def test_a_document_is_published_if_it_is_new_or_changed_or_to_be_read_again():
    file, document = listed("a.md"), parsed("a.md")
    before = stored(documents=[(document, "a.md")])
    assert compare(stored(), file).change_of(document, file) is not None
    assert compare(before, file).change_of(document, file) is None
    assert compare(before, file).change_of(parsed("a.md", "An otter."), file) is not None
    assert compare(before, file, reread=True).change_of(document, file) is not None
    assert compare(before, file, pipeline="cut-2").change_of(document, file) is not None


def test_the_first_listed_file_with_a_path_has_it():
    one, two, three = listed("one.jsonl"), listed("two.jsonl"), listed("zoo.jsonl")
    before = stored(documents=[(parsed("7"), "two.jsonl")])
    changes = compare(before, one, two, three)
    assert changes.claim("7", "two.jsonl") == "two.jsonl"
    assert changes.claim("7", "zoo.jsonl") == "two.jsonl"
    assert changes.deprived == set()
    assert changes.claim("7", "one.jsonl") == "one.jsonl"
    assert changes.deprived == {"two.jsonl"}
    assert changes.claim("8", "zoo.jsonl") == "zoo.jsonl"


def test_a_path_is_free_when_its_file_gives_it_up_or_is_gone():
    one, two = listed("one.jsonl"), listed("two.jsonl")
    before = stored(documents=[(parsed("7"), "one.jsonl")])
    assert compare(before, two).claim("7", "two.jsonl") == "two.jsonl"
    assert compare(before, two).change_of(parsed("7"), two) is not None
    changes = compare(before, one, two)
    changes.release("two.jsonl", ["7"])
    assert changes.owners == {"7": "one.jsonl"}
    changes.release("one.jsonl", ["7"])
    assert changes.claim("7", "two.jsonl") == "two.jsonl"


def test_a_document_bears_the_time_of_its_file_but_a_record_does_not():
    file = SourceFile("a.md", ROOT / "a.md", 5, 86_400_999_999_999)  # a day, and almost a second
    record = ParsedDocument(
        path="7", text="A walrus.", title="7", file_type="jsonl", source_type="record"
    )
    comparison = compare(stored(), file)
    assert comparison.change_of(parsed("a.md"), file).modified == "1970-01-02T00:00:00Z"
    records = replace(file, path="a.jsonl")
    assert comparison.change_of(record, records).modified is None
