"""Removing a dataset: nothing of it is left, and nothing else is touched."""

from itertools import product

import pytest
from sqlalchemy import inspect, text

from catalog.answers.bounds import find_bound, save_bound
from catalog.answers.risk import RiskBound
from catalog.core.errors import InputError, StoreBusyError, UnknownDatasetError
from catalog.library.health import diagnose
from catalog.library.indexes import Indexes
from catalog.library.indexing import Indexer
from catalog.search_v2.balances import find_shift, save_balance
from catalog.search_v2.search_parts import SearchParts
from catalog.search_v2.service import SearchServiceV2
from catalog.store.locks import hold_lock
from catalog.store.schema import metadata
from fakes import open_library, open_qdrant_library, write
from qdrant_protocol import qdrant_protocol

SHARED = "# Seal\n\nA seal swims.\n"
LOCAL = ("exact", "qdrant", "sqlite-vec")


def build(library, folder, name):
    write(
        folder / name, walrus_dot_md=f"# Walrus of {name}\n\nA walrus sleeps.\n", seal_dot_md=SHARED
    )
    Indexer(library).build(folder / name, name)


def search(library, dataset, mode="hybrid"):
    found = SearchServiceV2(library).search("walrus", dataset=dataset, mode=mode)
    assert all(stage.status != "failed" for stage in found.stages)
    return [one.path for one in found]


def rows(library):
    """How many rows each table has that tell of a dataset's content."""
    left = {"meta", "row_numbers", "eval_runs", "query_log", "query_passages"}
    with library.database.read() as connection:
        tables = set(metadata.tables) & set(inspect(connection).get_table_names())
        names = sorted(tables - left)
        counts = {n: connection.scalar(text(f"SELECT count(*) FROM {n}")) for n in names}
    return {name: count for name, count in counts.items() if count and "version" not in name}


def derived(library):
    """How many rows the tables of words and vectors have that have any."""
    with library.database.read() as connection:
        names = set(inspect(connection).get_table_names()) - set(metadata.tables)
        counts = {n: connection.scalar(text(f'SELECT count(*) FROM "{n}"')) for n in names}
    return {name: count for name, count in counts.items() if count and "version" not in name}


@pytest.mark.both_stores
@pytest.mark.parametrize(("words", "vectors"), [*product(("bm25", "fts"), LOCAL)])
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
        assert [("stays" in note) for note in notes] == [True] * (vectors != "exact")
        (tmp_path / "notes" / "walrus.md").write_text("# Whale\n\nA whale and a walrus sing.\n")
        (tmp_path / "notes" / "seal.md").unlink()
        Indexer(library).build(tmp_path / "notes", "notes")
        for each in (library, other):
            assert search(each, "notes") == ["walrus.md"]
            assert search(each, "notes", "vector") == ["walrus.md"]
        assert other.indexes.vector("notes").verify() == 0


def test_what_was_learnt_of_it_is_forgotten(tmp_path):
    with open_library(tmp_path / "home") as library:
        build(library, tmp_path, "notes")
        build(library, tmp_path, "my.notes")
        parts = SearchParts(library)
        signals = parts.signals("hybrid", reranked=False)
        bound = RiskBound(0.5, 0.1, 0.9, 20, 0.8, 0.05)
        for name in ("notes", "my.notes"):
            save_balance(library.database, name, signals, parts.rag, shift=0.1, about="")
            save_bound(library.database, name, bound)
        Indexer(library).remove("notes")
        assert find_shift(library.database, "notes", signals, parts.rag) is None
        assert find_shift(library.database, "my.notes", signals, parts.rag) == 0.1
        assert find_bound(library.database, "notes") is None
        assert find_bound(library.database, "my.notes") == bound


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


def test_tables_of_words_and_vectors_on_a_server_are_emptied(tmp_path, on_postgres):
    engines = {"lexical_engine": "tsvector", "vector_engine": "pgvector"}
    with open_library(tmp_path / "home", **engines) as library:
        build(library, tmp_path, "kept")
        before = derived(library)
        assert len(before) == 5  # words, their counts and vectors, and the store's own full text
        build(library, tmp_path, "notes")
        assert search(library, "notes")[0] == "walrus.md"
        assert sum(derived(library).values()) == 2 * sum(before.values())
        assert Indexer(library).remove("notes").notes == ()
        assert derived(library) == before
        assert search(library, "kept")[0] == "walrus.md"
        build(library, tmp_path, "notes")
        assert search(library, "notes")[0] == "walrus.md"


@pytest.mark.filterwarnings("ignore:Payload indexes have no effect in the local Qdrant:UserWarning")
def test_collections_on_a_qdrant_server_are_emptied(tmp_path, monkeypatch):
    with qdrant_protocol(monkeypatch) as server:
        engines = {"lexical_engine": "qdrant", "vector_engine": "qdrant", "qdrant_url": server.url}
        with open_library(tmp_path / "home", **engines) as library:
            build(library, tmp_path, "kept")
            build(library, tmp_path, "notes")
            assert search(library, "notes")[0] == "walrus.md"
            assert Indexer(library).remove("notes").notes == ()
            there = [one.name for one in server.client.get_collections().collections]
            names = [name for name in there if "notes" in name]
            assert [server.client.count(name).count for name in names] == [0]
            assert search(library, "kept")[0] == "walrus.md"
            build(library, tmp_path, "notes")
            assert search(library, "notes")[0] == "walrus.md"
