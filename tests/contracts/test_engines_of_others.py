"""An engine of somebody else's package is found by its name in the settings."""

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog.core import entry_points
from catalog.core.errors import ConfigError
from catalog.core.settings import RAGv2Settings, load_settings
from catalog.library.indexing import Indexer
from catalog.search_v2.service import SearchServiceV2
from fakes import open_library

MODULE = """
from catalog.store.lexical.fts import FtsEngine
from catalog.store.vectors.flat import FlatEngine


class ToyWords(FtsEngine):
    name = "toy"

    def refresh(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "words").touch()


class ToyVectors(FlatEngine):
    name = "toy-vectors"


def open_words(setup):
    made = ToyWords(setup.database, setup.dataset)
    made.folder = setup.folder
    return made


def open_vectors(setup):
    assert setup.dim > 0 and setup.fingerprint
    return ToyVectors(setup)
"""
ENTRY_POINTS = """
[catalog.lexical]
toy = toy_engines:open_words
bm25 = toy_engines:open_words
broken = toy_engines:absent
[catalog.vectors]
toy-vectors = toy_engines:open_vectors
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A distribution with engines, as an installer leaves it."""
    site = tmp_path / "site"
    about = site / "toy_engines-1.0.dist-info"
    about.mkdir(parents=True)
    (site / "toy_engines.py").write_text(MODULE)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-engines\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(site)
    entry_points.list_added.cache_clear()
    yield
    entry_points.list_added.cache_clear()


def test_our_entry_points_are_those_of_the_table() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    declared = tomllib.loads(text)["project"]["entry-points"]
    assert {group: declared[group] for group in entry_points.OURS} == entry_points.OURS
    for group, engines in entry_points.OURS.items():
        assert all(callable(entry_points.load_engine(group, name)) for name in engines)


@pytest.mark.slow
def test_a_search_runs_with_the_engines_of_another_package(
    installed: None, tmp_path: Path, notes: Path
) -> None:
    told = {"lexical_engine": "toy", "vector_engine": "toy-vectors"}
    with open_library(tmp_path / "home", **told) as library:
        Indexer(library).build(notes, "notes")
        folder = library.indexes.folder("notes") / "toy"
        assert (folder / "words").is_file()
        found = SearchServiceV2(library).search("rotate the keys", dataset="notes")
        assert len(found) > 0
        told = " ".join(stage.note for stage in found.stages)
        assert "toy: " in told
        assert "toy-vectors: " in told
        Indexer(library).remove("notes")
        assert not folder.exists()


def test_a_name_of_ours_is_not_taken_and_no_package_is_looked_at(
    installed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: pytest.fail("read"))
    for group, engines in entry_points.OURS.items():
        for name, target in engines.items():
            assert entry_points.find_engine(group, name).value == target


def test_an_unknown_name_is_refused_with_ours_and_those_of_packages(installed: None) -> None:
    known = r"unknown keyword engine 'whoosh'; engines: bm25, fts, broken, toy;"
    with pytest.raises(ConfigError, match=known):
        entry_points.find_engine("catalog.lexical", "whoosh")
    with pytest.raises(ConfigError, match=known):
        load_settings(overrides={"rag_v2": {"lexical_engine": "whoosh"}})
    with pytest.raises(ConfigError, match="unknown vector engine 'faiss'"):
        RAGv2Settings(vector_engine="faiss")


def test_an_entry_point_that_names_nothing_is_reported(installed: None) -> None:
    with pytest.raises(ConfigError, match="'broken'"):
        entry_points.load_engine("catalog.lexical", "broken")
