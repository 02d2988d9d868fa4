"""Embedding in batches: one bad text costs only itself, and a dead model is not a bad text."""

import numpy as np
import pytest
from llama_index.core.embeddings import MockEmbedding

from catalog.core.errors import EmbeddingError, ModelUnavailableError
from catalog.embedding import as_model
from catalog.embedding.encoder import embed_in_batches
from catalog.search.embed_model import ResilientEmbedding


def vectors(texts):
    return [np.full(4, len(text) or 0.5, dtype=np.float32) for text in texts]


class Model:
    def __init__(self, bad=()):
        self.bad, self.calls = set(bad), []

    def encode(self, texts):
        self.calls.append(list(texts))
        if self.bad & set(texts):
            raise ValueError("bad text")
        return vectors(texts)


def embed(encode, texts, batch_size=32):
    return embed_in_batches(encode, texts, dim=4, batch_size=batch_size)


def test_batches_hold_texts_of_like_length():
    model = Model()
    embed(model.encode, ["a" * 9, "b", "c" * 8, "d" * 2], batch_size=2)
    assert [[len(text) for text in call] for call in model.calls] == [[1, 2], [8, 9]]


def test_a_bad_text_is_isolated_by_halving_and_the_rest_is_embedded():
    texts = [f"text {number:02}" for number in range(32)]
    model = Model(bad=["text 13"])
    result = embed(model.encode, texts)
    assert list(result.failures) == [13]
    assert "bad text" in result.failures[13]
    assert sum(vector is not None for vector in result.vectors) == 31
    assert len(model.calls) <= 11  # 1 + two halves on each of the five levels


def test_when_every_text_fails_but_a_probe_works_the_texts_are_to_blame():
    result = embed(Model(bad=["x", "y"]).encode, ["x", "y"])
    assert sorted(result.failures) == [0, 1]


def test_when_the_probe_fails_too_the_model_is_down_and_no_text_is_blamed():
    def dead(_texts):
        raise ConnectionError("refused")

    with pytest.raises(EmbeddingError, match="refused"):
        embed(dead, ["x", "y"])


def test_a_model_that_cannot_be_had_is_not_taken_for_a_bad_text():
    def absent(_texts):
        raise ModelUnavailableError("install it")

    with pytest.raises(ModelUnavailableError):
        embed(absent, ["x"])


def test_any_llama_index_model_can_be_made_resilient():
    class Flaky(MockEmbedding):
        def _get_text_embeddings(self, texts):
            if "bad" in texts:
                raise ValueError("bad text")
            return super()._get_text_embeddings(texts)

    model = ResilientEmbedding(as_model(Flaky(embed_dim=8)))
    assert as_model(model) is model.model  # not wrapped again
    result = model.model.embed(["good", "bad", "fine"])
    assert list(result.failures) == [1]
    assert len(model.get_text_embedding("good")) == model.encoder.dim == 8
    with pytest.raises(EmbeddingError, match="bad text"):
        model.get_text_embedding_batch(["good", "bad"])
