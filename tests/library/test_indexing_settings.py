"""A dataset is cut as it was made, whatever the settings of a call, unless the call says so."""

import hashlib
import os
import shutil
from contextlib import contextmanager
from unittest.mock import Mock

import pytest
from sqlalchemy import select

from catalog.core.errors import ConfigError, EmbeddingMismatchError
from catalog.core.settings import load_settings
from catalog.embedding.model import EmbeddingModel
from catalog.library.indexing import Indexer
from catalog.library.library import Library
from catalog.store.database import hold_lock
from catalog.store.restriction import Restriction
from catalog.store.schema import chunks
from fakes import WordEncoder, open_library

TEXT = "\n\n".join(f"# Part {n}\n\n" + f"walrus {n} swims far away. " * 30 for n in range(4))


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "docs"
    made.mkdir()
    for name in ("a.md", "b.md", "c.md"):
        (made / name).write_text(f"{TEXT}\n\nThis is {name}.\n")
    return made


@pytest.fixture
def opened(tmp_path):
    """Opens libraries over one home, or another; closes them at the end."""
    libraries, exact = [], {"vector_engine": "flat"}  # which several may open

    def make(home="home", encoder=None, preset=None, **rag):
        if preset is None:
            libraries.append(open_library(tmp_path / home, encoder, **(exact | rag)))
        else:
            changes = {"home": tmp_path / home, "rag_v2": exact}
            settings = load_settings(preset=preset, overrides=changes).settings
            model = EmbeddingModel(encoder or WordEncoder())
            libraries.append(Library(settings, model=model))
        return libraries[-1]

    yield make
    for library in libraries:
        library.close()


def cut(library):
    """Every passage's document and extent: what the settings shape."""
    query = select(chunks.c.chunk_id, chunks.c.start_offset, chunks.c.end_offset)
    with library.database.read() as connection:
        return sorted(map(tuple, connection.execute(query)))


def forget_note(library):
    with library.database.write() as connection:
        assert connection.exec_driver_sql("DELETE FROM dataset_settings").rowcount == 1


@pytest.mark.parametrize("run", ["update", "build"])
def test_a_run_under_other_settings_cuts_nothing_again_and_says_what_they_would_cut(
    opened, folder, run
):
    library = opened(chunk_size=100)
    Indexer(library).build(folder, "docs")
    before, encoder = cut(library), WordEncoder()
    other = Indexer(opened(encoder=encoder, chunk_size=60, chunk_min_size=20))
    report = other.update("docs") if run == "update" else other.build(folder, "docs")
    assert (report.updated, report.unchanged, report.embedded) == (0, 3, 0)
    assert encoder.texts == []
    (note,) = report.notes
    assert "would cut 3 of 3 documents again" in note
    assert "(chunk_size 60 instead of 100, chunk_min_size 20 instead of 8)" in note
    assert "--apply-settings" in note
    assert cut(library) == before


def test_documents_that_other_settings_would_cut_again_are_counted(opened, tmp_path):
    talks = tmp_path / "talks"
    (talks / "talk_frames").mkdir(parents=True)
    (talks / "talk.srt").write_text("1\n00:00:01,000 --> 00:00:09,000\nHello.\n")
    (talks / "talk_frames" / "frame_00m05s.md").write_text("# Frame at 00:05\n\nA slide.\n")
    (talks / "note.md").write_text("# Note\n\nA note.\n")
    Indexer(opened(chunk_size=100)).build(talks, "talks")
    preview = Indexer(opened(chunk_size=60)).preview("talks")
    assert "would cut 2 of 2 documents again" in preview.notes[0]
    assert preview.recut_documents == 2
    assert Indexer(opened(chunk_size=100)).preview("talks").recut_documents == 0
    labels = Indexer(opened(chunk_size=100, embed_context_form="labels")).preview("talks")
    assert labels.recut_documents == 2
    assert labels.settings == {"embed_context_form": {"call": "labels", "dataset": "place"}}
    shutil.rmtree(talks / "talk_frames")
    for file in talks.iterdir():
        file.unlink()
    preview = Indexer(opened(chunk_size=100)).preview("talks")
    assert "--allow-deletions" in (preview.stopped or "")
    allowed = Indexer(opened(chunk_size=100)).preview("talks", allow_deletions=True)
    assert allowed.stopped is None


