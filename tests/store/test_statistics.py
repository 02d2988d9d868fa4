"""Counts of a dataset against a store small enough to count by hand."""

import pytest

from catalog.core.documents import ChunkSpan, ParsedDocument
from catalog.store import Database, manifest
from catalog.store.manifest import ManifestEntry, count_files
from catalog.store.publish import NewChunk, NewRevision, ensure_dataset, publish_all
from catalog.store.statistics import count_modalities, database_bytes

pytestmark = pytest.mark.both_stores


@pytest.fixture
def connection(tmp_path):
    database = Database.at(tmp_path)
    with database.write() as opened:
        ensure_dataset(opened, "notes", 0.0)
        yield opened
    database.close()


def add(connection, path, sizes, modality="text", file=None):
    text = "x" * len(sizes)
    document = ParsedDocument(path=path, text=text, title=path, file_type="md")
    cut = tuple(
        NewChunk(f"{path}-{at}", ChunkSpan(at, at + 1, modality=modality, tokens=size), ())
        for at, size in enumerate(sizes)
    )
    publish_all(connection, [NewRevision("notes", file or path, document, path, cut)], 0.0)


def note(connection, file, reason=None):
    entry = ManifestEntry(file, 1, 1, "", "done" if reason is None else "failed", reason, 0.0)
    manifest.record(connection, "notes", entry)


def test_modalities_are_counted_in_the_dataset_alone(connection):
    add(connection, "a.md", [5, 5])
    add(connection, "b.srt", [5], "video_transcript")
    assert count_modalities(connection, "notes") == {"text": 2, "video_transcript": 1}
    assert count_modalities(connection, "other") == {}


def test_files_are_indexed_or_have_a_reason_and_coverage_is_of_the_readable_ones(connection):
    add(connection, "a.md", [5])
    add(connection, "1", [5], file="records.jsonl")
    add(connection, "2", [5], file="records.jsonl")
    note(connection, "a.md")
    note(connection, "records.jsonl", "line 3: no record")  # partly read: indexed all the same
    note(connection, "b.png", "binary (png)")
    note(connection, "c.png", "binary (png)")
    counts = count_files(connection, "notes")
    assert (counts.listed, counts.indexed, counts.coverage) == (4, 2, 1.0)
    assert counts.reasons == {"binary (png)": 2}
    assert counts.partly == {"line 3: no record": 1}
    note(connection, "lost.md")
    counts = count_files(connection, "notes")
    assert (counts.listed, counts.coverage) == (5, 2 / 3)
    assert counts.reasons["no reason told"] == 1


def test_no_readable_file_has_no_coverage(connection):
    note(connection, "b.png", "binary (png)")
    assert count_files(connection, "notes").coverage is None


@pytest.mark.of_sqlite
def test_the_size_of_the_store_is_that_of_its_pages(connection, tmp_path):
    assert database_bytes(connection) % 512 == 0
    assert database_bytes(connection) >= 4096
