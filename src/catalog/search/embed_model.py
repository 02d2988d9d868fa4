"""The configured embedding model as a LlamaIndex model."""

from __future__ import annotations

import asyncio

from llama_index.core.base.embeddings.base import BaseEmbedding
from pydantic import PrivateAttr

from catalog.core.settings import EmbeddingSettings
from catalog.embedding import EmbeddingModel, get_model
from catalog.embedding.encoder import Encoder, embed_in_batches
from catalog.embedding.model import require_all


def get_embed_model(settings: EmbeddingSettings) -> ResilientEmbedding:
    """Return the model of the settings as a LlamaIndex ``BaseEmbedding``."""
    return ResilientEmbedding(get_model(settings))


class ResilientEmbedding(BaseEmbedding):
    """An :class:`EmbeddingModel` as a LlamaIndex embedding model.

    ``get_query_embedding`` and ``get_text_embedding`` add the prefix of their side.
    """

    _model: EmbeddingModel = PrivateAttr()

    def __init__(self, model: EmbeddingModel) -> None:
        super().__init__(model_name=model.encoder.model, embed_batch_size=model.batch_size)
        self._model = model

    @classmethod
    def class_name(cls) -> str:
        """Return the name LlamaIndex serialises."""
        return "ResilientEmbedding"

    @property
    def model(self) -> EmbeddingModel:
        """The model as ours."""
        return self._model

    @property
    def encoder(self) -> Encoder:
        """The encoder that runs the model: its fingerprint, dimension, window and tokenizer."""
        return self._model.encoder

    def _get_query_embedding(self, query: str) -> list[float]:
        model = self._model
        encoder, text = model.query_encoder or model.encoder, model.query_prefix + query
        result = embed_in_batches(encoder.encode, [text], dim=model.encoder.dim, batch_size=1)
        return [float(value) for value in require_all(result)[0]]

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        model, prefix = self._model, self._model.document_prefix
        prefixed = [text if text.startswith(prefix) else prefix + text for text in texts]
        encode, dim = model.encoder.encode, model.encoder.dim
        result = embed_in_batches(encode, prefixed, dim=dim, batch_size=model.batch_size)
        return [[float(value) for value in vector] for vector in require_all(result)]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return await asyncio.to_thread(self._get_text_embedding, text)
