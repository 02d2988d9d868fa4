"""What is peculiar to the sqlite-vec engine; the rest is in the contract of all engines."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog.core.entry_points import load_engine
from catalog.core.errors import MissingExtraError
from catalog.core.filters import parse_filters
from catalog.store.restriction import Restriction
from catalog.store.vectors import sqlite_vec
from vector_bench import DATASET, Bench, bench, everything, paths_of, vector


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path, "sqlite-vec") as made:
        yield made


def answers(desk: Bench, k: int = 20, restriction: Restriction | None = None) -> list[str]:
    hits = desk.search(desk.opened[-1], vector(1), k, restriction or everything())
    return paths_of(desk.database, [hit.seq for hit in hits])


def inside(asked: str) -> Restriction:
    return Restriction(DATASET, filter=parse_filters(asked))


def test_vectors_of_zeros_rank_between_the_like_and_the_unlike(desk: Bench):
    desk.put("unlike.md", vector(-1))
    desk.put("zero.md", vector())
    desk.put("like.md", vector(1))
    engine = desk.engine()
    assert answers(desk) == ["like.md", "zero.md", "unlike.md"]
    assert [hit.score for hit in desk.search(engine, vector(), 5, everything())] == [0.0, 0.0, 0.0]
    assert engine.verify() == 0


def test_more_can_be_asked_for_than_one_search_of_the_table_gives(
    desk: Bench, monkeypatch: pytest.MonkeyPatch
):
    for number in range(6):
        desk.put(f"{number}.md", vector(1, number))
    desk.put("other.md", vector(1), metadata={"tags": ("x",)})
    desk.engine()
    expected = answers(desk, restriction=inside("tags!=x"))
    assert expected == [f"{number}.md" for number in range(6)]
    monkeypatch.setattr(sqlite_vec, "MOST_NEAREST", 3)
    assert answers(desk, restriction=inside("tags!=x")) == expected


@pytest.mark.parametrize("damage", [b"", b"no database" * 500, None])
def test_a_damaged_file_is_rebuilt(desk: Bench, damage: bytes | None):
    desk.put("a.md", vector(1))
    engine = desk.engine()
    engine.refresh()
    engine.close()
    file = desk.folder / "index" / sqlite_vec.FILE
    file.unlink()
    if damage is not None:
        file.write_bytes(damage)
    assert answers(desk) == ["a.md"]
    assert engine.verify() == 0


def test_without_its_package_the_command_that_installs_it_is_told(
    desk: Bench, monkeypatch: pytest.MonkeyPatch
):
    name = "catalog.store.vectors.sqlite_vec"
    monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "apsw", None)
    with pytest.raises(MissingExtraError, match=r"\[sqlite-vec\]"):
        load_engine("catalog.vectors", "sqlite-vec")
