"""The engine flat reads only what is new, and the factory finds every engine lazily."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import select, update

from builders import drop, put
from catalog.core.entry_points import load_engine
from catalog.core.errors import EmbeddingMismatchError
from catalog.core.settings import RAGv2Settings
from catalog.store.database import EngineSetup
from catalog.store.embedding_cache import vector_checksum
from catalog.store.schema import embeddings
from catalog.store.vectors import flat
from catalog.store.vectors.flat import FlatEngine
from vector_bench import DATASET, DIM, FINGERPRINT, Bench, bench, everything, paths_of, vector


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path, "flat") as made:
        yield made


def setup(desk: Bench, **rag: str) -> EngineSetup:
    folder = desk.folder / "index"
    return EngineSetup(desk.database, DATASET, folder, RAGv2Settings(**rag), DIM, FINGERPRINT)


def answers(desk: Bench, engine: FlatEngine) -> list[str]:
    hits = desk.search(engine, vector(1), 20, everything())
    return paths_of(desk.database, [hit.seq for hit in hits])


@pytest.mark.slow
def test_only_new_vectors_are_read_after_a_change(desk: Bench, monkeypatch: pytest.MonkeyPatch):
    read: list[int] = []
    original = flat.read_windows

    def windows(*given):
        found = original(*given)
        read.append(len(found.rows))
        return found

    monkeypatch.setattr(flat, "read_windows", windows)
    for index in range(30):
        desk.put(f"{index:02}.md", vector(1, index))
    engine = desk.engine()
    answers(desk, engine)
    answers(desk, engine)
    desk.put("new.md", vector(1), [vector(0, 1), vector(0, 2)])
    answers(desk, engine)
    drop(desk.database, DATASET, "03.md")
    assert "03.md" not in answers(desk, engine)
    assert read == [30, 3, 0]


def test_a_chunk_that_gets_its_last_vector_later_is_held_once(desk: Bench):
    desk.embed({"first": vector(1)})
    put(desk.database, DATASET, "a.md", "text", embed_keys=[["first", "late"]])
    desk.put("b.md", vector(1, 1))
    engine = desk.engine()
    assert answers(desk, engine) == ["a.md", "b.md"]
    desk.embed({"late": vector(0, 1)})
    desk.put("c.md", vector(1, 2))
    assert answers(desk, engine) == ["a.md", "b.md", "c.md"]
    assert engine.held is not None
    assert np.count_nonzero(engine.held.seqs >= 0) == 4


def test_vectors_of_two_dimensions_are_refused(desk: Bench):
    desk.put("a.md", vector(1))
    desk.put("b.md", vector(0, 1))
    first = vector(1).tobytes()
    with desk.database.write() as connection:
        is_it = embeddings.c.vector == first
        key = connection.scalars(select(embeddings.c.embed_key).where(is_it)).one()
        sealed = {"vector": first[:8], "checksum": vector_checksum(key, first[:8])}
        connection.execute(update(embeddings).where(is_it).values(sealed))
    with pytest.raises(EmbeddingMismatchError, match="rebuild"):
        desk.search(desk.engine(), vector(1), 1, everything())


def test_an_url_makes_it_a_server(desk: Bench):
    made = load_engine("catalog.vectors", "qdrant")(setup(desk, qdrant_url="http://localhost:1"))
    assert made.name == "qdrant"
    made.close()


@pytest.mark.slow
def test_the_embedded_engines_load_neither_llama_index_nor_the_qdrant_client():
    code = (
        "import sys, catalog.store.vectors as v, catalog.store.vectors.flat\n"
        "assert 'qdrant_edge' not in sys.modules\n"
        "import catalog.store.vectors.qdrant_edge, catalog.store.vectors.sqlite_vec\n"
        "assert not {'llama_index', 'qdrant_client', 'torch'} & set(sys.modules)"
    )
    paths = os.pathsep.join(path for path in sys.path if path)
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": paths})
