"""The vectors of texts, kept by model, side and text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from builders import make_database
from catalog.store import Database, embedding_cache
from catalog.store.embedding_cache import Side, embed_key

pytestmark = pytest.mark.both_stores

MODEL = "toy/1"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = make_database(tmp_path)
    yield made
    made.close()


def save(database: Database, side: Side, text: str, *numbers: float) -> str:
    key = embed_key(MODEL, side, text)
    vectors = {key: np.array(numbers, dtype=np.float32)}
    with database.write() as connection:
        embedding_cache.save(connection, vectors, fingerprint=MODEL, side=side, now=1.0)
    return key


def test_a_text_as_query_and_as_document_has_two_keys_and_two_vectors(database: Database):
    document = save(database, "document", "rotate the keys", 1, 0)
    query = save(database, "query", "rotate the keys", 0, 1)
    assert document != query
    with database.read() as connection:
        vectors = embedding_cache.load(connection, [document, query])
    assert {key: vector.tolist() for key, vector in vectors.items()} == {
        document: [1, 0],
        query: [0, 1],
    }


def test_a_key_depends_on_model_side_and_every_character_of_the_text():
    keys = {
        embed_key(model, side, text)
        for model in ("toy/1", "toy/2")
        for side in ("query", "document")
        for text in ("text", "text ", "Text", "")
    }
    assert len(keys) == 16


def test_a_key_names_the_same_vector_in_stores_made_before():
    assert embed_key("toy/1", "query", "text") == "838ab76e2358db1b56afbf338ecc1a906f0360ce"


def test_a_vector_that_is_there_stays_and_what_is_not_there_is_missing(database: Database):
    key = save(database, "document", "text", 1, 2)
    assert save(database, "document", "text", 3, 4) == key
    with database.read() as connection:
        assert embedding_cache.load(connection, [key, "other"])[key].tolist() == [1, 2]
        assert embedding_cache.find_missing(connection, [key, "other"]) == {"other"}
