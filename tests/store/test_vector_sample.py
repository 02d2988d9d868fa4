"""The sample of a dataset's vectors: the spread of cosines with all, estimated from some."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, pstdev

import numpy as np
import pytest

from builders import drop, put
from catalog.store.engine_types import FLAT
from catalog.store.vectors import sample
from catalog.store.vectors.sample import VectorSample, spread_over
from vector_bench import DATASET, Bench, bench, vector

pytestmark = pytest.mark.both_stores


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path, "exact") as made:
        yield made


def test_the_spread_is_of_cosines_each_chunk_by_its_best_window(desk: Bench):
    # cosines with (1, 0, …): 1, and of (0, 1) and (3, 4) the better .6
    desk.put("a.md", vector(5))
    desk.put("b.md", [vector(0, 1), vector(3, 4)])
    spread = VectorSample(desk.database, DATASET).spread(vector(7))
    assert spread == pytest.approx((0.8, 0.2), abs=1e-6)


@pytest.mark.of_sqlite
@pytest.mark.parametrize("rows", [1, 2, 4, 9])
def test_the_spread_is_the_same_however_many_rows_are_multiplied_at_a_time(
    desk: Bench, monkeypatch: pytest.MonkeyPatch, rows: int
):
    # cosines with (1, 0, …): 1, .6, 0, .8 and -1, of mean .28
    for place, numbers in enumerate([(1, 0), (3, 4), (0, 1), (4, 3), (-1, 0)]):
        desk.put(f"{place}.md", vector(*numbers))
    monkeypatch.setattr(sample, "_BLOCK", rows * len(vector(1)))
    spread = VectorSample(desk.database, DATASET).spread(vector(1))
    assert spread.mean == pytest.approx(0.28, abs=1e-6)
    assert spread.deviation == pytest.approx(pstdev([1, 0.6, 0, 0.8, -1]), abs=1e-6)


def test_without_vectors_there_is_no_spread(desk: Bench):
    of_sample = VectorSample(desk.database, DATASET)
    assert of_sample.spread(vector(1)) == FLAT
    desk.put("a.md", vector(1))
    assert of_sample.spread(vector(1)).mean == pytest.approx(1.0)
    drop(desk.database, DATASET, "a.md")
    assert of_sample.spread(vector(1)) == FLAT


@pytest.mark.of_sqlite
def test_a_large_dataset_is_known_by_some_of_its_chunks(
    desk: Bench, monkeypatch: pytest.MonkeyPatch
):
    angles = np.linspace(0, math.pi / 2, 80)
    for index, angle in enumerate(angles):
        desk.put(f"{index}.md", vector(math.cos(angle), math.sin(angle)))
    monkeypatch.setattr(sample, "SIZE", 40)
    of_some = VectorSample(desk.database, DATASET)
    spread = of_some.spread(vector(1))
    every = [math.cos(angle) for angle in angles]
    assert spread == pytest.approx((mean(every), pstdev(every)), abs=0.12)


def test_the_sample_is_read_once_for_each_state(desk: Bench, monkeypatch: pytest.MonkeyPatch):
    reads: list[int] = []
    original = sample.read_vectors

    def read(*given):
        matrix, *others = original(*given)
        reads.append(len(matrix))
        return matrix, *others

    monkeypatch.setattr(sample, "read_vectors", read)
    desk.put("a.md", vector(1))
    of_sample = VectorSample(desk.database, DATASET)
    for _ in range(3):
        of_sample.spread(vector(1))
    desk.put("b.md", vector(0, 1))
    of_sample.spread(vector(1))
    assert reads == [1, 2]


def test_several_datasets_are_measured_as_one(desk: Bench):
    desk.put("a.md", vector(1))
    desk.put("b.md", vector(0, 1))
    desk.embed({"c": vector(3, 4)})
    put(desk.database, "other", "c.md", "text", embed_keys=["c"])
    names = (DATASET, "other", "none")
    samples = [VectorSample(desk.database, name) for name in names]
    assert spread_over(samples, vector(1)) == pytest.approx(
        (mean([1, 0, 0.6]), pstdev([1, 0, 0.6])), abs=1e-6
    )
    assert spread_over([], vector(1)) == FLAT
