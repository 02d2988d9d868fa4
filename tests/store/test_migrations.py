"""A store of an older release, brought up to date with all it holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Connection, create_engine, select
from sqlalchemy.exc import IntegrityError

import catalog.store
from catalog.core.documents import ChunkSpan, ParsedDocument
from catalog.store import Database
from catalog.store.checksums import count_damaged_rows, row_checksum
from catalog.store.chunks import load_chunks
from catalog.store.dataset_settings import (
    DatasetSettings,
    note_dataset_settings,
    read_dataset_settings,
)
from catalog.store.manifest import ManifestEntry, record
from catalog.store.revisions import NewChunk, NewRevision, ensure_dataset, publish
from catalog.store.schema import datasets, document_fields, documents, manifest

MANY = 450  # documents: more than two batches
LISTED = (
    select(documents.c.path, documents.c.dated),
    select(document_fields.c.document_id, document_fields.c.field, document_fields.c.folded),
)
ADDED_INDEXES = ["documents_type", "documents_name", "documents_dated"]


@contextmanager
def stamped(home, release: str) -> Iterator[Connection]:
    """A connection to take back what later releases made; the store is of ``release`` after it."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", f"{catalog.store.__path__[0]}/migrations")
    config.set_main_option("path_separator", "os")
    engine = create_engine(f"sqlite:///{home / 'catalog.db'}")
    with engine.begin() as connection:
        yield connection
        config.attributes["connection"] = connection
        command.stamp(config, release)
    engine.dispose()


def take_back_0006(home) -> None:
    with stamped(home, "0005") as connection:
        for name in (*ADDED_INDEXES, "document_fields_of", "document_fields_texts"):
            connection.exec_driver_sql(f"DROP INDEX {name}")
        for table, column in (("documents", "dated"), ("document_fields", "folded")):
            connection.exec_driver_sql(f"ALTER TABLE {table} DROP COLUMN {column}")
        for name, columns in (("document", "document_id"), ("text", "field, text_value")):
            made = f"CREATE INDEX document_fields_{name} ON document_fields ({columns})"
            connection.exec_driver_sql(made)


def state_of(home):
    """What is listed, and the indexes there are."""
    database = Database.at(home)
    with database.read() as connection:
        listed = [sorted(map(tuple, connection.execute(query)), key=str) for query in LISTED]
        made = "SELECT name, sql FROM sqlite_master WHERE type = 'index' ORDER BY name"
        indexes = connection.exec_driver_sql(made).all()
    database.close()
    return listed, indexes


@pytest.fixture
def filled(tmp_path):
    """A home with many documents: dates of their own and of files, names in capital letters."""
    database = Database.at(tmp_path)
    with database.write() as connection:
        ensure_dataset(connection, "notes", 0.0)
        for number in range(MANY):
            told = [{"modified": 1990 + number % 30}, {"created": "2001"}, {}, {"modified": "?"}]
            name = f"{number}.MD" if number % 7 else f"{number}.md"
            document = ParsedDocument(name, "x", name, "md", metadata=told[number % 4])
            hash_ = f"{number:064}"
            revision = NewRevision("notes", name, document, hash_, (), modified="2020-05-01")
            publish(connection, revision, 0.0)
    database.close()
    return tmp_path


def test_an_upgraded_store_lists_its_documents_as_one_that_was_built_anew(filled):
    before = state_of(filled)
    dates = dict(before[0][0])
    # 2020-05-01 and 2001-01-01 in seconds; of the fourth, its own date cannot be read
    assert [dates[name] for name in ("1.MD", "2.MD", "3.MD")] == [978307200, 1588291200, None]
    take_back_0006(filled)
    assert state_of(filled) == before


def test_metadata_that_cannot_be_read_stop_no_upgrade(filled):
    before = state_of(filled)
    take_back_0006(filled)
    engine = create_engine(f"sqlite:///{filled / 'catalog.db'}")
    with engine.begin() as connection:
        broken = "UPDATE documents SET metadata = '{' WHERE path IN ('4.MD', '5.MD')"
        assert connection.exec_driver_sql(broken).rowcount == 2
    engine.dispose()
    assert state_of(filled) == before


def test_an_upgrade_that_ends_midway_leaves_the_store_as_it_was(filled):
    before = state_of(filled)
    take_back_0006(filled)
    engine = create_engine(f"sqlite:///{filled / 'catalog.db'}")
    with engine.begin() as connection:
        connection.exec_driver_sql(
            f"CREATE TRIGGER stop BEFORE UPDATE ON documents WHEN new.id = {MANY} "
            "BEGIN SELECT RAISE(ABORT, 'ended'); END"
        )
    with pytest.raises(IntegrityError, match="ended"):
        Database.at(filled)
    with engine.begin() as connection:
        columns = connection.exec_driver_sql("PRAGMA table_info(documents)").all()
        assert "dated" not in [column[1] for column in columns]
        connection.exec_driver_sql("DROP TRIGGER stop")
    engine.dispose()
    assert state_of(filled) == before