@pytest.mark.slow
def test_documents_added_under_other_settings_are_cut_and_embedded_like_the_rest(opened, folder):
    made = {"chunk_size": 100, "embed_prefix_doc": "made: ", "embed_context": False}
    Indexer(opened(**made)).build(folder, "docs")
    (folder / "d.md").write_text(f"{TEXT}\n\nThis is d.md.\n")
    encoder = WordEncoder()
    Indexer(opened(encoder=encoder, chunk_size=60, embed_prefix_doc="call: ")).update("docs")
    assert encoder.texts
    assert all(text.startswith("made: ") for text in encoder.texts)
    whole = opened("other", **made)
    Indexer(whole).build(folder, "docs")
    assert cut(opened()) == cut(whole)


@pytest.mark.slow
def test_settings_are_applied_when_told_and_kept_from_then_on(opened, folder):
    first = opened(chunk_size=100)
    Indexer(first).build(folder, "docs")
    before = cut(first)
    second = opened(chunk_size=60)
    report = Indexer(second).update("docs", apply_settings=True)
    assert report.updated == 3
    assert cut(second) != before
    assert report.notes == ()
    report = Indexer(second).update("docs")
    assert (report.updated, report.notes) == (0, ())
    assert "3 of 3" in Indexer(first).update("docs").notes[0]


@pytest.mark.slow
def test_a_run_that_applies_settings_and_ends_midway_is_continued_by_any_update(opened, folder):
    first = opened(chunk_size=100)
    Indexer(first).build(folder, "docs")
    encoder = WordEncoder()
    encoder.down = True
    second = opened(encoder=encoder, chunk_size=60)
    assert Indexer(second).update("docs", apply_settings=True).incomplete == 3
    report = Indexer(first).update("docs")
    assert (report.updated, report.incomplete) == (0, 0)
    assert report.embedded > 0
    whole = opened("other", chunk_size=60)
    Indexer(whole).build(folder, "docs")
    assert cut(first) == cut(whole)


def test_a_run_that_waited_for_another_goes_by_what_that_one_noted(opened, folder, monkeypatch):
    first, second = opened(chunk_size=100), opened(chunk_size=60)
    Indexer(first).build(folder, "docs")

    @contextmanager
    def lock_after_another_run(*arguments, **more):
        monkeypatch.undo()
        Indexer(second).update("docs", apply_settings=True)
        with hold_lock(*arguments, **more):
            yield

    monkeypatch.setattr("catalog.library.indexing.hold_lock", lock_after_another_run)
    assert Indexer(first).update("docs").updated == 0
    assert Indexer(first).stats("docs").settings["chunk_size"] == 60


@pytest.mark.slow
def test_a_rebuild_applies_the_settings_or_keeps_those_of_each_dataset(opened, folder):
    first, second = opened(chunk_size=100), opened(chunk_size=60)
    Indexer(first).build(folder, "docs")
    before = cut(first)
    Indexer(second).rebuild(keep_settings=True)
    assert cut(first) == before
    Indexer(second).rebuild()
    assert cut(first) != before
    assert Indexer(second).stats("docs").settings["chunk_size"] == 60


@pytest.mark.slow
def test_another_model_is_refused_as_ever_and_a_rebuild_keeps_the_cut(opened, folder):
    first = opened(chunk_size=100)
    Indexer(first).build(folder, "docs")
    before, encoder = cut(first), WordEncoder()
    encoder.fingerprint = "words-2"
    second = opened(encoder=encoder, chunk_size=60)
    for run in (Indexer(second).update, Indexer(second).preview):
        with pytest.raises(EmbeddingMismatchError, match="rebuild"):
            run("docs")
    Indexer(second).rebuild(keep_settings=True)
    assert cut(first) == before


def test_a_dataset_without_documents_takes_the_settings_of_the_call(opened, folder):
    for file in folder.iterdir():
        file.rename(folder.parent / file.name)
    Indexer(opened(chunk_size=100)).build(folder, "docs")
    (folder / "a.md").write_text(TEXT)
    library = opened(chunk_size=60)
    assert Indexer(library).update("docs").notes == ()
    assert Indexer(library).stats("docs").settings["chunk_size"] == 60


