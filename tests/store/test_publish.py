"""Publishing and removing documents: what changes, what stays, and what a content's hash covers."""

from dataclasses import replace

import numpy as np
import pytest
from sqlalchemy import select

from builders import NOW, drop, make_database, put
from catalog.core import ids
from catalog.core.documents import ChunkSpan, Heading, ParsedDocument, Segment
from catalog.store import Database, embedding_cache
from catalog.store.chunks import load_chunks
from catalog.store.publish import (
    NewChunk,
    NewRevision,
    content_hash,
    ensure_dataset,
    publish_all,
    set_source,
)
from catalog.store.restriction import read_stamp
from catalog.store.schema import (
    chunk_windows,
    chunks,
    datasets,
    document_fields,
    documents,
    revisions,
)

pytestmark = pytest.mark.both_stores

DOCUMENT = ParsedDocument(
    path="a.md",
    text="A walrus.",
    title="Walrus",
    file_type="md",
    metadata={"tags": "sea", "author": "Anna"},
    headings=(Heading(0, 9, 1, "Walrus"),),
    pages=(0, 4),
    segments=(Segment(0, 9, "video_transcript", 1.0, 2.0),),
)


def generations(database):
    with database.read() as connection:
        query = select(datasets.c.name, datasets.c.generation)
        return {row.name: row.generation for row in connection.execute(query)}


def stored_paths(database):
    with database.read() as connection:
        query = select(documents.c.dataset, documents.c.path).order_by(documents.c.id)
        return [tuple(row) for row in connection.execute(query)]


def test_a_document_of_the_same_path_in_another_dataset_stays(tmp_path):
    database = make_database(tmp_path)
    put(database, "one", "a.md", "first")
    put(database, "two", "a.md", "first")
    put(database, "one", "a.md", "second")
    assert stored_paths(database) == [("two", "a.md"), ("one", "a.md")]
    assert drop(database, "one", "a.md") == 1
    assert stored_paths(database) == [("two", "a.md")]


def test_what_changes_a_dataset_gives_it_another_generation_and_nothing_else_does(tmp_path):
    database = make_database(tmp_path)
    put(database, "other", "a.md", "first")
    other = generations(database)["other"]
    seen = []
    for change in (
        lambda: put(database, "d", "a.md", "first"),
        lambda: put(database, "d", "b.md", "first"),
        lambda: put(database, "d", "b.md", "second"),
        lambda: drop(database, "d", "b.md"),
    ):
        change()
        seen.append(generations(database)["d"])
    assert seen == sorted(set(seen)), "each is greater than the one before"
    assert drop(database, "d", "b.md", "gone.md") == 0
    assert generations(database) == {"d": seen[-1], "other": other}


def test_the_folder_noted_for_a_dataset_is_not_that_of_another(tmp_path):
    database = make_database(tmp_path)
    for name in ("one", "two"):
        put(database, name, "a.md", "text")
    with database.write() as connection:
        set_source(connection, "one", "/notes", ["*.md"], ["old/*"])
    with database.read() as connection:
        roots = {row.name: row.root for row in connection.execute(select(datasets))}
    assert roots == {"one": "/notes", "two": ""}


def test_many_documents_are_removed_at_once_and_those_that_were_there_counted(tmp_path):
    database = make_database(tmp_path)
    for path in ("a.md", "b.md", "kept.md"):
        put(database, "d", path, "text")
    assert drop(database, "d", "a.md", *(f"{number}.md" for number in range(40_000)), "b.md") == 2
    assert stored_paths(database) == [("d", "kept.md")]


def test_the_row_number_of_a_removed_chunk_is_not_given_again(tmp_path):
    database = make_database(tmp_path)
    assert put(database, "d", "a.md", ["one", "two"]) == [1, 2]
    drop(database, "d", "a.md")
    assert put(database, "d", "b.md", ["three", "four"]) == [3, 4]
    assert put(database, "d", "b.md", ["five"]) == [5]


