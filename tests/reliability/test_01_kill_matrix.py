"""A build killed at any step, or out of disk, ends, run again, as if nothing had happened."""

import random
from pathlib import Path

import pytest
from sqlalchemy import event

from catalog.library.health import diagnose
from catalog.library.indexing import Indexer
from fakes import open_qdrant_library
from processes import forking
from reliability.chaos import seeds
from reliability.killed_build import NO_FILTER, build, open_small_steps
from reliability.whole_store import state_of, write_corpus
from tables import read_cases

pytestmark = pytest.mark.slow
STEPS = dict(read_cases(__file__)["steps"])


def run(folder: Path, home: Path, where: str = "nowhere", count: int = 0, moment: str = "") -> int:
    """Build in a process of its own and return its exit code; 1 would be an error not of ours."""
    process = forking().Process(target=build, args=(folder, home, where, count, moment))
    process.start()
    process.join(120)
    assert process.exitcode is not None, "the build hangs"
    assert process.exitcode == 0 or where != "nowhere"
    return process.exitcode


def state(home: Path) -> dict[str, object]:
    """Everything a user could tell two stores apart by."""
    with open_qdrant_library(home) as library:
        return state_of(library)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def uninterrupted(corpus, tmp_path_factory):
    home = tmp_path_factory.mktemp("whole")
    run(corpus, home)
    return state(home)


@pytest.fixture(scope="module")
def statements(corpus, tmp_path_factory):
    """How many statements a build has."""
    with open_small_steps(tmp_path_factory.mktemp("counted")) as library:
        seen = []
        event.listen(library.database.engine, "before_cursor_execute", lambda *_: seen.append(1))
        Indexer(library).build(corpus, "notes")
    return len(seen)


@pytest.mark.parametrize("step", STEPS)
def test_a_build_killed(step, corpus, uninterrupted, tmp_path):
    where, count, moment = STEPS[step]
    assert run(corpus, tmp_path / "home", where, count, moment) == -9, "the step was never reached"
    run(corpus, tmp_path / "home")
    assert state(tmp_path / "home") == uninterrupted


def test_builds_killed_at_random_statements_end_as_if_nothing_had_happened(
    corpus, statements, uninterrupted, tmp_path
):
    """Each trial kills the build of one store twice, further on each time or not."""
    for number in seeds():
        chance, home = random.Random(number), tmp_path / f"home{number}"
        ends = [run(corpus, home, "statement", chance.randrange(1, statements)) for _ in range(2)]
        assert -9 in ends, f"no build was killed; IDX_TEST_SEED={number}"
        run(corpus, home)
        assert state(home) == uninterrupted, f"IDX_TEST_SEED={number}"


def test_a_build_that_finds_the_disk_full_says_so_and_ends_when_there_is_room(
    corpus, uninterrupted, tmp_path
):
    """Below some 40 MB a file of the store, its log or an index cannot be written whole."""
    for number in seeds():
        chance, home = random.Random(number), tmp_path / f"full{number}"
        for most in (30_000, 250_000, 3_000_000):
            code = run(corpus, home, "full", chance.randrange(most // 2, most))
            assert code in (3, 4), f"{code}; IDX_TEST_SEED={number}"  # a typed error, or a note
        run(corpus, home)
        assert state(home) == uninterrupted, f"IDX_TEST_SEED={number}"


@pytest.mark.parametrize("what", ["writes", "reads"])
def test_a_disk_that_fails_is_a_typed_error_and_loses_nothing(
    what, corpus, statements, uninterrupted, tmp_path
):
    """Every call by which SQLite reads (or writes) answers EIO from a random statement on."""
    for number in seeds():
        chance = random.Random(f"{number} {what}")
        whole, new = tmp_path / f"whole{number}", tmp_path / f"new{number}"
        run(corpus, whole)
        ends = []
        for home, moment in ((new, ""), (whole, "anew")):
            ends.append(run(corpus, home, what, chance.randrange(1, statements), moment))
            if ends[-1] == NO_FILTER:
                pytest.skip("this system cannot let calls of one process fail")
            if moment == "anew":  # what was there is there, whatever was reached
                assert state(home) == uninterrupted, f"IDX_TEST_SEED={number}"
        assert set(ends) <= {0, 3, 4}, f"{ends}; IDX_TEST_SEED={number}"
        assert what == "reads" or 4 in ends, f"{ends}; IDX_TEST_SEED={number}"
        for home in (new, whole):
            run(corpus, home)
            assert state(home) == uninterrupted, f"IDX_TEST_SEED={number}"
        with open_qdrant_library(new) as library:
            wrong = [check for check in diagnose(library) if not check.ok]
        assert wrong == [], f"IDX_TEST_SEED={number}"