def test_a_lost_note_is_found_again_only_by_the_settings_it_had(opened, folder):
    vault = opened(preset="vault")
    Indexer(vault).build(folder, "docs")
    before = cut(vault)
    with vault.database.write() as connection:
        connection.exec_driver_sql("UPDATE dataset_settings SET settings = '{'")
    with pytest.raises(ConfigError, match="is missing"):
        Indexer(opened(preset="default")).update("docs")
    report = Indexer(vault).update("docs")
    assert (report.updated, report.unchanged) == (0, 3)
    assert cut(vault) == before
    assert Indexer(vault).stats("docs").preset == "vault"


@pytest.mark.slow
def test_a_store_made_with_unknown_settings_is_not_cut_again_unasked(opened, folder):
    first = opened(chunk_size=100)
    Indexer(first).build(folder, "docs")
    forget_note(first)
    before, second = cut(first), opened(chunk_size=60)
    for run in (Indexer(second).update, Indexer(second).preview):
        with pytest.raises(ConfigError, match="is missing"):
            run("docs")
    with pytest.raises(ConfigError):
        Indexer(second).rebuild(keep_settings=True)
    assert cut(first) == before
    assert Indexer(first).update("docs").unchanged == 3  # by those it was made with: noted now
    assert Indexer(second).update("docs").unchanged == 3
    forget_note(first)
    assert Indexer(second).update("docs", apply_settings=True).updated == 3


@pytest.mark.slow
def test_a_preview_lists_the_changes_of_an_update_and_changes_no_byte(opened, folder, tmp_path):
    (folder / "empty.md").write_text("")
    (folder / "image.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    for file in folder.iterdir():
        os.utime(file, (1_700_000_000, 1_700_000_000))
    Indexer(opened(chunk_size=100)).build(folder, "docs")
    (folder / "a.md").unlink()
    (folder / "b.md").write_text("another text")
    (folder / "new.md").write_text("new")
    encoder = WordEncoder()
    other = Indexer(opened(encoder=encoder, chunk_size=60))
    before = snapshot(tmp_path / "home")
    preview = other.preview("docs")
    assert snapshot(tmp_path / "home") == before
    assert encoder.texts == []
    assert preview.added == ("new.md",)
    assert [(one.path, one.reason) for one in preview.changed] == [
        ("b.md", "its size or date changed")
    ]
    assert preview.removed == ("a.md",)
    assert {one.path for one in preview.remarks} == {"empty.md", "image.png"}
    assert (preview.unchanged, preview.stopped, preview.kept) == (1, None, ())
    assert preview.settings == {"chunk_size": {"call": 60, "dataset": 100}}
    assert "would cut 3 of 3" in preview.notes[0]
    report = other.update("docs")
    assert (report.added, report.updated, report.removed) == (1, 1, 1)
    applied = other.preview("docs", apply_settings=True)
    changed = ["b.md", "c.md", "empty.md", "image.png", "new.md"]
    assert [one.path for one in applied.changed] == changed


def snapshot(home):
    """Every file of the home with its bytes; of SQLite's own files only the store and its log."""
    return {
        file.relative_to(home): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(home.rglob("*"))
        if file.is_file() and not file.name.endswith("-shm")
    }


def test_an_engine_that_the_settings_make_impossible_ends_the_run_and_the_next_goes_on(
    folder, opened
):
    """As Postgres refuses a text search configuration that it does not have."""
    library = opened()
    engine = library.indexes.lexical("docs")
    engine.refresh, right = Mock(side_effect=ConfigError("there is no 'klingon'")), engine.refresh
    with pytest.raises(ConfigError, match="klingon"):
        Indexer(library).build(folder, "docs")
    engine.refresh = right
    report = Indexer(library).update("docs")
    assert report.unchanged == 3
    assert report.chunks == report.embedded_chunks > 0
    assert engine.search("walrus", 9, Restriction("docs"))


def test_a_build_of_many_passages_names_qdrant_unless_another_engine_is_set(
    opened, folder, monkeypatch
):
    monkeypatch.setattr("catalog.library.indexing.MANY_PASSAGES", 2)
    notes = Indexer(opened()).build(folder, "docs").notes
    assert [note for note in notes if "VECTOR_ENGINE=qdrant" in note]
    notes = Indexer(opened("other", vector_engine="sqlite-vec")).build(folder, "docs").notes
    assert not [note for note in notes if "VECTOR_ENGINE=qdrant" in note]
