"""Removing a dataset: nothing of it is left, and nothing else is touched."""

import os
import shutil
import time
from contextlib import contextmanager

import pytest
from llama_index.core.schema import Document
from sqlalchemy import inspect, select, text

from catalog.core.errors import InputError, StoreBusyError, UnknownDatasetError
from catalog.library.health import diagnose
from catalog.library.indexes import Indexes
from catalog.library.indexing import Indexer
from catalog.search_v2.ingestion import IngestionPipelineBuilderV2
from catalog.search_v2.service import SearchServiceV2
from catalog.store import llm_cache
from catalog.store.database import hold_lock
from catalog.store.engines import nearest
from catalog.store.llm_cache import CacheEntry
from catalog.store.portable import export_chunks
from catalog.store.restriction import Restriction
from catalog.store.schema import metadata
from catalog.store.vectors import qdrant
from fakes import open_library, open_qdrant_library, write
from qdrant_protocol import qdrant_protocol

SHARED = "# Seal\n\nA seal swims.\n"
LOCAL = ("flat", "qdrant", "sqlite-vec")


def build(library, folder, name):
    walrus = f"# Walrus of {name}\n\nA walrus sleeps.\n"
    write(folder / name, walrus_dot_md=walrus, seal_dot_md=SHARED)
    Indexer(library).build(folder / name, name)


def search(library, dataset, mode="hybrid"):
    found = SearchServiceV2(library).search("walrus", dataset=dataset, mode=mode)
    assert all(stage.status != "failed" for stage in found.stages)
    return [one.path for one in found]


def meta_keys(library):
    with library.database.read() as connection:
        return list(connection.scalars(select(metadata.tables["meta"].c.key)))


def rows(library):
    """How many rows each table has that tell of a dataset's content."""
    left = {"meta", "row_numbers", "eval_runs", "query_log", "query_passages"}
    with library.database.read() as connection:
        tables = set(metadata.tables) & set(inspect(connection).get_table_names())
        names = sorted(tables - left)
        counts = {n: connection.scalar(text(f"SELECT count(*) FROM {n}")) for n in names}
    return {name: count for name, count in counts.items() if count and "version" not in name}


def test_the_files_of_a_recording_are_one_document_to_export_and_to_removal(tmp_path):
    cue = "1\n00:00:50,000 --> 00:01:04,000\nBefore that a walrus sleeps.\n"
    frame = {"lecture_frames/frame_01m00s.md": "# Slide 7\n\nA formula.\n"}
    for name, content in {"lecture.srt": cue, **frame}.items():
        (tmp_path / "talks" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "talks" / name).write_text(content)
    with open_library(tmp_path / "home") as library:
        indexer = Indexer(library)
        report = indexer.build(tmp_path / "talks", "talks")
        assert (report.documents, report.added) == (1, 2)
        assert export_chunks(library.database, tmp_path / "talks.jsonl").documents == 1
        assert indexer.remove_document("talks", "lecture.srt").documents == 1
        indexer.update("talks", reread=True)
        assert indexer.remove("talks").documents == 1


@pytest.mark.slow
@pytest.mark.both_stores
@pytest.mark.parametrize(
    ("words", "vectors"), [*(("bm25", engine) for engine in LOCAL), ("fts", LOCAL[0])]
)
def test_nothing_of_it_is_left_and_another_dataset_is_as_it_was(tmp_path, words, vectors):
    home = tmp_path / "home"
    with open_library(home, lexical_engine=words, vector_engine=vectors) as library:
        build(library, tmp_path, "kept")
        before = rows(library)
        build(library, tmp_path, "notes")
        assert search(library, "notes")[0] == search(library, ("kept", "notes"))[0] == "walrus.md"
        removal = Indexer(library).remove("notes")
        assert (removal.documents, removal.chunks, removal.notes) == (2, 2, ())
        assert removal.root == str((tmp_path / "notes").resolve())
        assert rows(library) == before
        assert not (home / "indexes" / "notes").exists()
        assert library.datasets() == ["kept"]
        for mode in ("lexical", "vector", "hybrid"):
            assert search(library, "kept", mode)[0] == "walrus.md"
            with pytest.raises(UnknownDatasetError):
                search(library, "notes", mode)
        assert [check.name for check in diagnose(library) if not check.ok] == []
    assert sorted(file.name for file in (tmp_path / "notes").iterdir()) == ["seal.md", "walrus.md"]


