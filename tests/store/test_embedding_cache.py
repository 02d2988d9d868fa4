"""The vectors of texts, kept by model, side and text."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from builders import make_database
from catalog.store import Database, embedding_cache
from catalog.store.embedding_cache import embed_key

pytestmark = pytest.mark.both_stores

MODEL = "toy/1"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = make_database(tmp_path)
    yield made
    made.close()


def save(database: Database, text: str, *numbers: float) -> str:
    key = embed_key(MODEL, text)
    vectors = {key: np.array(numbers, dtype=np.float32)}
    with database.write() as connection:
        embedding_cache.save(connection, vectors, fingerprint=MODEL, now=1.0)
    return key


def test_a_key_depends_on_the_model_and_every_character_of_the_text():
    texts = ("text", "text ", "Text", "")
    assert len({embed_key(model, text) for model in ("toy/1", "toy/2") for text in texts}) == 8


def test_a_key_names_the_same_vector_in_stores_made_before():
    assert embed_key("toy/1", "text") == "32b8df87503963544056c3fdc09a5cf9e3c644df"


def test_a_vector_that_is_there_stays_and_what_is_not_there_is_missing(database: Database):
    key = save(database, "text", 1, 2)
    assert save(database, "text", 3, 4) == key
    with database.read() as connection:
        vectors = embedding_cache.load(connection, [key, "other"])
    assert {key: vector.tolist() for key, vector in vectors.items()} == {key: [1, 2]}
