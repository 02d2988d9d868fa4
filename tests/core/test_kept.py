"""The last used of many values, and services kept open between calls."""

import sys
import threading

import pytest

from catalog.core.kept import LRUCache, OpenServices


def kept(recent, keys):
    """Which keys are there, without using any more than another: asked once each, in order."""
    return [key for key in keys if recent.get(key) is not None]


def test_the_one_unused_for_longest_is_forgotten_and_getting_counts_as_using():
    recent = LRUCache(2)
    recent.put("a", 1)
    recent.put("b", 2)
    assert (recent.get("a"), recent.get("x")) == (1, None)
    recent.put("c", 3)
    assert kept(recent, "abc") == ["a", "c"]
    recent.clear()
    assert kept(recent, "abc") == []
    recent.put("d", 4)
    assert recent.get("d") == 4
    for size in (0, -3, 1):  # at least one is kept
        recent = LRUCache(size)
        for key in "ab":
            recent.put(key, key)
        assert kept(recent, "ab") == ["b"]


def test_putting_a_key_again_replaces_its_value_counts_as_use_and_takes_no_room():
    recent = LRUCache(2)
    recent.put("a", 1)
    recent.put("b", 2)
    recent.put("a", 10)
    assert (recent.get("b"), recent.get("a")) == (2, 10)
    recent.put("b", 20)
    recent.put("c", 3)
    assert kept(recent, "abc") == ["b", "c"]


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
            for number in range(3_000):
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


class Service:
    def __init__(self):
        self.closed = 0

    def close(self):
        self.closed += 1


def test_one_service_serves_every_call_of_its_key_until_it_is_closed():
    kept = OpenServices()
    first, other = kept.get("a", Service), kept.get("b", Service)
    assert kept.get("a", Service) is first is not other
    kept.close()
    kept.close()
    assert (first.closed, other.closed) == (1, 1)
    assert kept.get("a", Service) is not first


def test_threads_that_ask_at_once_get_the_same_service():
    kept, made, barrier = OpenServices(), [], threading.Barrier(8)

    def ask():
        barrier.wait()
        made.append(kept.get("a", Service))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(service) for service in made}) == 1
