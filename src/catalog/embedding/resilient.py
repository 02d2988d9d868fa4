"""Embedding models for LlamaIndex, and LlamaIndex's as ours."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index_instrumentation import get_dispatcher
from pydantic import PrivateAttr

from catalog.core.tokens import CharTokenCounter, TokenCounter
from catalog.embedding.encoder import PROBE, Encoder, embed_in_batches, make_fingerprint
from catalog.embedding.model import EmbeddingModel, require_all

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vector = npt.NDArray[np.float32]

_dispatcher = get_dispatcher(__name__)


class ResilientEmbedding(BaseEmbedding):
    """An :class:`EmbeddingModel`, or an encoder, as a LlamaIndex embedding model.

    ``get_query_embedding`` and ``get_text_embedding`` add the prefix of their side. ``settings``
    are fields of :class:`EmbeddingModel`.
    """

    _model: EmbeddingModel = PrivateAttr()

    def __init__(self, model: EmbeddingModel | Encoder | BaseEmbedding, **settings: Any) -> None:
        if not isinstance(model, EmbeddingModel):
            model = (
                to_model(model)
                if isinstance(model, BaseEmbedding)
                else EmbeddingModel(model, **settings)
            )
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
        """What runs the model: its fingerprint, dimension, window and tokenizer."""
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


def to_model(given: BaseEmbedding) -> EmbeddingModel:
    """Return any LlamaIndex model as ours; it has two sides, and reports by itself."""
    if isinstance(given, ResilientEmbedding):
        return given.model
    return EmbeddingModel(
        LlamaIndexEncoder(given),
        LlamaIndexEncoder(given, side="query"),
        has_sides=True,
        reports=False,
    )


class LlamaIndexEncoder:
    """An encoder around one side of any ``BaseEmbedding``: that of queries, or of other texts.

    It has no tokenizer and counts four characters as a token. The fingerprint is made of
    class and model name: two models of one name are taken for one.
    """

    def __init__(
        self,
        model: BaseEmbedding,
        *,
        max_tokens: int = 512,
        side: Literal["query", "text"] = "text",
    ) -> None:
        self._model, self._side = model, side
        self.model = model.model_name
        self.max_tokens = max_tokens
        self.counter: TokenCounter = CharTokenCounter()

    @property
    def fingerprint(self) -> str:
        """Names class and model; see :class:`Encoder`."""
        return make_fingerprint("llama-index", type(self._model).__qualname__, self.model)

    @cached_property
    def dim(self) -> int:
        """Length of every vector; asks the model once."""
        return len(self._model.get_text_embedding(PROBE))

    def encode(self, texts: Sequence[str]) -> list[Vector]:
        """Return one vector of shape ``(dim,)`` for each text, in order."""
        import numpy as np

        if self._side == "query":
            vectors = [self._model.get_query_embedding(text) for text in texts]
        else:
            vectors = self._model.get_text_embedding_batch(list(texts))
        return [np.asarray(vector, dtype=np.float32) for vector in vectors]
