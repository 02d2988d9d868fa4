"""Damage is found, named and never answered from: bytes that changed by themselves.

``IDX_TEST_SEED`` replays one seed; with ``IDX_TEST_CHAOS_SECONDS`` fresh ones are drawn as long.
"""

import os
import shutil
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path

import pytest
from sqlalchemy import event

from catalog.core.errors import StoreBusyError, StoreDamagedError
from catalog.library.browse import DocumentCatalog
from catalog.library.get import find_document
from catalog.library.health import dataset_stats, diagnose, stored_dataset
from catalog.library.indexing import Indexer
from catalog.search_v2.service import SearchServiceV2
from catalog.store import Database
from catalog.store.database import WRITE
from fakes import open_qdrant_library, write
from tables import read_cases

PATHS = ("bread.md", "fox.md", "keys.md")
QUERIES = ("rotate the signing keys", "bake bread with yeast", "the brown fox")


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    """A home of three documents with all its indexes, closed; and what it answers."""
    folder = tmp_path_factory.mktemp("sound")
    write(
        folder / "docs",
        keys_dot_md="# Keys\n\nRotate the signing keys each spring.\n\n## Where\n\nIn the safe.\n",
        bread_dot_md="# Bread\n\nBake bread with flour, water and yeast.\n",
        fox_dot_md="# Fox\n\nThe quick brown fox jumps over the lazy dog.\n",
    )
    with open_qdrant_library(folder / "home") as library:
        Indexer(library).build(folder / "docs", "d")
        answers(library)
    return folder / "home"


def answers(library) -> list[object]:
    """What every verb answers; raises a typed error, also where a stage says one failed."""
    service, catalog = SearchServiceV2(library), DocumentCatalog(library)
    found: list[object] = []
    for query in QUERIES:
        for mode in ("lexical", "vector", "hybrid"):
            page = service.search(query, dataset="d", mode=mode, strict=True)
            found.append([(result.path, result.title, result.text) for result in page])
    for query in ("bread", None):
        page = catalog.query(query=query, dataset="d")
        found.append([page.to_dict() | {"elapsed_ms": 0}])
    found.append([find_document(library.database, path, dataset="d").to_dict() for path in PATHS])
    found.append(asdict(dataset_stats(library, "d")) | {"database_bytes": 0})
    return found


@pytest.mark.parametrize("content", ["[" * 100_000, '{"stamp": [Infinity, 1e999, 0]}', "9" * 5_000])
def test_invalid_state_files_are_written_again(sound, tmp_path, content):
    home = shutil.copytree(sound, tmp_path / "home")
    for name in ("bm25/words.index", "qdrant/state.json"):
        for file in home.glob(f"indexes/d/{name}"):
            file.write_text(content)
    with open_qdrant_library(home) as library:
        assert all(len(found) > 0 for found in answers(library))
        diagnose(library)  # tells of the lexical index and makes it anew
        assert [check for check in diagnose(library) if not check.ok] == []


@pytest.mark.parametrize("content", [b"", b"garbage" * 1000])
def test_an_empty_file_where_a_store_was_is_damage(sound, tmp_path, content):
    home = shutil.copytree(sound, tmp_path / "home")
    (home / "catalog.db").write_bytes(content)
    with pytest.raises(StoreDamagedError, match="catalog restore"):
        Database.at(home)


PLANTED = read_cases(__file__)["planted"]


