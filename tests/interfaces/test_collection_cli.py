"""``catalog collection``: a collection of others on the command line."""

import json

import pytest

from catalog.embedding.model import EmbeddingModel
from fakes import WordEncoder
from foreign_collection import NAME, PASSAGES, fill
from qdrant_protocol import qdrant_protocol


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(
        "catalog.search_v2.collections.get_model", lambda *_, **__: EmbeddingModel(WordEncoder())
    )
    with qdrant_protocol(monkeypatch) as running:
        fill(running.client)
        monkeypatch.setenv("IDX_COLLECTION__URL", running.url)
        monkeypatch.setenv("IDX_COLLECTION__NAME", NAME)
        yield running


def test_a_search_prints_passages_with_their_source_and_needs_no_store(catalog, server):
    arguments = ("collection", "search", "a lidar sensor", "--filter", "page_title=digital twin")
    code, out, err = catalog(*arguments, "-k", "1")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].startswith(
        "[1] Digital Twin, Sensor simulation (https://book.example/gazebo)  score 0."
    )
    assert out.splitlines()[1].strip() == PASSAGES[2][0]
    code, out, err = catalog(*arguments, "--json")
    told = json.loads(out)
    assert told["collection"] == NAME
    assert told["results"][0]["section"] == "Sensor simulation"
    assert [stage["name"] for stage in told["stages"]][-1] == "payload"
    assert server.writes() == []


def test_doubt_missing_fields_and_stages_are_reported(catalog, server, monkeypatch):
    monkeypatch.setenv("IDX_COLLECTION__PAGE_TITLE", "title")
    monkeypatch.setenv("IDX_COLLECTION__LOW_SCORE_BELOW", "0.99")
    code, out, err = catalog("collection", "search", "robot", "-k", "2")
    assert code == 0
    assert out.startswith("low confidence: the best score is 0.")
    assert err == "catalog: 2 passages without title\n"
    _, _, err = catalog("collection", "search", "robot", "--explain")
    assert [line.split()[1] for line in err.splitlines()] == [
        "collection", "embedding", "vector", "payload",
    ]  # fmt: skip
    code, out, _ = catalog("collection", "search", "robot", "--threshold", "0.999")
    assert (code, out) == (0, f"No passage of {NAME!r} is near 'robot'.\n")


@pytest.mark.slow
def test_a_check_says_what_is_there_and_fails_where_the_model_does_not_fit(
    catalog, server, monkeypatch
):
    code, out, _ = catalog("collection", "check")
    assert code == 0
    assert out.startswith(f"{NAME} at {server.url}: 4 points\n")
    assert "agree with those stored by 1.00, as those of the model that filled it do" in out
    assert "'section': 4 of 4 sampled points have it; index: none" in out
    monkeypatch.setattr(WordEncoder, "dim", 3)
    code, out, _ = catalog("collection", "check")
    assert code == 1
    assert "3 dimensions: it is not the model that filled it" in out


def test_a_server_that_is_away_is_one_sentence(catalog, server):
    server.fail("GET", "/exists$", 401, times=9)
    code, out, err = catalog("collection", "search", "robot")
    assert (code, out) == (1, "")
    assert err.startswith(f"catalog: Qdrant at {server.url} failed: 401 Unauthorized; its key is ")
    assert "IDX_COLLECTION__API_KEY" in err
    assert err.count("\n") == 1
