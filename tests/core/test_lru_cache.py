"""The last used of many values."""

import sys
import threading

import pytest

from catalog.core.lru_cache import LRUCache


def kept(recent, keys):
    """Which keys are there, without using any more than another: asked once each, in order."""
    return [key for key in keys if recent.get(key) is not None]


def test_stored_values_are_returned_and_missing_ones_are_none():
    recent = LRUCache(2)
    recent.put("a", 1)
    assert (recent.get("a"), recent.get("b")) == (1, None)


def test_the_one_unused_for_longest_is_forgotten():
    recent = LRUCache(2)
    for key in "abc":
        recent.put(key, key)
    assert kept(recent, "abc") == ["b", "c"]


def test_getting_a_value_counts_as_using_it():
    recent = LRUCache(2)
    recent.put("a", 1)
    recent.put("b", 2)
    recent.get("a")
    recent.put("c", 3)
    assert kept(recent, "abc") == ["a", "c"]


def test_putting_a_key_again_replaces_its_value_counts_as_use_and_takes_no_room():
    recent = LRUCache(2)
    recent.put("a", 1)
    recent.put("b", 2)
    recent.put("a", 10)
    assert (recent.get("b"), recent.get("a")) == (2, 10)
    recent.put("b", 20)
    recent.put("c", 3)
    assert kept(recent, "abc") == ["b", "c"]


def test_asking_for_what_is_not_there_forgets_nothing():
    recent = LRUCache(1)
    recent.put("a", 1)
    assert recent.get("b") is None
    assert recent.get("a") == 1


@pytest.mark.parametrize("size", [0, -3, 1])
def test_at_least_one_value_is_kept(size):
    recent = LRUCache(size)
    recent.put("a", 1)
    assert recent.get("a") == 1
    recent.put("b", 2)
    assert kept(recent, "ab") == ["b"]


def test_clearing_forgets_everything_and_leaves_it_usable():
    recent = LRUCache(3)
    for key in "abc":
        recent.put(key, key)
    recent.clear()
    assert kept(recent, "abc") == []
    recent.put("d", 4)
    assert recent.get("d") == 4


@pytest.fixture
def hurried():
    """Threads take turns after every few steps."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("hurried")
def test_threads_never_see_another_keys_value_and_the_size_holds():
    recent, start, errors = LRUCache(8), threading.Barrier(6), []

    def work(seed):
        start.wait()
        try:
            for number in range(20_000):
                key = (number * (seed + 1)) % 24
                recent.put(key, key)
                if recent.get(key) not in (None, key):
                    errors.append(key)
                if number % 7 == 0:
                    recent.clear()
        except KeyError as error:  # of a dictionary that nothing guards
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    for key in range(24):
        recent.put(key, key)
    assert kept(recent, range(24)) == list(range(16, 24))


def test_values_may_be_held_by_their_weight() -> None:
    recent: LRUCache[str, str] = LRUCache(5, len)
    for value in ("aa", "bbb", "c", "longer than all"):
        recent.put(value, value)
    assert [recent.get(key) for key in ("aa", "bbb", "c", "longer than all")] == [
        None, "bbb", "c", None
    ]  # fmt: skip