@pytest.mark.parametrize("vectors", LOCAL)
def test_the_name_may_be_given_again_while_another_process_has_the_old_one_open(tmp_path, vectors):
    with (
        open_library(tmp_path / "home", vector_engine=vectors) as other,
        open_library(tmp_path / "home", vector_engine=vectors) as library,
    ):
        build(library, tmp_path, "notes")
        library.indexes.vector("notes").close()
        assert search(other, "notes")[0] == "walrus.md"
        notes = Indexer(library).remove("notes").notes
        assert [("stays" in note) for note in notes] == [True] * (vectors == "qdrant")
        (tmp_path / "notes" / "walrus.md").write_text("# Whale\n\nA whale and a walrus sing.\n")
        (tmp_path / "notes" / "seal.md").unlink()
        Indexer(library).build(tmp_path / "notes", "notes")
        for each in (library, other):
            assert search(each, "notes") == ["walrus.md"]
            assert search(each, "notes", "vector") == ["walrus.md"]
        assert other.indexes.vector("notes").verify() == 0


def test_what_was_learnt_of_it_is_forgotten_and_of_no_other(tmp_path):
    others = ("notes", "my.notes", "30ac8f2d0cccd51c")
    with open_library(tmp_path / "home") as library:
        library.database.set_meta("calibration:30ac8f2d0cccd51c", "{}")
        for name in ("Notes", *others):
            build(library, tmp_path, name)
            for kind in ("agreement", "answers"):
                library.database.set_meta(f"{kind}:{name}", "{}")
        keys = set(meta_keys(library))
        for name in ("Notes", "30ac8f2d0cccd51c"):
            Indexer(library).remove(name)
        gone = keys - set(meta_keys(library))
        assert gone == {
            f"{kind}:{name}"
            for kind in ("agreement", "answers")
            for name in ("Notes", "30ac8f2d0cccd51c")
        }


def test_cached_answers_are_removed_a_foreign_file_stays_and_a_pipeline_fills_it_anew(tmp_path):
    with open_library(tmp_path / "home") as library:
        build(library, tmp_path, "notes")
        kept = {"key": CacheEntry('"a walrus sleeps"')}
        with library.database.write() as connection:
            llm_cache.save(connection, kept, kind="answer", model="m", now=time.time())
        stray = tmp_path / "home" / "indexes" / "notes" / "stray"
        stray.write_text("kept")
        assert Indexer(library).remove("notes").notes == ()
        with library.database.read() as connection:
            assert llm_cache.load(connection, ["key"], after=0.0) == {}
        assert stray.read_text() == "kept"
        pipeline = IngestionPipelineBuilderV2(SearchServiceV2(library)).build_pipeline("notes")
        documents = [Document(text="A walrus sleeps.", metadata={"file_path": "a.md"})]
        pipeline.run(documents=documents)
        Indexer(library).remove("notes")
        pipeline.run(documents=documents)
        assert len(search(library, "notes")) == 1


def test_an_unknown_name_and_one_that_is_no_name_are_refused(tmp_path):
    with open_library(tmp_path / "home") as library:
        build(library, tmp_path, "notes")
        with pytest.raises(UnknownDatasetError, match="datasets: notes"):
            Indexer(library).remove("note")
        for name in ("..", "../notes", "", "notes/"):
            with pytest.raises(InputError, match="letters"):
                Indexer(library).remove(name)
        assert search(library, "notes")[0] == "walrus.md"


