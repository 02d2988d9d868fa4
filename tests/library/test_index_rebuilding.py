"""Indexes are made anew from the store alone."""

import pytest
from sqlalchemy import event

from catalog.core.errors import UnknownDatasetError
from catalog.library.indexing import Indexer, rebuild_indexes
from catalog.search_v2.service import SearchServiceV2
from fakes import WordEncoder, open_library, open_qdrant_library, write


@pytest.fixture
def home(tmp_path):
    """The home of a store of two datasets, whose folders are gone."""
    for name in ("docs", "more"):
        write(tmp_path / name, a_dot_md="# Walrus\n\nA walrus.\n", b_dot_md="# Seal\n\nA seal.\n")
        with open_qdrant_library(tmp_path / "home") as library:
            Indexer(library).build(tmp_path / name, name)
        for file in (tmp_path / name).iterdir():
            file.unlink()
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
        assert done == {"docs": {"lexical": 1, "vectors": 2}, "more": {"lexical": 1, "vectors": 2}}
        assert library.indexes.vector("docs").verify() == 0
        assert library.indexes.lexical("docs").verify() == 0
        found = SearchServiceV2(library).search("walrus", dataset="docs", mode="lexical")
        assert [one.path for one in found] == ["a.md"]
        assert all(stage.status != "failed" for stage in found.stages)


def test_one_kind_of_index_of_one_dataset_can_be_rebuilt(home):
    with open_qdrant_library(home) as library:
        assert rebuild_indexes(library, ["more"], lexical=False) == {"more": {"vectors": 2}}
        assert rebuild_indexes(library, ["more"], vectors=False) == {"more": {"lexical": 1}}
        with pytest.raises(UnknownDatasetError):
            rebuild_indexes(library, ["nope"])


def test_words_are_found_after_the_full_text_in_the_store_was_emptied(home):
    with open_library(home, lexical_engine="fts") as library:
        service = SearchServiceV2(library)
        with library.database.write() as connection:
            connection.exec_driver_sql("INSERT INTO chunks_fts(chunks_fts) VALUES('delete-all')")
        assert len(service.search("walrus", dataset="docs", mode="lexical")) == 0
        rebuild_indexes(library, vectors=False)
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
