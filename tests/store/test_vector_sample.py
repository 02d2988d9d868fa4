"""The sample of a dataset's vectors: the spread of cosines with all, estimated from some."""

import math
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, pstdev

import numpy as np
import pytest

from builders import drop, put
from catalog.store.engines import nearest
from catalog.store.restriction import FLAT, Restriction, join_spreads
from catalog.store.vectors import flat
from catalog.store.vectors.flat import VectorSample
from vector_bench import DATASET, Bench, bench, vector


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path, "flat") as made:
        yield made


def test_the_spread_is_of_cosines_each_chunk_by_its_best_window(desk: Bench):
    # cosines with (1, 0, …): 1, and of (0, 1) and (3, 4) the better .6
    desk.put("a.md", vector(5))
    desk.put("b.md", [vector(0, 1), vector(3, 4)])
    spread = VectorSample(desk.database, DATASET).spread(vector(7))[1]
    assert spread == pytest.approx((0.8, 0.2), abs=1e-6)


def test_without_vectors_there_is_no_spread(desk: Bench):
    of_sample = VectorSample(desk.database, DATASET)
    assert of_sample.spread(vector(1)) == (0, FLAT)
    desk.put("a.md", vector(1))
    assert of_sample.spread(vector(1))[1].mean == pytest.approx(1.0)
    drop(desk.database, DATASET, "a.md")
    assert of_sample.spread(vector(1)) == (0, FLAT)


@pytest.mark.slow
def test_a_large_dataset_is_known_by_some_of_its_chunks(
    desk: Bench, monkeypatch: pytest.MonkeyPatch
):
    angles = np.linspace(0, math.pi / 2, 80)
    for index, angle in enumerate(angles):
        desk.put(f"{index}.md", vector(math.cos(angle), math.sin(angle)))
    monkeypatch.setattr(flat, "SAMPLE", 40)
    of_some = VectorSample(desk.database, DATASET)
    _, spread = of_some.spread(vector(1))
    every = [math.cos(angle) for angle in angles]
    assert spread == pytest.approx((mean(every), pstdev(every)), abs=0.12)


def test_the_sample_is_read_once_for_each_state(desk: Bench, monkeypatch: pytest.MonkeyPatch):
    reads: list[int] = []
    original = flat.read_windows

    def read(*given):
        found = original(*given)
        reads.append(len(found.rows))
        return found

    monkeypatch.setattr(flat, "read_windows", read)
    desk.put("a.md", vector(1))
    of_sample = VectorSample(desk.database, DATASET)
    for _ in range(3):
        of_sample.spread(vector(1))
    desk.put("b.md", vector(0, 1))
    of_sample.spread(vector(1))
    assert reads == [1, 2]


def test_several_datasets_are_measured_as_one_whether_by_sample_or_by_all_vectors(desk: Bench):
    desk.put("a.md", vector(1))
    desk.put("b.md", vector(0, 1))
    desk.embed({"c": vector(3, 4)})
    put(desk.database, "other", "c.md", "text", embed_keys=["c"])
    names = (DATASET, "other", "none")
    expected = pytest.approx((mean([1, 0, 0.6]), pstdev([1, 0, 0.6])), abs=1e-6)
    sampled = [VectorSample(desk.database, name).spread(vector(1)) for name in names]
    assert join_spreads(sampled) == expected
    answers = [
        nearest(
            desk.make(desk.database, name, desk.folder / name),
            desk.database,
            vector(1),
            1,
            Restriction(name),
        )
        for name in names
    ]
    assert join_spreads((hits.size, hits.spread) for hits in answers) == expected
