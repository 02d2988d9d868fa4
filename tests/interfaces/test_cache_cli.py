"""``catalog cache`` as a person or a script uses it; no model is loaded for it."""

import json
from collections import Counter

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
        vectors = {"d": np.zeros(2, dtype=np.float32)}
        embedding_cache.save(connection, vectors, fingerprint="f", now=DAY)
    database.close()
    return tmp_path / "home"


def entries(home):
    database = Database.at(home)
    with database.read() as connection:
        counts = Counter(connection.exec_driver_sql("SELECT kind FROM llm_cache").scalars())
    database.close()
    return counts


def test_everything_is_cleared_but_the_vectors_of_documents(catalog, home):
    code, out, _ = catalog("cache", "clear")
    assert code == 0
    assert out.splitlines() == [
        "expansion   1 dropped",
        "rerank      2 dropped",
        "answer      0 dropped",
    ]
    assert entries(home) == {}
    database = Database.at(home)
    with database.read() as connection:
        assert set(embedding_cache.load(connection, ["d"])) == {"d"}
    database.close()


@pytest.mark.parametrize("elsewhere", [False, True])
def test_clearing_makes_no_store(catalog, tmp_path, monkeypatch, elsewhere):
    if elsewhere:
        monkeypatch.setenv("IDX_DATABASE_URL", f"sqlite:///{tmp_path / 'other.db'}")
    nothing = {"expansion": 0, "rerank": 0, "answer": 0}
    assert json.loads(catalog("cache", "clear", "--json")[1]) == {"dropped": nothing}
    assert list(tmp_path.iterdir()) == []


def test_a_store_elsewhere_than_in_the_home_is_found(catalog, home, monkeypatch, tmp_path):
    monkeypatch.setenv("IDX_DATABASE_URL", f"sqlite:///{home / 'catalog.db'}")
    code, out, _ = catalog("cache", "clear", "--home", tmp_path / "none", "--json")
    assert (code, json.loads(out)["dropped"]["answer"]) == (0, 0)
    for url in ("mysql://localhost/x", f"sqlite:///file:{home / 'catalog.db'}?uri=true"):
        monkeypatch.setenv("IDX_DATABASE_URL", url)
        code, _, err = catalog("cache", "clear")
        assert code == 1
        assert "not supported" in err
