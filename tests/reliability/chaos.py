"""How long the reliability suite runs, and with which seeds."""

import os
import time

from hypothesis import HealthCheck, seed, settings

DEFAULT_SEED = 13


def seeds(count=1):
    """The seeds of a test: ``IDX_TEST_SEED`` alone, else the same ``count`` each time; while
    ``IDX_TEST_CHAOS_SECONDS`` last, fresh ones after them, whose number is printed.
    """
    chosen = os.environ.get("IDX_TEST_SEED")
    yield from [int(chosen)] if chosen else range(DEFAULT_SEED, DEFAULT_SEED + count)
    ends = time.monotonic() + float(os.environ.get("IDX_TEST_CHAOS_SECONDS") or 0)
    fresh = 0
    while chosen is None and time.monotonic() < ends:
        fresh += 1
        yield int.from_bytes(os.urandom(4))
    if fresh:
        print(f"{count + fresh} seeds", flush=True)  # seen with pytest -s


def some(*cases, count):
    """The first ``count`` cases, and all of them while ``IDX_TEST_CHAOS_SECONDS`` are given."""
    return list(cases)[: None if os.environ.get("IDX_TEST_CHAOS_SECONDS") else count]


def check(given_property, examples=25):
    """Check a Hypothesis property for every seed; a failure names the seed that replays it."""
    bounded = settings(
        max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    for number in seeds():
        try:
            seed(number)(bounded(given_property))()
        except BaseException as error:
            error.add_note(f"replay with IDX_TEST_SEED={number}")
            raise
