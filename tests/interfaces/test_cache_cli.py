"""``catalog cache`` as a person or a script uses it; no model is loaded for it."""

import json

import numpy as np
import pytest

from catalog.store import Database, embedding_cache, llm_cache
from catalog.store.llm_cache import CacheEntry

DAY = 86_400.0  # 1970-01-02


@pytest.fixture
def home(tmp_path):
    """A store with an expansion, two rerank scores, two query vectors and a document's vector."""
    database = Database.at(tmp_path / "home")
    with database.write() as connection:
        llm_cache.save(
            connection,
            {"e": CacheEntry('"' + "x" * 1498 + '"')},
            kind="expansion",
            model="qwen v1",
            now=DAY,
        )
        llm_cache.save(connection, {"r": CacheEntry("0.5")}, kind="rerank", model="judge", now=DAY)
        llm_cache.save(
            connection, {"s": CacheEntry("0.5")}, kind="rerank", model="judge", now=3 * DAY
        )
        llm_cache.count_hits(connection, ["r"])
        for side, keys in (("query", ("q1", "q2")), ("document", ("d",))):
            vectors = {key: np.zeros(2, dtype=np.float32) for key in keys}
            embedding_cache.save(connection, vectors, fingerprint="f", side=side, now=DAY)
        embedding_cache.count_hit(connection, "q1")
    database.close()
    return tmp_path / "home"


def entries(catalog):
    rows = json.loads(catalog("cache", "stats", "--json")[1])
    return {row["kind"]: row["entries"] for row in rows}


def test_stats_is_a_table_of_kinds_and_models(catalog, home):
    code, out, err = catalog("cache", "stats")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "kind       model    entries  used again    size      oldest      newest",
        "expansion  qwen v1        1           0  1.5 kB  1970-01-02  1970-01-02",
        "rerank     judge          2           1     6 B  1970-01-02  1970-01-04",
        "queries    -              2           1       -           -           -",
    ]


def test_stats_as_json_has_a_row_for_each_kind_and_model(catalog, home):
    code, out, _ = catalog("cache", "stats", "--json")
    rows = json.loads(out)
    assert code == 0
    assert [row["kind"] for row in rows] == ["expansion", "rerank", "queries"]
    assert rows[1] == {
        "kind": "rerank", "model": "judge", "entries": 2, "hits": 1, "bytes": 6,
        "oldest": DAY, "newest": 3 * DAY,
    }  # fmt: skip
    assert (rows[2]["entries"], rows[2]["hits"], rows[2]["bytes"]) == (2, 1, None)


@pytest.mark.parametrize(
    ("kind", "dropped", "left"),
    [
        ("expansion", 1, {"rerank": 2, "queries": 2}),
        ("rerank", 2, {"expansion": 1, "queries": 2}),
        ("queries", 2, {"expansion": 1, "rerank": 2, "queries": 0}),
    ],
)
def test_one_kind_is_cleared_and_the_others_stay(catalog, home, kind, dropped, left):
    code, out, _ = catalog("cache", "clear", "--kind", kind, "--json")
    assert (code, json.loads(out)) == (0, {"dropped": {kind: dropped}})
    assert entries(catalog) == left


def test_everything_is_cleared_but_the_vectors_of_documents(catalog, home):
    code, out, _ = catalog("cache", "clear")
    assert code == 0
    assert out.splitlines() == [
        "expansion   1 dropped",
        "rerank      2 dropped",
        "answer      0 dropped",
        "queries     2 dropped",
    ]
    assert entries(catalog) == {"queries": 0}
    database = Database.at(home)
    with database.read() as connection:
        assert set(embedding_cache.load(connection, ["d", "q1", "q2"])) == {"d"}
    database.close()


def test_an_unknown_kind_is_refused_and_nothing_dropped(catalog, home):
    code, out, err = catalog("cache", "clear", "--kind", "vectors")
    assert (code, out) == (2, "")
    assert "'vectors'; one of expansion, rerank, answer, queries" in err
    assert entries(catalog) == {"expansion": 1, "rerank": 2, "queries": 2}


@pytest.mark.parametrize("elsewhere", [False, True])
def test_neither_command_makes_a_store(catalog, tmp_path, monkeypatch, elsewhere):
    if elsewhere:
        monkeypatch.setenv("IDX_DATABASE_URL", f"sqlite:///{tmp_path / 'other.db'}")
    code, out, err = catalog("cache", "stats")
    assert (code, out, err) == (0, "There is no store yet, so nothing is cached.\n", "")
    assert catalog("cache", "stats", "--json")[1] == "[]\n"
    nothing = {"expansion": 0, "rerank": 0, "answer": 0, "queries": 0}
    assert json.loads(catalog("cache", "clear", "--json")[1]) == {"dropped": nothing}
    assert list(tmp_path.iterdir()) == []


def test_a_store_elsewhere_than_in_the_home_is_found(catalog, home, monkeypatch, tmp_path):
    for url in (
        f"sqlite:///{home / 'catalog.db'}",
        f"sqlite:///file:{home / 'catalog.db'}?uri=true",
    ):
        monkeypatch.setenv("IDX_DATABASE_URL", url)
        code, out, _ = catalog("cache", "stats", "--home", tmp_path / "none", "--json")
        assert (code, len(json.loads(out))) == (0, 3)
    monkeypatch.setenv("IDX_DATABASE_URL", "mysql://localhost/x")
    code, _, err = catalog("cache", "stats")
    assert code == 1
    assert "not supported" in err
