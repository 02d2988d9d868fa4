"""From nearest points to passages: how many points are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from sqlalchemy import select

from catalog.store.engine_types import Restriction
from catalog.store.schema import chunks
from catalog.store.vectors.point_search import PointHit, nearest_chunks
from vector_bench import DATASET, bench, vector


@pytest.mark.parametrize(("wanted", "fetched"), [(1, 10), (10, 28), (100, 132)])
def test_few_points_are_fetched_beyond_the_passages_wanted(
    tmp_path: Path, wanted: int, fetched: int
):
    limits: list[int] = []

    def fetch(limit: int, _condition: object) -> Sequence[PointHit]:
        limits.append(limit)
        return []

    with bench(tmp_path, "flat") as desk:
        assert nearest_chunks(desk.database, Restriction(DATASET), wanted, fetch) == []
    assert limits == [fetched]


def test_more_points_are_fetched_where_one_passage_has_most_of_the_nearest(tmp_path: Path):
    limits: list[int] = []
    with bench(tmp_path, "flat") as desk:
        for name in ("a.md", "b.md"):
            desk.put(name, vector(1))
        with desk.database.read() as connection:
            rows = connection.execute(select(chunks.c.chunk_id, chunks.c.seq)).all()
        (first, its_seq), (second, other_seq) = rows
        points = [PointHit(first, 0.9)] * 20 + [PointHit(second, 0.8)]

        def fetch(limit: int, _condition: object) -> Sequence[PointHit]:
            limits.append(limit)
            return points[:limit]

        hits = nearest_chunks(desk.database, Restriction(DATASET), 2, fetch)
    assert hits == [(its_seq, 0.9), (other_seq, 0.8)]
    assert limits == [12, 48]