@pytest.mark.parametrize("statement", PLANTED)
def test_doctor_finds_planted_damage_and_what_it_names_mends_it(sound, tmp_path, statement):
    home = shutil.copytree(sound, tmp_path / "home")
    with open_qdrant_library(home) as library:
        with library.database.write() as connection:
            assert connection.exec_driver_sql(statement).rowcount > 0
        failed = [check for check in diagnose(library) if not check.ok]
        assert failed != []
        assert any("--reread" in check.fix for check in failed)
        Indexer(library).update("d", reread=True)
        assert [check for check in diagnose(library) if not check.ok] == []


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["qdrant", "flat"])
def test_vectors_that_reread_takes_from_other_datasets_are_waited_for_there(tmp_path, engine):
    for name in ("one", "two"):
        write(tmp_path / name, **{f"{n}_dot_md": f"# {n}\n\n{name} walrus {n}." for n in range(4)})
    with open_qdrant_library(tmp_path / "home", vector_engine=engine) as library:
        for name in ("one", "two"):
            Indexer(library).build(tmp_path / name, name)
        of_two = (
            "SELECT embed_key FROM chunk_windows JOIN chunks USING (seq) WHERE dataset = 'two' "
            "ORDER BY seq LIMIT 2"
        )
        with library.database.write() as connection:
            connection.exec_driver_sql(
                f"UPDATE embeddings SET vector = zeroblob(256) WHERE embed_key IN ({of_two})"
            )
        Indexer(library).update("one", reread=True)
    shutil.rmtree(tmp_path / "home" / "indexes")
    with open_qdrant_library(tmp_path / "home", vector_engine=engine) as library:
        service = SearchServiceV2(library)
        results = service.search("walrus", dataset="two", mode="vector", top_k=20)
        assert results.notes[0].startswith("by meaning: 50 %")
        failed = [check for check in diagnose(library) if not check.ok]
        assert [check.fix for check in failed] == ["catalog index update --dataset two"]
        Indexer(library).update("two")
        whole = service.search("walrus", dataset="two", mode="vector", top_k=20)
        assert (len(whole), whole.notes) == (4, ())
        assert [check for check in diagnose(library) if not check.ok] == []


def test_doctor_names_what_mends_rows_without_an_owner(sound, tmp_path):
    home = shutil.copytree(sound, tmp_path / "home")
    with open_qdrant_library(home) as library:
        with closing(sqlite3.connect(home / "catalog.db", isolation_level=None)) as connection:
            assert connection.execute("UPDATE documents SET dataset = 'e' WHERE id = 1").rowcount
        failed = {check.name: check.fix for check in diagnose(library) if not check.ok}
        assert failed["database"].startswith("catalog restore FILE")


@pytest.mark.parametrize("engine", ["flat", "qdrant"])
def test_one_damaged_vector_is_left_out_and_its_document_named(sound, tmp_path, engine):
    home = shutil.copytree(sound, tmp_path / "home")
    shutil.rmtree(home / "indexes")
    with open_qdrant_library(home, vector_engine=engine) as library:
        with library.database.write() as connection:
            connection.exec_driver_sql(_DAMAGE_A_VECTOR)
        service = SearchServiceV2(library)
        page = service.search("rotate the signing keys", dataset="d", mode="vector")
        assert {result.path for result in page.results} == {"keys.md", "fox.md"}
        notes = [stage.note for stage in page.stages if stage.status == "failed"]
        assert ["bread.md" in note for note in notes] == [True]
        assert ["d:bread.md: a vector is damaged" in note for note in page.notes] == [True]
        scoped = service.search("keys", dataset="d", mode="vector", docs=("keys.md",))
        assert "bread.md" not in str(scoped.to_dict())


def test_a_damaged_passage_is_named_in_the_notes_of_a_search(sound, tmp_path):
    with open_qdrant_library(shutil.copytree(sound, tmp_path / "home")) as library:
        service = SearchServiceV2(library)
        assert service.search("keys", dataset="d", mode="lexical").notes == ()
        with library.database.write() as connection:
            connection.exec_driver_sql("UPDATE chunks SET page = 7")
        page = service.search("bake bread keys fox", dataset="d", mode="lexical")
    assert (len(page), len(page.notes)) == (0, 3)
    assert {note.partition(":")[2].partition(" is damaged")[0] for note in page.notes} == {
        f"{path}: a passage" for path in PATHS
    }


