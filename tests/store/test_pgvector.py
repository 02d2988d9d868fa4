"""The pgvector engine: where it may be used, its graph, and what it does about damage."""

from __future__ import annotations

import numpy as np
import pytest
from sqlalchemy import text

from builders import make_database
from catalog.core.errors import ConfigError
from catalog.store.vectors.exact import ExactEngine
from catalog.store.vectors.pgvector import PgVectorEngine
from vector_bench import DATASET, DIM, FINGERPRINT, bench, everything, vector


@pytest.fixture
def desk(tmp_path):
    with bench(tmp_path, "pgvector") as made:
        yield made


def tables(desk) -> list[str]:
    query = text("SELECT tablename FROM pg_tables WHERE tablename LIKE 'vectors_%'")
    with desk.database.read() as connection:
        return sorted(connection.scalars(query))


def test_a_store_in_a_file_says_what_the_engine_needs(tmp_path):
    database = make_database(tmp_path)
    with pytest.raises(ConfigError, match="IDX_DATABASE_URL"):
        PgVectorEngine(database, DATASET, DIM, FINGERPRINT)
    database.close()


def test_the_graph_is_made_and_asked_and_finds_what_comparing_each_finds(desk):
    random = np.random.default_rng(11)
    for index in range(12):
        desk.put(f"{index}.md", *random.normal(size=(50, DIM)).astype(np.float32))
    engine = PgVectorEngine(desk.database, DATASET, DIM, FINGERPRINT, graph_from=100)
    desk.opened.append(engine)
    assert engine.refresh() == 600
    with desk.database.read() as connection:
        made = "SELECT indexdef FROM pg_indexes WHERE indexdef LIKE '%hnsw%vector_ip_ops%'"
        assert len(connection.scalars(text(made)).all()) == 1
    exact, same = ExactEngine(desk.database, DATASET), 0
    for asked in random.normal(size=(20, DIM)).astype(np.float32):
        wanted = {hit.seq for hit in exact.search(asked, 10, everything())}
        same += len(wanted & {hit.seq for hit in engine.search(asked, 10, everything())})
    assert same >= 196  # of 200


def test_the_table_of_another_model_goes_when_that_of_the_new_one_is_made(desk):
    desk.put("a.md", vector(1))
    desk.engine().refresh()
    [first] = tables(desk)
    other = PgVectorEngine(desk.database, DATASET, DIM, "another/2")
    other.refresh()
    [second] = tables(desk)
    assert first != second


def test_a_changed_vector_in_the_table_is_counted_and_rebuilt(desk):
    desk.put("a.md", vector(1), vector(0, 1))
    engine = desk.engine()
    engine.refresh()
    assert engine.verify() == 0
    [name] = tables(desk)
    with desk.database.write() as connection:
        changed = f"UPDATE {name} SET embedding = '[0,0,0,0,0,0,0,1]' WHERE seq = 1"
        connection.execute(text(changed))
    assert engine.verify() == 1
    assert engine.rebuild() == 2
    assert engine.verify() == 0


def test_a_damaged_vector_is_left_out_and_its_document_named(desk):
    desk.put("good.md", vector(1))
    desk.put("bad.md", vector(1, 1))
    with desk.database.write() as connection:
        key = vector(1, 1).tobytes().hex()
        spoilt = text("UPDATE embeddings SET vector = :blob WHERE embed_key = :key")
        connection.execute(spoilt, {"blob": vector(0, 1).tobytes(), "key": key})
    engine = desk.engine()
    [hit] = engine.search(vector(1), 5, everything())
    assert hit.score == 1.0
    assert engine.damaged == {f"{DATASET}:bad.md"}


def test_rows_that_another_engine_took_from_the_outbox_are_found_too(desk):
    one, other = desk.engine(), desk.engine()
    one.refresh()
    desk.put("a.md", vector(1))
    one.refresh()
    assert [hit.score for hit in other.search(vector(1), 5, everything())] == [1.0]
