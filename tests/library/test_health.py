"""What the checks of a store find, and the fix they name; indexes made anew from the store."""

import errno
import os
import shutil
from contextlib import contextmanager

import pytest
from filelock import FileLock
from sqlalchemy import event

from catalog.core.errors import EngineBlockedError, EngineError
from catalog.library.health import diagnose
from catalog.library.indexing import Indexer, rebuild_indexes
from catalog.search_v2.service import SearchServiceV2
from catalog.store.database import POINTS_LOCK
from catalog.store.lexical.bm25 import Bm25Engine
from catalog.store.vectors.qdrant_edge import QdrantEdgeEngine
from fakes import WordEncoder, open_library, open_qdrant_library, write
from stores import open_store


@pytest.fixture
def library(tmp_path):
    files = {"d/a.md": "# Bread\n\nFlour, water and yeast.\n"}
    with open_store(files, tmp_path, vector_engine="qdrant") as library:
        yield library


def failing(monkeypatch, engine, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(engine, "refresh", fail)


def found(library, name):
    return next(check for check in diagnose(library) if check.name == name)


def caused(code):
    error = EngineError("cannot write the index")
    error.__cause__ = OSError(code, os.strerror(code))
    return error


def test_a_sound_store_needs_nothing(library):
    assert [(check.ok, check.fix) for check in diagnose(library)] == [(True, "")] * 12


def test_for_want_of_room_or_rights_the_fix_is_not_to_try_again(library, monkeypatch):
    failing(monkeypatch, Bm25Engine, caused(errno.ENOSPC))
    told = EngineError("the vector index cannot open: Permission denied (os error 13)")
    failing(monkeypatch, QdrantEdgeEngine, told)
    place = library.indexes.folder("d")
    assert found(library, "d: lexical index").fix == (
        f"free some space on the disk of {place / 'bm25'}"
    )
    fix = found(library, "d: vector index").fix
    assert fix == f"let this user read and write {place / 'qdrant'}"


def test_a_blocked_index_is_mended_before_it_is_updated(library, monkeypatch):
    failing(monkeypatch, QdrantEdgeEngine, EngineBlockedError("the disk has 0 MB left: make room"))
    fix = found(library, "d: vector index").fix
    assert fix == "solve this first, then catalog index update --dataset d"
    failing(monkeypatch, Bm25Engine, caused(errno.EIO))  # damage
    assert found(library, "d: lexical index").fix == "catalog index update --dataset d"


def test_an_index_that_a_server_holds_is_no_defect(library):
    SearchServiceV2(library).search("bread")
    home = library.settings.home
    library.close()
    [lock] = (home / "indexes").rglob(POINTS_LOCK)
    with FileLock(lock), open_qdrant_library(home) as other:
        check = found(other, "d: vector index")
    assert (check.ok, check.fix) == (True, "")
    assert check.detail.startswith("not checked: another process")


@pytest.fixture
def home(tmp_path):
    """The home of a store of two datasets, whose folders are gone."""
    texts = {"a.md": "# Walrus\n\nA walrus.\n", "b.md": "# Seal\n\nA seal.\n"}
    files = {f"{name}/{file}": texts[file] for name in ("docs", "more") for file in texts}
    open_store(files, tmp_path, vector_engine="qdrant").close()
    for name in ("docs", "more"):
        shutil.rmtree(tmp_path / name)
    return tmp_path / "home"


def damage(folder):
    files = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size]
    for file in files:
        file.write_bytes(b"\0" * 10)
    return len(files)


def test_damaged_indexes_are_rebuilt_without_a_folder_or_model(home):
    assert damage(home / "indexes" / "docs") > 1
    encoder = WordEncoder()
    encoder.down = True
    with open_qdrant_library(home, encoder) as library:
        done = rebuild_indexes(library)
        assert done == {"docs": 2, "more": 2}
        assert library.indexes.vector("docs").verify() == 0
        assert library.indexes.lexical("docs").verify() == 0
        found = SearchServiceV2(library).search("walrus", dataset="docs", mode="lexical")
        assert [one.path for one in found] == ["a.md"]
        assert all(stage.status != "failed" for stage in found.stages)


def test_a_dataset_removed_while_its_rebuild_waited_gets_no_folder_again(home, monkeypatch):
    with open_qdrant_library(home) as library:
        hold = Indexer.hold

        @contextmanager
        def hold_late(indexer, dataset, progress):
            if dataset == "more":
                monkeypatch.undo()
                indexer.remove(dataset)
            with hold(indexer, dataset, progress):
                yield

        monkeypatch.setattr(Indexer, "hold", hold_late)
        assert list(rebuild_indexes(library)) == ["docs"]
    assert not (home / "indexes" / "more").exists()


def test_words_are_found_after_the_full_text_in_the_store_was_emptied(home):
    with open_library(home, lexical_engine="fts") as library:
        service = SearchServiceV2(library)
        with library.database.write() as connection:
            connection.exec_driver_sql("INSERT INTO chunks_fts(chunks_fts) VALUES('delete-all')")
        assert len(service.search("walrus", dataset="docs", mode="lexical")) == 0
        rebuild_indexes(library)
        assert len(service.search("walrus", dataset="docs", mode="lexical")) == 1


def test_an_update_asks_the_store_few_things(tmp_path):
    notes = {f"n{number}_dot_md": f"# Note {number}\n\nWalrus {number}." for number in range(12)}
    write(tmp_path / "notes", **notes)
    statements = []
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(tmp_path / "notes", "notes")
        engine = library.database.engine
        event.listen(engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
        assert Indexer(library).update("notes").unchanged == 12
        assert len(statements) <= 15
        write(tmp_path / "notes", n3_dot_md="# Note 3\n\nAn otter.")
        statements.clear()
        assert Indexer(library).update("notes").updated == 1
        assert len(statements) <= 40
        first = SearchServiceV2(library).search("otter", dataset="notes")[0]
        assert first.path == "n3.md"  # found at once
