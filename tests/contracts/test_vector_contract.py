"""Our vector engines keep the contract of ``catalog.testing``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog.store.vectors import outbox as outbox_module
from catalog.testing.vectors import VectorContract, found
from vector_bench import ENGINES, Bench, bench, vector

pytestmark = pytest.mark.filterwarnings(
    "ignore:Payload indexes have no effect in the local Qdrant:UserWarning"
)


class TestVectorEngines(VectorContract):
    @pytest.fixture(params=ENGINES)
    def desk(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
        url = os.environ.get("IDX_TEST_QDRANT_URL")
        if request.param == "qdrant-server" and not url:
            pytest.skip("IDX_TEST_QDRANT_URL names no Qdrant server to test against")
        with bench(tmp_path, request.param, url) as made:
            yield made


@pytest.mark.parametrize("kind", ["qdrant-edge", "qdrant-memory"])
def test_rows_applied_while_another_wrote_are_not_applied_again(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with bench(tmp_path, kind) as desk:
        engine = desk.engine()
        engine.refresh()
        loaded: list[tuple[int, ...]] = []
        load = outbox_module.load_points

        def noted(connection, seqs, dim, damaged):
            loaded.append(tuple(seqs))
            return load(connection, seqs, dim, damaged)

        monkeypatch.setattr(outbox_module, "load_points", noted)
        (a,) = desk.put("a.md", vector(1))
        with desk.database.write():
            assert found(desk, engine) == ["a.md"]
            assert found(desk, engine) == ["a.md"]
        (b,) = desk.put("b.md", vector(1))
        assert found(desk, engine) == ["a.md", "b.md"]
        assert loaded == [(a,), (b,)]