_DAMAGE_A_VECTOR = """
    UPDATE embeddings SET vector = zeroblob(256) WHERE embed_key IN (
        SELECT embed_key FROM chunk_windows JOIN chunks USING (seq)
        WHERE document_id = (SELECT id FROM documents WHERE path = 'bread.md'))
"""


def test_doctor_reports_a_damaged_file_of_the_lexical_index(sound, tmp_path):
    home = shutil.copytree(sound, tmp_path / "home")
    file = next(home.glob("indexes/d/bm25/words.index"))
    content = bytearray(file.read_bytes())
    content[content.index(b"NUMPY")] ^= 1  # the first array
    file.write_bytes(content)
    with open_qdrant_library(home) as library:
        assert [check.name for check in diagnose(library) if not check.ok] == ["d: lexical index"]
        assert [check for check in diagnose(library) if not check.ok] == []


UNLOADABLE = (
    lambda index: (index / "state.json").write_text("{"),
    lambda index: (index / "shard/edge_config.json").write_text("nonsense"),
    lambda index: [os.truncate(file, 3) for file in index.glob("shard/segments/*/*.mappings")],
)


@pytest.mark.parametrize("damage", UNLOADABLE)
def test_a_vector_index_that_cannot_be_loaded_is_filled_again(sound, tmp_path, damage):
    home = shutil.copytree(sound, tmp_path / "home")
    (index,) = home.glob("indexes/d/qdrant*")
    with open_qdrant_library(home) as library:
        expected = found(library)
    damage(index)
    with open_qdrant_library(home) as library:
        assert found(library) == expected
        assert [check for check in diagnose(library) if not check.ok] == []


def found(library):
    results = SearchServiceV2(library).search("bread", dataset="d", mode="vector")
    assert [stage.status for stage in results.stages if stage.name == "vector"] == ["ran"]
    assert len(results) > 0
    return [(one.chunk_id, one.score) for one in results]


def test_while_a_disk_takes_long_to_commit_readers_answer_and_a_writer_is_told(sound, tmp_path):
    home = shutil.copytree(sound, tmp_path / "home")
    is_committing, may_go_on = threading.Event(), threading.Event()

    def take_long(connection):
        if connection.get_execution_options().get(WRITE) and not is_committing.is_set():
            is_committing.set()
            assert may_go_on.wait(120)

    with (
        ThreadPoolExecutor(1) as pool,
        open_qdrant_library(home, vector_engine="flat") as reader,
        open_qdrant_library(home) as writer,
    ):
        root = Path(stored_dataset(writer, "d").root)
        expected = answers(reader)
        write(root, bread_dot_md="# Bread\n\nBake bread with rye.\n")
        event.listen(writer.database.engine, "commit", take_long)
        update = pool.submit(Indexer(writer).update, "d")
        try:
            assert is_committing.wait(120)
            assert answers(reader) == expected
            with (
                pytest.raises(StoreBusyError, match="another process"),
                reader.database.write(wait=False),
            ):
                pass
        finally:
            may_go_on.set()
        assert update.result(120).updated == 1
        page = SearchServiceV2(reader).search("bread", dataset="d", mode="lexical")
        assert ["rye" in result.text for result in page] == [True]
        assert [check for check in diagnose(writer) if not check.ok] == []
    write(root, bread_dot_md="# Bread\n\nBake bread with flour, water and yeast.\n")


@pytest.mark.parametrize("value", ["{", "[]", '{"\x00": 1', '{"useless": {"a": 1}}', "9" * 5_000])
def test_a_damaged_note_on_a_dataset_is_a_typed_error_or_is_not_used(sound, tmp_path, value):
    home = shutil.copytree(sound, tmp_path / "home")
    with open_qdrant_library(home) as library:
        service = SearchServiceV2(library)
        model = library.wanted_model.fingerprint
        for key in ("agreement:d", f"calibration:{model}", "answers:d"):
            library.database.set_meta(key, value)
        for call in (
            lambda: service.search("bread", dataset="d"),
            lambda: Indexer(library).update("d"),
        ):
            with suppress(StoreDamagedError):
                call()
