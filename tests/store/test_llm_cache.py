"""The cache of model answers in SQL: what a key covers, what is found, what goes."""

import pytest

from builders import drop, make_database, put
from catalog.core.ids import sha1_hex
from catalog.store import llm_cache
from catalog.store.llm_cache import CacheEntry, cache_key

pytestmark = pytest.mark.both_stores


@pytest.fixture
def database(tmp_path):
    opened = make_database(tmp_path)
    yield opened
    opened.close()


def save(database, now=100.0, kind="rerank", model="m", **values):
    entries = {
        key: CacheEntry(*value) if isinstance(value, tuple) else CacheEntry(value)
        for key, value in values.items()
    }
    with database.write() as connection:
        llm_cache.save(connection, entries, kind=kind, model=model, now=now)


def keys(database):
    with database.read() as connection:
        return set(connection.exec_driver_sql("SELECT key FROM llm_cache").scalars())


def purge(database):
    with database.write() as connection:
        return llm_cache.purge(connection)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "b"), ("ab",)), (("a", "b"), ("b", "a")), (("a", ""), ("a",)),
        (("a\0b",), ("a", "b")), (('a", "b',), ("a", "b")), (('["a"]',), ("a",)),
        (("é",), ("e\u0301",)), (("\\ud83d\\ude00",), ("😀",)), (("\ud83d\ude00",), ("😀",)),
        ((), ("",)),
    ],
)  # fmt: skip
def test_no_two_lists_of_parts_share_a_key(one, other):
    assert cache_key(*one) != cache_key(*other)
    assert cache_key(*one) == cache_key(*one)


def test_only_entries_created_after_the_time_asked_for_are_loaded(database):
    save(database, now=100.0, old="1")
    save(database, now=101.0, new="2")
    wanted = ["old", "new", "absent", "new"]
    old, new = ("1", 100.0), ("2", 101.0)
    with database.read() as connection:
        assert llm_cache.load(connection, wanted, after=99.0) == {"old": old, "new": new}
        assert llm_cache.load(connection, wanted, after=100.0) == {"new": new}
        assert llm_cache.load(connection, ["old"], after=0.0) == {"old": old}
        assert llm_cache.load(connection, [], after=0.0) == {}


def test_a_newer_answer_replaces_the_older_one(database):
    save(database, now=100.0, a="1", b="1")
    save(database, now=200.0, model="m2", a="2")
    with database.read() as connection:
        assert llm_cache.load(connection, ["a", "b"], after=0.0) == {
            "a": ("2", 200.0),
            "b": ("1", 100.0),
        }


@pytest.mark.slow
@pytest.mark.of_sqlite
def test_more_keys_than_one_statement_may_bind_are_saved_and_loaded(database):
    many = {f"k{n}": str(n) for n in range(40_000)}
    save(database, **many)
    save(database, **many)
    with database.read() as connection:
        loaded = llm_cache.load(connection, many, after=0.0)
    assert {key: value for key, (value, _) in loaded.items()} == many


def test_what_expired_is_dropped_of_the_kind_named(database):
    save(database, now=100.0, kind="expansion", a="1")
    save(database, now=100.0, kind="rerank", b="1")
    save(database, now=101.0, kind="rerank", c="1")
    with database.write() as connection:
        assert llm_cache.clear(connection, "rerank", before=99.0) == 0
        assert llm_cache.clear(connection, "rerank", before=100.0) == 1
    assert keys(database) == {"a", "c"}


def test_purging_drops_scores_of_texts_that_no_chunk_has(database):
    put(database, "d", "a.md", ["one", "two"])
    save(database, one=("1", sha1_hex("one")), gone=("1", sha1_hex("three")), unnamed="1")
    save(database, kind="expansion", query="1")
    assert purge(database) == 1
    assert keys(database) == {"one", "unnamed", "query"}


def test_a_text_that_lives_on_elsewhere_keeps_its_scores(database):
    put(database, "d", "a.md", ["shared", "only here"])
    put(database, "other", "b.md", "shared")
    save(database, shared=("1", sha1_hex("shared")), alone=("1", sha1_hex("only here")))
    drop(database, "d", "a.md")
    assert purge(database) == 1
    assert keys(database) == {"shared"}
