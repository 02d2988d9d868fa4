"""Of several files with a document of one path the first has it, and none is lost."""

import itertools
import json
import os
import random
import shutil

import pytest

from catalog.core.errors import InputError
from catalog.ingest import sync as sync_module
from catalog.library.health import diagnose
from catalog.library.importing import import_chunks
from catalog.library.indexing import Indexer
from catalog.store import publish as store_publish
from catalog.store.chunks import read_documents
from catalog.store.manifest import entries
from catalog.store.portable import export_chunks
from catalog.store.publish import remove_documents
from catalog.store.schema import embeddings
from fakes import WordEncoder, open_library
from tables import table


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
            "a.md", "a document of a.md has this path already",
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


@table("old, new, old_file")
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


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_after_any_moves_an_update_has_what_a_new_build_has(tmp_path, folder, seed):
    chance, homes = random.Random(seed), itertools.count()
    with open_library(tmp_path / "home", ingest={"group_chars": 20}) as library:
        Indexer(library).build(folder, "notes")
        for _ in range(4):
            for name in chance.sample("abc", 2):
                ids = chance.sample("1234", chance.randrange(4))
                (folder / f"{name}.jsonl").unlink(missing_ok=True)
                if ids:
                    records(folder / f"{name}.jsonl", **{one: f"{name} says {one}" for one in ids})
            Indexer(library).update("notes", allow_deletions=True)
            with open_library(tmp_path / f"new{next(homes)}") as fresh:
                Indexer(fresh).build(folder, "notes")
                assert texts(library) == texts(fresh), f"seed {seed}"


def minute_later():
    return 1_000_060.0


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
        run, outcome = sync_module.SyncRun, sync_module.FileOutcome
        monkeypatch.setattr(sync_module, "SyncRun", lambda *given: run(*given[:-1], minute_later))
        monkeypatch.setattr(
            sync_module, "FileOutcome", lambda file, **_: outcome(file, begun_at=1_000_001.0)
        )
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


@pytest.fixture
def kept(tmp_path, folder):
    """A library with two files of records, and an export of them; all files seem to be old."""
    os.utime(folder / "keep.md", (1_600_000_000, 1_600_000_000))
    records(folder / "a.jsonl", r1="first", r2="second", r3="third")
    records(folder / "z.jsonl", r9="ninth")
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(folder, "notes")
        export_chunks(library.database, tmp_path / "kept.jsonl", vectors=True)
        yield library


FOUR = {"keep.md": "kept", "r1": "first", "r2": "second", "r3": "third", "r9": "ninth"}


def update(library):
    """Update, and require that another update has nothing to do."""
    Indexer(library).update("notes")
    again = Indexer(library).update("notes")
    assert (again.added, again.updated, again.removed) == (0, 0, 0)
    assert [check for check in diagnose(library) if not check.ok] == []
    return texts(library)


def test_records_that_an_import_gives_back_to_an_old_file_name_stay(tmp_path, folder, kept):
    (folder / "a.jsonl").rename(folder / "b.jsonl")
    Indexer(kept).update("notes")
    import_chunks(kept, tmp_path / "kept.jsonl")
    assert update(kept) == FOUR


def test_a_file_that_lost_one_of_its_records_to_an_import_is_read_again(tmp_path, folder, kept):
    (folder / "a.jsonl").unlink()
    records(folder / "q.jsonl", r1="other", r8="eighth")
    Indexer(kept).update("notes")
    import_chunks(kept, tmp_path / "kept.jsonl")
    assert update(kept) == {"keep.md": "kept", "r1": "other", "r8": "eighth", "r9": "ninth"}


def test_records_that_a_file_had_later_are_gone_once_it_is_as_it_was_exported(
    tmp_path, folder, kept
):
    old = shutil.copy2(folder / "a.jsonl", tmp_path / "a.jsonl")
    records(folder / "a.jsonl", r1="first", r2="second", r3="third", r4="fourth")
    Indexer(kept).update("notes")
    shutil.copy2(old, folder / "a.jsonl")
    import_chunks(kept, tmp_path / "kept.jsonl")
    assert update(kept) == FOUR


@pytest.mark.parametrize("then", ["as it is", "removed"])
def test_an_update_mends_what_an_import_left_that_ended_early(
    tmp_path, folder, kept, monkeypatch, then
):
    records(folder / "a.jsonl", r1="new", r2="newer")
    Indexer(kept).update("notes")
    real = store_publish.publish_all

    def publish(connection, revisions, now):
        real(connection, revisions, now)
        connection.commit()
        raise KeyboardInterrupt

    monkeypatch.setattr(store_publish, "publish_all", publish)
    with pytest.raises(KeyboardInterrupt):
        import_chunks(kept, tmp_path / "kept.jsonl")
    assert texts(kept)["r3"] == "third"
    if then == "removed":
        (folder / "a.jsonl").unlink()
    new = {"r1": "new", "r2": "newer"} if then == "as it is" else {}
    assert update(kept) == {"keep.md": "kept", "r9": "ninth", **new}


def test_two_exports_appended_to_one_file_are_refused(tmp_path, kept):
    both = tmp_path / "both.jsonl"
    both.write_bytes(2 * (tmp_path / "kept.jsonl").read_bytes())
    with (
        open_library(tmp_path / "other") as other,
        pytest.raises(InputError, match="a second header"),
    ):
        import_chunks(other, both)


def test_doctor_names_files_without_the_records_that_were_read_of_them(folder, kept):
    with kept.database.write() as connection:
        remove_documents(connection, "notes", ["r2"], 1.0)
    (check,) = [check for check in diagnose(kept) if not check.ok]
    assert (check.name, check.fix) == (
        "notes: documents of files", "catalog index update --dataset notes",
    )  # fmt: skip
    assert "a.jsonl has 2 of 3" in check.detail
    assert update(kept) == FOUR


def test_an_import_of_documents_without_files_notes_no_folder(tmp_path, kept):
    plain = tmp_path / "plain.jsonl"
    lines = (tmp_path / "kept.jsonl").read_bytes().splitlines(keepends=True)
    plain.write_bytes(b"".join(line for line in lines if b'"kind":"file"' not in line))
    with open_library(tmp_path / "other") as other:
        import_chunks(other, plain)
        assert texts(other) == FOUR
        with other.database.read() as connection:
            assert entries(connection, "notes") == {}