def test_chunks_of_an_older_store_are_kept_and_know_nothing_of_their_inside(tmp_path):
    document = ParsedDocument(path="a.md", text="Rotate the keys.", title="A", file_type="md")
    chunk = NewChunk("c" * 40, ChunkSpan(0, 16, tokens=4, page_breaks=(7,)), ())
    database = Database.at(tmp_path)
    with database.write() as connection:
        ensure_dataset(connection, "notes", 0.0)
        publish(connection, NewRevision("notes", "a.md", document, "f" * 64, (chunk,)), 0.0)
        (before,) = load_chunks(connection, "notes", [1]).values()
    database.close()
    assert before.page_breaks == (7,)

    with stamped(tmp_path, "0003") as connection:
        for column in ("tokens", "cues", "page_breaks"):
            connection.exec_driver_sql(f"ALTER TABLE chunks DROP COLUMN {column}")
        connection.exec_driver_sql("UPDATE chunks SET checksum = NULL")

    upgraded = Database.at(tmp_path)
    with upgraded.read() as connection:
        (chunk,) = load_chunks(connection, "notes", [1]).values()
    upgraded.close()
    assert (chunk.text, chunk.cues, chunk.page_breaks) == ("Rotate the keys.", (), ())


def test_rows_of_an_older_store_have_no_checksum(tmp_path):
    document = ParsedDocument(path="a.md", text="Rotate the keys.", title="A", file_type="md")
    database = Database.at(tmp_path)
    with database.write() as connection:
        ensure_dataset(connection, "notes", 0.0)
        publish(connection, NewRevision("notes", "a.md", document, "f" * 64, ()), 0.0)
    database.close()
    with stamped(tmp_path, "0006") as connection:
        connection.exec_driver_sql("DROP INDEX embeddings_unsealed")
        connection.exec_driver_sql("ALTER TABLE datasets DROP COLUMN state")
        for table in ("documents", "revisions", "chunks", "embeddings"):
            connection.exec_driver_sql(f"ALTER TABLE {table} DROP COLUMN checksum")
    upgraded = Database.at(tmp_path)
    with upgraded.read() as connection:
        assert connection.scalars(select(documents.c.checksum)).all() == [None]
        assert connection.scalars(select(datasets.c.state)).all() == [None]
    upgraded.close()


def test_an_upgrade_keeps_the_checksums_of_files_and_hides_no_damage(tmp_path):
    database = Database.at(tmp_path)
    with database.write() as connection:
        ensure_dataset(connection, "notes", 0.0)
        for file in ("a.md", "b.md"):
            record(connection, "notes", ManifestEntry(file, 1, 1, "p", "done", None, 0.0))
        whole = connection.scalars(select(manifest.c.checksum)).all()
    database.close()
    with stamped(tmp_path, "0007") as connection:
        for column in ("mount", "documents", "ctime_ns", "inode", "digest"):
            connection.exec_driver_sql(f"ALTER TABLE manifest DROP COLUMN {column}")
        for file in ("a.md", "b.md"):
            values = ("notes", file, 1, 1, "p", "done", None, 0.0)
            sealed = (row_checksum(values), file)
            connection.exec_driver_sql("UPDATE manifest SET checksum = ? WHERE file = ?", sealed)
        connection.exec_driver_sql("UPDATE manifest SET size = 2 WHERE file = 'b.md'")
    upgraded = Database.at(tmp_path)
    with upgraded.read() as connection:
        assert connection.scalars(select(manifest.c.checksum)).all() == whole
        assert count_damaged_rows(connection, manifest, manifest.c.file == "a.md") == 0
        assert count_damaged_rows(connection, manifest, manifest.c.file == "b.md") == 1
    upgraded.close()


def test_an_upgrade_to_notes_of_settings_makes_none_up(tmp_path):
    database = Database.at(tmp_path)
    with database.write() as connection:
        ensure_dataset(connection, "notes", 0.0)
        note_dataset_settings(connection, "notes", DatasetSettings("vault", {"chunk_size": 9}))
    database.close()
    with stamped(tmp_path, "0008") as connection:
        connection.exec_driver_sql("DROP TABLE dataset_settings")
    upgraded = Database.at(tmp_path)
    with upgraded.write() as connection:
        assert read_dataset_settings(connection, "notes") is None
        noted = DatasetSettings(None, {"chunk_size": 7})
        note_dataset_settings(connection, "notes", noted)
        assert read_dataset_settings(connection, "notes") == noted
    upgraded.close()
