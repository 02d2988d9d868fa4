"""An index that cannot be used now: the engine flat answers, and the stage says why."""

import pytest

from catalog.core.errors import EngineBlockedError, EngineError, EngineLockedError
from catalog.library.indexing import Indexer
from catalog.search_v2.service import SearchServiceV2
from catalog.store.vectors.qdrant_edge import QdrantEdgeEngine
from fakes import open_qdrant_library, write


@pytest.fixture
def library(tmp_path):
    write(tmp_path / "notes", a_dot_md="A walrus sings.", b_dot_md="An otter swims.")
    with open_qdrant_library(tmp_path / "home") as opened:
        Indexer(opened).build(tmp_path / "notes", "notes")
        yield opened


def failing_with(monkeypatch, error):
    def fails(*_given):
        raise error

    monkeypatch.setattr(QdrantEdgeEngine, "follow", fails)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (EngineLockedError("held"), "the index is open elsewhere"),
        (EngineBlockedError("the disk is full"), "the disk is full"),
    ],
)
def test_the_stored_vectors_are_searched_instead(library, monkeypatch, error, why):
    service = SearchServiceV2(library)
    plain = service.search("walrus", dataset="notes", mode="vector")
    failing_with(monkeypatch, error)
    answer = service.search("walrus", dataset="notes", mode="vector")
    assert [one.chunk_id for one in answer] == [one.chunk_id for one in plain]
    (stage,) = (one for one in answer.stages if one.name == "vector")
    note = f"flat: 2 hits; {why}, so vectors were compared one by one"
    assert (stage.status, note in stage.note) == ("ran", True)


def test_a_broken_index_is_a_failed_leg(library, monkeypatch):
    failing_with(monkeypatch, EngineError("it is broken"))
    answer = SearchServiceV2(library).search("walrus", dataset="notes")
    (stage,) = (one for one in answer.stages if one.name == "vector")
    assert (stage.status, stage.note) == ("failed", "EngineError: it is broken")
