"""A store whose vectors are on a Qdrant server: what a search, an update and a check make of it."""

from pathlib import Path

import pytest

from catalog.core.errors import EngineUnreachableError, StageFailedError
from catalog.library.health import diagnose
from catalog.library.indexing import Indexer
from catalog.search_v2.service import SearchServiceV2
from catalog.store.vectors import qdrant
from fakes import open_library, write
from qdrant_protocol import qdrant_protocol

pytestmark = pytest.mark.filterwarnings(
    "ignore:Payload indexes have no effect in the local Qdrant:UserWarning"
)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(qdrant, "ATTEMPTS", 1)
    monkeypatch.setattr(qdrant, "REST", 0.0)
    with qdrant_protocol(monkeypatch) as running:
        yield running


@pytest.fixture
def library(server, tmp_path: Path):
    write(
        tmp_path / "notes",
        keys_dot_md="# Keys\n\nRotate the API keys every ninety days.\n",
        bread_dot_txt="Mix flour, water and yeast. Bake the bread.\n",
    )
    options = {"collection_prefix": "mine."}
    with open_library(
        tmp_path / "home", vector_engine="qdrant", qdrant_url=server.url, qdrant=options
    ) as opened:
        Indexer(opened).build(tmp_path / "notes", "notes")
        yield opened


def statuses(results):
    return {stage.name: stage.status for stage in results.stages}


def go_down(server):
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        server.fail(method, "", 503, times=10_000)


def test_words_answer_while_the_server_is_down_and_the_stages_say_so(server, library):
    service = SearchServiceV2(library)
    assert statuses(service.search("API keys"))["vector"] == "ran"
    go_down(server)
    results = service.search("rotate keys")
    assert [result.path for result in results] == ["keys.md"]
    (failed,) = [stage for stage in results.stages if stage.status == "failed"]
    assert failed.name == "vector"
    assert f"Qdrant at {server.url} failed: 503" in failed.note
    with pytest.raises(StageFailedError, match="503"):
        service.search("rotate the keys", strict=True)
    with pytest.raises(EngineUnreachableError, match="503"):
        service.search("rotate all keys", mode="vector")
    server.faults.clear()
    assert statuses(service.search("rotating of keys"))["vector"] == "ran"


def test_an_update_while_the_server_is_down_is_kept_and_applied_later(server, library, tmp_path):
    go_down(server)
    write(tmp_path / "notes", cheese_dot_txt="Cheese ripens in a cellar.\n")
    report = Indexer(library).update("notes")
    assert report.embedded == 1
    (note,) = [note for note in report.notes if "vector index" in note]
    assert note.startswith("the vector index will be brought up to date later: Qdrant at")
    server.faults.clear()
    found = SearchServiceV2(library).search("a cellar for cheese", mode="vector")
    assert found[0].path == "cheese.txt"
    assert server.client.count("mine.notes").count == 3


@pytest.mark.slow
def test_doctor_reports_whether_the_server_answers(server, library):
    def checks():
        return {check.name: check for check in diagnose(library)}

    sound = checks()
    assert sound["Qdrant server"].ok
    assert f"{server.url}, Qdrant 1.99.0, answers in " in sound["Qdrant server"].detail
    assert sound["notes: vector index"].ok
    go_down(server)
    broken = checks()
    for name in ("Qdrant server", "notes: vector index"):
        assert not broken[name].ok
        assert broken[name].fix == "start the server, or correct IDX_RAG_V2__QDRANT_URL"
    server.faults.clear()
    server.fail("GET", "/collections$", 401, times=99)
    assert checks()["Qdrant server"].fix == "correct IDX_RAG_V2__QDRANT_API_KEY"
