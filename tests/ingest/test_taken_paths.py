"""Of several files with a document of one path the first has it, and none is lost."""

import itertools
import json
import os
import random

import pytest

from catalog.ingest import sync as sync_module
from catalog.library.indexing import Indexer
from catalog.store.chunks import read_documents
from catalog.store.schema import embeddings
from fakes import WordEncoder, open_library


def records(path, **texts):
    lines = [json.dumps({"_id": name, "text": text}) for name, text in texts.items()]
    path.write_text("\n".join(lines) + "\n")
    os.utime(path, (1_600_000_000, 1_600_000_000 + len(lines)))


def texts(library):
    with library.database.read() as connection:
        return {one.path: one.text.strip() for one in read_documents(connection, "notes")}


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "notes"
    root.mkdir()
    (root / "keep.md").write_text("kept")
    return root


def test_a_record_with_the_name_of_a_file_is_refused_until_the_file_goes(tmp_path, folder):
    (folder / "a.md").write_text("the file")
    records(folder / "z.jsonl", **{"a.md": "the record", "7": "another"})
    with open_library(tmp_path / "home") as library:
        report = Indexer(library).build(folder, "notes")
        (failure,) = report.failed
        assert (failure.path, failure.reason) == (
            "a.md", "the path is taken by a document of a.md",
        )  # fmt: skip
        expected = {"keep.md": "kept", "a.md": "the file", "7": "another"}
        assert texts(library) == expected
        assert [one.path for one in Indexer(library).update("notes").failed] == ["a.md"]
        records_file = (folder / "z.jsonl").rename(tmp_path / "z.jsonl")
        Indexer(library).update("notes")
        assert texts(library) == {"keep.md": "kept", "a.md": "the file"}
        records_file.rename(folder / "z.jsonl")
        Indexer(library).update("notes")
        assert texts(library) == expected
        (folder / "a.md").unlink()
        Indexer(library).update("notes")
        assert texts(library) == {"keep.md": "kept", "a.md": "the record", "7": "another"}


@pytest.mark.parametrize(("old", "new"), [("one", "two"), ("two", "one")])
@pytest.mark.parametrize("old_file", ["stays", "goes"])
def test_a_record_moved_to_another_file_is_there_after_the_update(
    tmp_path, folder, old, new, old_file
):
    records(folder / f"{old}.jsonl", a="first", b="second")
    records(folder / f"{new}.jsonl", c="third")
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(folder, "notes")
        records(folder / f"{new}.jsonl", c="third", b="second", a="first")
        (folder / f"{old}.jsonl").unlink()
        if old_file == "stays":
            records(folder / f"{old}.jsonl", d="fourth")
        Indexer(library).update("notes")
        fourth = {"d": "fourth"} if old_file == "stays" else {}
        expected = {"keep.md": "kept", "a": "first", "b": "second", "c": "third", **fourth}
        assert texts(library) == expected


@pytest.mark.parametrize("seed", range(4))
def test_after_any_moves_an_update_has_what_a_new_build_has(tmp_path, folder, seed):
    chance, homes = random.Random(seed), itertools.count()
    with open_library(tmp_path / "home", ingest={"group_chars": 20}) as library:
        Indexer(library).build(folder, "notes")
        for _ in range(5):
            for name in chance.sample("abc", 2):
                ids = chance.sample("1234", chance.randrange(4))
                (folder / f"{name}.jsonl").unlink(missing_ok=True)
                if ids:
                    records(folder / f"{name}.jsonl", **{one: f"{name} says {one}" for one in ids})
            Indexer(library).update("notes", allow_deletions=True)
            with open_library(tmp_path / f"new{next(homes)}") as fresh:
                Indexer(fresh).build(folder, "notes")
                assert texts(library) == texts(fresh), f"seed {seed}"


def with_clock(make, now):
    """The same maker, whose last argument, a clock, stands still."""
    return lambda *arguments: make(*arguments[:-1], lambda: now)


def test_a_file_rewritten_right_after_it_was_read_is_read_again(tmp_path, folder, monkeypatch):
    """Same size, same time stamp; the publication comes a minute after the reading."""
    note = folder / "note.md"
    note.write_text("old words")
    os.utime(note, (1_000_000, 1_000_000))
    changed = []
    real = sync_module.SyncRun.publish_group

    def publish(run):
        if not changed:
            changed.append(note.write_text("new words"))
            os.utime(note, (1_000_000, 1_000_000))
        real(run)

    monkeypatch.setattr(sync_module.SyncRun, "publish_group", publish)
    with open_library(tmp_path / "home") as library:
        (folder / "keep.md").unlink()
        for name, now in (("ReadAhead", 1_000_001.0), ("SyncRun", 1_000_060.0)):
            make = getattr(sync_module, name)
            monkeypatch.setattr(sync_module, name, with_clock(make, now))
        Indexer(library).build(folder, "notes")
        monkeypatch.undo()
        assert texts(library) == {"note.md": "old words"}
        assert Indexer(library).update("notes").updated == 1
        assert texts(library) == {"note.md": "new words"}


def test_vectors_purged_by_another_run_before_a_publication_are_published_with_it(
    tmp_path, folder, monkeypatch
):
    """The other run ends between the embedding and the publication of this one."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "x.md").write_text("walrus words")
    real = sync_module.SyncRun._note_begun
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(other, "other")

        def purge(run, files):
            real(run, files)
            with library.database.write() as connection:
                connection.execute(embeddings.delete())

        monkeypatch.setattr(sync_module.SyncRun, "_note_begun", purge)
        report = Indexer(library).build(folder, "notes")
        assert report.incomplete == 0
        assert Indexer(library).stats("notes").vectors == report.chunks


def test_a_vector_that_is_missing_is_made_at_the_next_update(tmp_path, folder):
    os.utime(folder / "keep.md", (1_600_000_000, 1_600_000_000))
    encoder = WordEncoder()
    with open_library(tmp_path / "home", encoder) as library:
        Indexer(library).build(folder, "notes")
        with library.database.write() as connection:
            connection.execute(embeddings.delete())
        report = Indexer(library).update("notes")
        assert (report.updated, report.embedded, report.incomplete) == (0, 1, 0)
        assert Indexer(library).update("notes").unchanged == 1
