"""Our vector engines keep the contract of ``catalog.testing``."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog.testing.vectors import VectorContract
from vector_bench import ENGINES, Bench, bench

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
