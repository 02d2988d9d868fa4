"""The model cache before the store: what it remembers, for how long, and what it never does."""

import threading

import pytest

from builders import make_database
from catalog.library.indexing import Indexer
from catalog.store import Database
from catalog.store.llm_cache import CacheEntry, ModelCache
from small_documents import NOTES
from stores import open_store


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def database(tmp_path):
    opened = make_database(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def make(database, clock):
    def cache(kind="rerank", lifetime=60, **options):
        return ModelCache(database, kind=kind, lifetime=lifetime, clock=clock, **options)

    return cache


def entries(**values):
    return {key: CacheEntry(value) for key, value in values.items()}


def stored(database):
    query = "SELECT key, value FROM llm_cache ORDER BY key"
    with database.read() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(query)]


def test_what_one_cache_puts_another_over_the_same_store_gets(make):
    make().put(entries(a="1", b="2"), model="m")
    other = make()
    assert other.get(["a", "absent", "b"]) == {"a": "1", "b": "2"}
    assert other.get([]) == {}


def test_an_entry_expires(make, clock):
    cache = make(lifetime=60)
    cache.put(entries(a="1"), model="m")
    clock.now += 59.5
    assert cache.get(["a"]) == {"a": "1"}
    clock.now += 0.5
    assert cache.get(["a"]) == {}


def test_putting_drops_what_has_expired_of_its_kind_from_the_store(make, database, clock):
    make("rerank").put(entries(a="1"), model="m")
    make("expansion").put(entries(b="1"), model="m")
    clock.now += 60
    make("rerank").put(entries(c="1"), model="m")
    assert [key for key, _ in stored(database)] == ["b", "c"]


def test_a_lifetime_of_zero_turns_the_cache_off(make, database):
    make(lifetime=60).put(entries(a="1"), model="m")
    off = make(lifetime=0)
    off.put(entries(b="2"), model="m")
    assert off.get(["a", "b"]) == {}
    assert [key for key, _ in stored(database)] == ["a"]


def test_a_store_another_writer_holds_is_read_at_once_and_not_written_to(make, database, tmp_path):
    make().put(entries(a="1"), model="m")
    cache, holder = make(), Database.at(tmp_path)
    with holder.write():
        assert cache.get(["a"]) == {"a": "1"}
        cache.put(entries(b="2"), model="m")
        assert cache.get(["b"]) == {}
    holder.close()
    assert stored(database) == [("a", "1")]


def test_threads_that_put_and_get_the_same_keys_see_whole_answers(make, database):
    cache, wrong = make(), []

    def work(number: int) -> None:
        own = cache if number % 2 else make()
        for turn in range(10):
            names = [f"k{(number + turn + n) % 30}" for n in range(10)]
            own.put({name: CacheEntry(f'"{name}"') for name in names}, model="m")
            found = own.get(names)
            wrong.extend(one for one in found.items() if one[1] != f'"{one[0]}"')

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    rows = stored(database)
    assert rows
    assert all(value == f'"{key}"' for key, value in rows)


def test_a_deleted_document_takes_its_scores_with_it(tmp_path):
    notes = tmp_path / "notes"
    with open_store(NOTES | {"notes/copy.md": NOTES["notes/bread.txt"]}, tmp_path) as library:
        indexer, database = Indexer(library), library.database
        hashes = texts_of(database)
        scores = {
            f"{path}{n}": CacheEntry("0.5", one)
            for path in hashes
            for n, one in enumerate(hashes[path])
        }
        assert hashes["bread.txt"] == hashes["copy.md"]
        ModelCache(database, kind="rerank", lifetime=600).put(scores, model="m")
        ModelCache(database, kind="expansion", lifetime=600).put(entries(query="1"), model="m")

        (notes / "guides" / "backup.md").unlink()
        (notes / "bread.txt").unlink()
        indexer.update("notes")
        gone = {key for key in scores if key.startswith("guides/backup.md")}
        assert gone
        assert {key for key, _ in stored(database)} == {*scores, "query"} - gone


def test_an_edit_keeps_the_scores_of_the_passages_it_left_alone(tmp_path):
    parts = [f"# Part {n}\n\n" + f"alpha{n} beta{n} gamma{n}. " * 20 for n in range(3)]
    with open_store({"notes/long.md": "\n\n".join(parts)}, tmp_path) as library:
        indexer, database = Indexer(library), library.database
        before = texts_of(database)["long.md"]
        scores = {one: CacheEntry("0.5", one) for one in before}
        ModelCache(database, kind="rerank", lifetime=600).put(scores, model="m")
        parts[2] += "omega."
        (tmp_path / "notes" / "long.md").write_text("\n\n".join(parts))
        indexer.update("notes")
        both = set(before) & set(texts_of(database)["long.md"])
        assert 0 < len(both) < len(set(before))
        assert {key for key, _ in stored(database)} == both


def texts_of(database):
    query = (
        "SELECT path, text_hash FROM chunks JOIN documents ON documents.id = document_id "
        "ORDER BY seq"
    )
    found = {}
    with database.read() as connection:
        for path, text_hash in connection.exec_driver_sql(query):
            found.setdefault(path, []).append(text_hash)
    return found