def test_a_vector_changes_the_state_of_every_dataset_that_waited_for_it(tmp_path):
    database = make_database(tmp_path)
    put(database, "d", "a.md", ["one"], embed_keys=["k1"])
    put(database, "e", "a.md", ["one"], embed_keys=["k1"])
    with database.write() as connection:
        vectors = {"k1": np.ones(4, dtype=np.float32)}
        before = [read_stamp(connection, name) for name in "de"]
        embedding_cache.save(connection, vectors, fingerprint="f", now=NOW)
        assert all(
            read_stamp(connection, name) != stamp for name, stamp in zip("de", before, strict=True)
        )


def test_metadata_cannot_tell_another_place_or_title(tmp_path):
    database = make_database(tmp_path)
    told = {"path": "b.md", "dataset": "other", "title": "Otter", "file_type": "pdf"}
    put(database, "d", "a.md", "text", title="Walrus", metadata=told)
    with database.read() as connection:
        query = select(document_fields.c.field, document_fields.c.text_value)
        fields = {(field, value) for field, value in connection.execute(query) if field in told}
    assert fields == {("path", "a.md"), ("dataset", "d"), ("title", "Walrus"), ("file_type", "md")}


@pytest.mark.parametrize(
    "changed",
    [
        {"text": "A Walrus."},
        {"title": "Otter"},
        {"file_type": "txt"},
        {"metadata": {"tags": "lake", "author": "Anna"}},
        {"headings": (Heading(0, 9, 2, "Walrus"),)},
        {"headings": ()},
        {"pages": (0, 5)},
        {"segments": (Segment(0, 9, "video_transcript", 1.0, 3.0),)},
        {"segments": (Segment(0, 9, "video_transcript", 1.0, 2.0, "Anna"),)},
    ],
)
def test_another_content_has_another_hash(changed):
    assert content_hash(replace(DOCUMENT, **changed)) != content_hash(DOCUMENT)


def test_the_order_of_metadata_and_the_path_are_no_part_of_the_content():
    other = replace(DOCUMENT, path="b.md", metadata={"author": "Anna", "tags": "sea"})
    assert content_hash(other) == content_hash(DOCUMENT)


def test_documents_published_together_are_stored_as_one_by_one(tmp_path):
    def stored(name, *groups):
        database = Database.at(tmp_path / name)
        with database.write() as connection:
            ensure_dataset(connection, "notes", NOW)
            for group in groups:
                publish_all(connection, group, NOW)
        with database.read() as connection:
            rows = [
                connection.execute(select(table).order_by(*table.c)).all()
                for table in (documents, revisions, document_fields, chunks, chunk_windows)
            ]
        database.close()
        return rows

    def revision(path, text, *keys):
        document = ParsedDocument(path, text, "", "md", metadata={"tag": ("a", "b")})
        digest = content_hash(document)
        number = ids.revision_id(ids.source_doc_id("notes", path), digest)
        middle = len(text) // 2
        cut = tuple(
            NewChunk(ids.chunk_id(number, "text", start), ChunkSpan(start, end), keys)
            for start, end in ((0, middle), (middle, len(text)))
        )
        return NewRevision("notes", path, document, digest, cut)

    old, new = revision("a.md", "an old walrus", "k1"), revision("a.md", "a new walrus", "k2")
    other = revision("b.md", "another walrus", "k1", "k3")
    together = stored("together", [old, other])
    assert together == stored("apart", [old], [other])
    assert len(together[3]) == 4
    assert all(row.checksum for row in (*together[1], *together[3]))
    assert [row.revision_id for row in stored("twice", [old, new])[1]] == [new.revision_id]


def steps_to_load(database, seq):
    """Hundreds of SQLite's own steps that reading one passage takes."""
    steps = []
    with database.read() as connection:
        sqlite = connection.connection.driver_connection
        sqlite.set_progress_handler(lambda: steps.append(1) and None, 100)
        loaded = load_chunks(connection, "d", [seq])
        sqlite.set_progress_handler(None, 0)
    assert loaded[seq].modified == "2022"
    return len(steps)


@pytest.mark.slow
@pytest.mark.of_sqlite
def test_a_passage_is_read_in_as_many_steps_however_many_documents_there_are(tmp_path):
    database = make_database(tmp_path)
    (seq,) = put(database, "d", "a.md", "first", metadata={"modified": "2022"})
    alone = steps_to_load(database, seq)
    for number in range(200):
        put(database, "d", f"{number}.md", "more", metadata={"modified": "2021"})
    assert steps_to_load(database, seq) <= alone + 1
