"""Indexes are derived: lost, of an older copy's future, or emptied by another, they come back."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from catalog.core.errors import InputError, StoreBusyError, StoreDamagedError
from catalog.library.indexing import Indexer
from catalog.search_v2.service import SearchServiceV2
from catalog.store.backup import back_up, restore
from catalog.store.database import hold_lock
from fakes import WordEncoder, open_qdrant_library, write
from vector_bench import Bench, bench, everything, paths_of, vector

QUERIES = ("alpha report", "beta notes", "gamma", "who keeps the keys of the tower")
MODES = ("hybrid", "lexical", "vector")
ENGINES = ("qdrant", "flat")


def texts(step: int) -> dict[str, str]:
    """The folder after that many updates: files are edited, added and deleted."""
    names = ("alpha", "beta", "gamma", "delta", "tower")
    return {
        f"{name}_dot_md": f"# {name}\n\n{name} report of version {min(step, number)}. "
        f"Who keeps the keys of the {name}?\n\n" + f"More notes on {name}. " * number
        for number, name in enumerate(names)
        if (number + step) % 5 != 4
    }


def update(home: Path, folder: Path, step: int, **rag) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    write(folder, **texts(step))
    with open_qdrant_library(home, **rag) as library:
        Indexer(library).build(folder, "notes", allow_deletions=True)


def copy_store(home: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    with (
        closing(sqlite3.connect(home / "catalog.db")) as source,
        closing(sqlite3.connect(to)) as target,
    ):
        source.backup(target)


def put_back(copy: Path, home: Path) -> None:
    for name in ("catalog.db-wal", "catalog.db-shm"):
        (home / name).unlink(missing_ok=True)
    shutil.copy(copy, home / "new.db")
    (home / "new.db").replace(home / "catalog.db")


def answers(service: SearchServiceV2) -> dict[tuple[str, str], list[tuple[str, str, float]]]:
    return {
        (query, mode): [
            (hit.path, hit.text, round(hit.score, 6))
            for hit in service.search(query, dataset="notes", mode=mode, top_k=30)
        ]
        for query in QUERIES
        for mode in MODES
    }


def answers_of(home: Path, **rag) -> dict[tuple[str, str], list[tuple[str, str, float]]]:
    with open_qdrant_library(home, **rag) as library:
        return answers(SearchServiceV2(library))


def fresh_answers(copy: Path, home: Path, **rag):
    """What this copy of the store answers where no index was ever made."""
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    shutil.copy(copy, home / "catalog.db")
    return answers_of(home, **rag)


def test_deleted_indexes_come_back_the_same_and_nothing_is_embedded(tmp_path):
    home = tmp_path / "home"
    update(home, tmp_path / "notes", 1)
    before = answers_of(home)
    shutil.rmtree(home / "indexes")
    encoder = WordEncoder()
    with open_qdrant_library(home, encoder) as library:
        assert answers(SearchServiceV2(library)) == before
    assert set(encoder.texts) <= set(QUERIES)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_an_older_copy_answers_as_if_its_future_had_not_been(tmp_path, engine):
    home, folder = tmp_path / "home", tmp_path / "notes"
    for step in range(3):
        update(home, folder, step, vector_engine=engine)
        copy_store(home, tmp_path / f"{step}.db")
    answers_of(home, vector_engine=engine)
    for step in (1, 0):
        copy = tmp_path / f"{step}.db"
        expected = fresh_answers(copy, tmp_path / "fresh", vector_engine=engine)
        put_back(copy, home)
        assert answers_of(home, vector_engine=engine) == expected, f"step {step}"


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_an_older_copy_may_have_another_future_with_as_many_changes(tmp_path, engine):
    home, folder = tmp_path / "home", tmp_path / "notes"
    update(home, folder, 0, vector_engine=engine)
    copy_store(home, tmp_path / "copy.db")
    update(home, folder, 1, vector_engine=engine)
    answers_of(home, vector_engine=engine)
    put_back(tmp_path / "copy.db", home)
    update(home, folder, 4, vector_engine="flat")
    copy_store(home, tmp_path / "now.db")
    expected = fresh_answers(tmp_path / "now.db", tmp_path / "fresh", vector_engine=engine)
    assert answers_of(home, vector_engine=engine) == expected


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_an_open_library_follows_a_copy_that_is_put_back_under_it(tmp_path, engine):
    home, folder = tmp_path / "home", tmp_path / "notes"
    for step in range(3):
        update(home, folder, step, vector_engine=engine)
        copy_store(home, tmp_path / f"{step}.db")
    with open_qdrant_library(home, vector_engine=engine) as library:
        service = SearchServiceV2(library)
        for step in (0, 2):
            copy = tmp_path / f"{step}.db"
            expected = fresh_answers(copy, tmp_path / "fresh", vector_engine=engine)
            put_back(copy, home)
            assert answers(service) == expected, f"step {step}"


def test_a_copy_with_changes_still_to_apply_keeps_an_index_that_applied_no_other_changes(tmp_path):
    with bench(tmp_path, "qdrant-edge") as desk:
        desk.put("a.md", vector(1))
        first = desk.engine()
        first.refresh()
        desk.put("b.md", vector(0, 1))
        copy_store(desk.folder, tmp_path / "copy.db")
        desk.put("c.md", vector(0, 0, 1))
        first.refresh()
        first.close()
        desk.database.close()
        put_back(tmp_path / "copy.db", desk.folder)
        desk.put("d.md", vector(0, 0, 0, 1))  # takes the numbers that c.md had
        assert paths(desk, desk.engine()) == ["a.md", "b.md", "d.md"]


def paths(desk: Bench, engine) -> list[str]:
    hits = desk.search(engine, vector(1, 1, 1, 1), 20, everything())
    return sorted(paths_of(desk.database, [hit.seq for hit in hits]))


@pytest.mark.slow
def test_a_backup_is_one_state_while_others_write_and_a_restore_brings_it_back(tmp_path):
    home, folder, copy = tmp_path / "home", tmp_path / "notes", tmp_path / "copy.db"
    update(home, folder, 0)
    with open_qdrant_library(home) as library:
        service = SearchServiceV2(library)
        expected = answers(service)
        documents = len(service.search("report", dataset="notes", top_k=30))
        with library.database.write():  # a writer's transaction neither waits nor is copied
            assert back_up(home / "catalog.db", copy) == copy.stat().st_size
        update(home, folder, 3)
        changed = answers(service)
        assert changed != expected
        kept = restore(copy, home / "catalog.db", locks=home / "locks")
        assert answers(service) == expected  # the library was open all the time
        assert len(service.search("report", dataset="notes", top_k=30)) == documents
    assert answers_of(home) == expected
    assert copy.stat().st_mode & 0o077 == 0
    with pytest.raises(InputError, match="--force"):  # what is kept is not dropped unasked
        restore(copy, home / "catalog.db", locks=home / "locks")
    (tmp_path / "kept.db").write_bytes(kept.read_bytes())
    restore(tmp_path / "kept.db", home / "catalog.db", locks=home / "locks", force=True)
    assert answers_of(home) == changed


def test_a_restore_leaves_nothing_beside_the_copy(tmp_path):
    home, copy = tmp_path / "home", tmp_path / "copies" / "copy.db"
    copy.parent.mkdir()
    update(home, tmp_path / "notes", 0)
    back_up(home / "catalog.db", copy)
    restore(copy, home / "catalog.db", locks=home / "locks")
    assert list(copy.parent.iterdir()) == [copy]


def test_the_first_build_of_a_dataset_waits_for_a_restore(tmp_path, monkeypatch):
    home, folder, copy = tmp_path / "home", tmp_path / "notes", tmp_path / "copy.db"
    update(home, folder, 0)
    back_up(home / "catalog.db", copy)
    refused = []

    def back_up_beside_a_build(*given, **more):
        with open_qdrant_library(home, ingest={"lock_seconds": 0}) as library:
            with pytest.raises(StoreBusyError, match="a copy is being restored"):
                Indexer(library).build(folder, "new")
            refused.append("new")
        return back_up(*given, **more)

    monkeypatch.setattr("catalog.store.backup.back_up", back_up_beside_a_build)
    restore(copy, home / "catalog.db", locks=home / "locks")
    assert refused == ["new"]
    with open_qdrant_library(home) as library:
        assert Indexer(library).build(folder, "new").documents > 0


def test_a_damaged_store_is_moved_aside_by_a_restore(tmp_path):
    home, copy = tmp_path / "home", tmp_path / "copy.db"
    update(home, tmp_path / "notes", 0)
    expected = answers_of(home)
    back_up(home / "catalog.db", copy)
    (home / "catalog.db").write_bytes(b"not a database" * 1000)
    with pytest.raises(StoreDamagedError):
        back_up(home / "catalog.db", tmp_path / "other.db")
    kept = restore(copy, home / "catalog.db", locks=home / "locks")
    assert kept.read_bytes().startswith(b"not a database")
    assert answers_of(home) == expected
    assert sorted(path.name for path in home.iterdir() if path.name.startswith(".")) == []


def test_restore_accepts_only_an_undamaged_store_and_only_without_a_running_update(tmp_path):
    home, copy = tmp_path / "home", tmp_path / "copy.db"
    update(home, tmp_path / "notes", 0)
    back_up(home / "catalog.db", copy)
    before = (home / "catalog.db").read_bytes()
    with pytest.raises(InputError, match="--force"):
        back_up(home / "catalog.db", copy)
    with pytest.raises(InputError, match="the store itself"):  # never over the store itself
        back_up(home / "catalog.db", home / "catalog.db", force=True)
    whole = copy.read_bytes()
    for bad in (b"", b"x" * 5000, whole[: len(whole) // 2]):
        (tmp_path / "bad.db").write_bytes(bad)
        with pytest.raises((InputError, StoreDamagedError)):
            restore(tmp_path / "bad.db", home / "catalog.db", locks=home / "locks")
    with closing(sqlite3.connect(tmp_path / "foreign.db")) as foreign:
        foreign.execute("CREATE TABLE meta(key, value)")
    with pytest.raises(InputError, match="not a store"):
        restore(tmp_path / "foreign.db", home / "catalog.db", locks=home / "locks")
    with (
        hold_lock(home / "locks" / "notes.lock", seconds=0, busy="taken"),
        pytest.raises(StoreBusyError, match="updated"),
    ):
        restore(copy, home / "catalog.db", locks=home / "locks")
    assert (home / "catalog.db").read_bytes() == before
    assert not (home / "catalog.db.before-restore").exists()