def test_a_removal_that_was_cut_short_is_finished_by_another(tmp_path, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    with open_qdrant_library(tmp_path / "home") as library:
        build(library, tmp_path, "notes")
        with monkeypatch.context() as patch:
            patch.setattr(Indexes, "remove", killed)
            with pytest.raises(KeyboardInterrupt):
                Indexer(library).remove("notes")
    with open_qdrant_library(tmp_path / "home") as library:
        assert library.datasets() == []
        assert (tmp_path / "home" / "indexes" / "notes").exists()
        assert Indexer(library).remove("notes").documents == 0
        assert not (tmp_path / "home" / "indexes" / "notes").exists()
        with pytest.raises(UnknownDatasetError):
            Indexer(library).remove("notes")


def test_one_that_is_being_indexed_is_left_alone(tmp_path):
    ingest = {"lock_seconds": 0}
    with open_library(tmp_path / "home", ingest=ingest) as library:
        build(library, tmp_path, "notes")
        lock = tmp_path / "home" / "locks" / "notes.lock"
        with hold_lock(lock, seconds=0, busy="held"), pytest.raises(StoreBusyError):
            Indexer(library).remove("notes")
        assert search(library, "notes")[0] == "walrus.md"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Payload indexes have no effect in the local Qdrant:UserWarning")
def test_collections_on_a_qdrant_server_are_emptied(tmp_path, monkeypatch):
    with qdrant_protocol(monkeypatch) as server:
        engines = {"vector_engine": "qdrant", "qdrant_url": server.url}
        with open_library(tmp_path / "home", **engines) as library:
            build(library, tmp_path, "kept")
            build(library, tmp_path, "notes")
            assert search(library, "notes")[0] == "walrus.md"
            assert Indexer(library).remove("notes").notes == ()
            there = [one.name for one in server.client.get_collections().collections]
            names = [name for name in there if "notes" in name]
            assert names == []
            assert search(library, "kept")[0] == "walrus.md"
            build(library, tmp_path, "notes")
            assert search(library, "notes")[0] == "walrus.md"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Payload indexes have no effect in the local Qdrant:UserWarning")
def test_remains_on_a_server_are_reported_and_removed_later(tmp_path, monkeypatch):
    monkeypatch.setattr(qdrant, "ATTEMPTS", 1)
    monkeypatch.setattr(qdrant, "REST", 0.0)
    with qdrant_protocol(monkeypatch) as server:
        engines = {"vector_engine": "qdrant", "qdrant_url": server.url}
        with open_library(tmp_path / "home", **engines) as library:
            build(library, tmp_path, "notes")
            for method in ("GET", "POST", "PUT", "DELETE"):
                server.fail(method, "", 503, times=99)
            notes = Indexer(library).remove("notes").notes
            assert [note.startswith("the part on a server stays: ") for note in notes] == [True]
            server.faults.clear()
            wrong = {check.name: check for check in diagnose(library) if not check.ok}
            assert "are left (1): notes" in wrong["removals"].detail
            assert Indexer(library).remove("notes").notes == ()
            there = [one.name for one in server.client.get_collections().collections]
            assert there == []
            assert [check.name for check in diagnose(library) if not check.ok] == []
            with pytest.raises(UnknownDatasetError):
                Indexer(library).remove("notes")


@pytest.mark.parametrize("run", ["update", "build"])
def test_a_run_that_waited_for_the_removal_does_not_bring_it_back(tmp_path, monkeypatch, run):
    hold = Indexer.hold

    @contextmanager
    def removed_before(indexer, dataset, progress):
        with monkeypatch.context() as patch:
            patch.setattr(Indexer, "hold", hold)
            indexer.remove(dataset)
        with hold(indexer, dataset, progress):
            yield

    with open_library(tmp_path / "home") as library:
        build(library, tmp_path, "notes")
        indexer = Indexer(library)
        arguments = ("notes",) if run == "update" else (tmp_path / "notes", "notes")
        with monkeypatch.context() as patch:
            patch.setattr(Indexer, "hold", removed_before)
            with pytest.raises(UnknownDatasetError):
                getattr(indexer, run)(*arguments)
        assert library.datasets() == []


def test_a_rebuild_of_all_leaves_out_what_is_removed_meanwhile(tmp_path, monkeypatch):
    with open_library(tmp_path / "home") as library:
        for name in ("a", "b"):
            build(library, tmp_path, name)
        indexer, build_one = Indexer(library), Indexer.build

        def and_remove_b(self, *arguments, **options):
            report = build_one(self, *arguments, **options)
            self.remove("b")
            return report

        monkeypatch.setattr(Indexer, "build", and_remove_b)
        assert list(indexer.rebuild()) == ["a"]
        assert library.datasets() == ["a"]


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
@pytest.mark.parametrize("place", ["notes", "notes/bm25", "notes/qdrant"])
def test_nothing_is_removed_beyond_a_link(tmp_path, place):
    precious = tmp_path / "precious"
    write(precious, bm25__a_dot_txt="kept", qdrant__b_dot_txt="kept", c_dot_txt="kept")
    with open_library(tmp_path / "home") as library:
        build(library, tmp_path, "notes")
        link = tmp_path / "home" / "indexes" / place
        shutil.rmtree(tmp_path / "home" / "indexes" / "notes")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(precious, target_is_directory=True)
        assert Indexer(library).remove("notes").notes == (
            f"{link} was a link to {precious}: its target stays",
        )
        assert Indexer(library).remove("notes").notes == ()
        assert not link.is_symlink()
    files = sorted(str(one.relative_to(precious)) for one in precious.rglob("*") if one.is_file())
    assert files == ["bm25/a.txt", "c.txt", "qdrant/b.txt"]


def test_a_search_that_goes_on_leaves_no_index_behind(tmp_path):
    with (
        open_qdrant_library(tmp_path / "home") as library,
        open_qdrant_library(tmp_path / "home") as other,
    ):
        build(library, tmp_path, "notes")
        words, vectors = other.indexes.lexical("notes"), other.indexes.vector("notes")
        with other.database.snapshot():
            assert len(words.search("walrus", 5, Restriction("notes"))) == 1  # not saved yet
            Indexer(library).remove("notes")
            words.refresh()
            asked = other.model.embed_query("walrus")
            assert nearest(vectors, other.database, asked, 5, Restriction("notes")) == []
        assert not (tmp_path / "home" / "indexes" / "notes").exists()


def test_what_v1_keeps_goes_and_one_open_index_keeps_no_other(tmp_path):
    with (
        open_qdrant_library(tmp_path / "home") as other,
        open_qdrant_library(tmp_path / "home") as library,
    ):
        build(library, tmp_path, "notes")
        SearchServiceV2(library).search("walrus", dataset="notes", compare_with_v1=True)
        assert (tmp_path / "home" / "v1" / "notes").is_dir()
        library.indexes.vector("notes").close()
        search(other, "notes")
        (note,) = Indexer(library).remove("notes").notes
        assert note.endswith("stays until this is run again")
        assert not (tmp_path / "home" / "v1" / "notes").exists()
        left = [one.name for one in (tmp_path / "home" / "indexes" / "notes").iterdir()]
        assert left == ["qdrant"]
        other.indexes.close()
        with open_library(tmp_path / "home") as exact:  # another engine: what is left is not its
            build(exact, tmp_path, "notes")
            assert search(exact, "notes")[0] == "walrus.md"
        assert not (tmp_path / "home" / "indexes" / "notes" / "qdrant").exists()


@pytest.mark.parametrize("name", ["seal.md", "notes:seal.md", "#docid"])
def test_one_document_is_removed_and_comes_back_while_its_file_is_there(tmp_path, name):
    with open_library(tmp_path / "home") as library:
        build(library, tmp_path, "notes")
        indexer = Indexer(library)
        if name == "#docid":
            found = SearchServiceV2(library).search("seal", dataset="notes", mode="lexical")
            name = f"#{found[0].docid.removeprefix('#')}"
        removal = indexer.remove_document("notes", name)
        assert (removal.documents, removal.chunks) == (1, 1)
        assert "the next update indexes it again" in removal.notes[0]
        for mode in ("lexical", "vector", "hybrid"):
            assert "seal.md" not in search(library, "notes", mode)
        assert [check.name for check in diagnose(library) if not check.ok] == []
        report = indexer.update("notes")
        assert (report.added, report.unchanged) == (1, 1)
        (tmp_path / "notes" / "seal.md").unlink()
        removal = indexer.remove_document("notes", "seal.md")
        assert removal.notes == ()
        assert indexer.update("notes").documents == 1
        with pytest.raises(InputError, match="no document 'walrus"):
            indexer.remove_document("notes", "walrus.mdx")
        with pytest.raises(UnknownDatasetError):
            indexer.remove_document("other", "walrus.md")
