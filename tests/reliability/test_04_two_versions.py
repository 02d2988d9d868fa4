"""Two versions of the software on one store: what a newer one made is left alone."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from catalog.core.errors import CatalogError, StoreError
from catalog.library.indexing import Indexer
from catalog.search_v2.service import SearchServiceV2
from fakes import open_library, write


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("versions")
    write(
        folder / "docs",
        keys_dot_md="# Keys\n\nRotate the signing keys each spring.\n\n## Where\n\nIn the safe.\n",
        bread_dot_md="# Bread\n\nBake bread with flour, water and yeast.\n",
    )
    with open_library(folder / "home") as library:
        Indexer(library).build(folder / "docs", "d")
        answers(library)
    return folder / "home"


def answers(library) -> list[tuple[str, str, float]]:
    service = SearchServiceV2(library)
    return [
        (result.path, result.text, round(result.score, 6))
        for query in ("signing keys", "bread")
        for mode in ("lexical", "vector", "hybrid")
        for result in service.search(query, dataset="d", mode=mode, strict=True)
    ]


def change(home: Path, *statements: str) -> None:
    with closing(sqlite3.connect(home / "catalog.db")) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def set_version(version: str) -> str:
    return f"UPDATE meta SET value = '{version}' WHERE key = 'schema'"


def test_a_store_of_a_newer_release_is_refused_and_not_touched(sound, tmp_path):
    home = shutil.copytree(sound, tmp_path / "home")
    change(home, set_version("9999"))
    before = (home / "catalog.db").read_bytes()
    for _ in range(2):
        with pytest.raises(StoreError, match="9999"):
            open_library(home)
    assert (home / "catalog.db").read_bytes() == before


def test_a_process_goes_on_while_a_newer_release_brings_up_its_store(sound, tmp_path):
    """What an upgrade adds is unknown to it, and nothing it knows is gone."""
    home = shutil.copytree(sound, tmp_path / "home")
    with open_library(home) as library:
        expected = answers(library)
        change(home, "ALTER TABLE chunks ADD COLUMN later TEXT", set_version("9999"))
        assert answers(library) == expected
        assert Indexer(library).update("d").failed == ()
        assert answers(library) == expected
    with pytest.raises(StoreError):
        open_library(home)


CHANGED = {
    "other sizes of chunks": {"chunk_size": 200, "chunk_overlap": 20, "chunk_min_size": 40},
    "the full-text engine": {"lexical_engine": "fts"},
    "the engine flat": {"vector_engine": "flat"},
    "another fusion": {"fusion_mode": "relative_score"},
}


@pytest.mark.parametrize("name", CHANGED)
def test_changed_settings_give_right_answers_or_an_error_of_ours(sound, tmp_path, name):
    home = shutil.copytree(sound, tmp_path / "home")
    for rag in (CHANGED[name], {}):
        with open_library(home, **rag) as library:
            for step in (answers, lambda opened: Indexer(opened).update("d"), answers):
                try:
                    found = step(library)
                except CatalogError:
                    continue
                if isinstance(found, list):
                    assert {path for path, _, _ in found} == {"keys.md", "bread.md"}
