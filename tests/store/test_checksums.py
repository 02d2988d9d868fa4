"""Rows that are not what was written: found, named, never answered from; the rest answers."""

import numpy as np
import pytest

from builders import NOW, make_database, put, seqs_of
from catalog.core.errors import DamagedDocumentError
from catalog.store import embedding_cache
from catalog.store.chunks import find_by_path, find_damaged_documents, load_chunks
from catalog.store.embedding_cache import find_damaged_vectors
from tables import read_cases, table

CHANGES = read_cases(__file__)["changes"]


@pytest.fixture
def database(tmp_path):
    database = make_database(tmp_path)
    put(database, "d", "a.md", "Rotate the keys.", title="A", metadata={"team": "x"})
    put(database, "d", "b.md", "Bake the bread.", title="B", metadata={"team": "y"})
    yield database
    database.close()


def change(database, statement):
    with database.write() as connection:
        connection.exec_driver_sql("DROP TRIGGER IF EXISTS chunks_fts_update")
        assert connection.exec_driver_sql(statement).rowcount == 1


@pytest.mark.parametrize("statement", CHANGES)
def test_a_changed_passage_is_left_out_and_named_and_the_other_passages_are_read(
    database, statement
):
    change(database, statement)
    damaged: list[DamagedDocumentError] = []
    with database.read() as connection:
        chunks = load_chunks(connection, "d", [1, 2], damaged=damaged)
        found = [number for number, _ in find_damaged_documents(connection, "d")]
    assert [chunk.path for chunk in chunks.values()] == ["b.md"]
    assert len(damaged) == 1
    assert damaged[0].document in ("d:a.md", "a document whose name cannot be read")
    assert "catalog doctor" in str(damaged[0])
    assert found == [1]


def test_without_a_list_for_them_damage_is_an_error(database):
    change(database, CHANGES[0])
    with database.read() as connection, pytest.raises(DamagedDocumentError, match="d:a"):
        load_chunks(connection, "d", [1, 2])


@table("statement")
def test_a_changed_text_is_an_error_for_its_document_alone(database, statement):
    change(database, statement)
    with database.read() as connection:
        with pytest.raises(DamagedDocumentError, match="d:a"):
            find_by_path(connection, "d", "a.md")
        other = find_by_path(connection, "d", "b.md")
    assert other is not None
    assert other.text == "Bake the bread."


def test_a_changed_vector_counts_as_missing(database):
    vector = np.array([1, 2, 3], dtype=np.float32)
    save = {"fingerprint": "f", "now": NOW}
    with database.write() as connection:
        embedding_cache.save(connection, {"k": vector, "l": vector}, **save)
        connection.exec_driver_sql(
            "UPDATE embeddings SET vector = x'000000000000803f00000000' WHERE embed_key = 'k'"
        )
        assert set(embedding_cache.load(connection, ["k", "l"])) == {"l"}
        assert find_damaged_vectors(connection) == ["k"]


def test_published_documents_have_checksums(database):
    put(database, "d", "c.md", ["One.", "Two."], embed_keys=["x", "y"], sections=["S"])
    with database.read() as connection:
        assert list(find_damaged_documents(connection, "d")) == []
        assert len(load_chunks(connection, "d", seqs_of(database, "d", "c.md"))) == 2
