"""The LlamaIndex embedding model this product hands out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from pydantic import PrivateAttr

from catalog.core.errors import EmbeddingError
from catalog.core.tokens import FallbackCounter
from catalog.embedding.encoder import EmbeddingResult, Encoder, LlamaIndexEncoder, embed_in_batches
from catalog.embedding.windows import split_into_windows

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class ResilientEmbedding(BaseEmbedding):
    """An encoder, or any LlamaIndex model, with prefixes by side, batches, bad texts isolated.

    ``query_encoder``, when given, is the same model set up for single queries.

    ``get_query_embedding`` and ``get_text_embedding`` add the profile's prefix for their side;
    ``embed`` takes texts exactly as the model shall see them, which is what ingestion uses.
    """

    embed_batch_size: int = 32
    query_prefix: str = ""
    document_prefix: str = ""
    _encoder: Encoder = PrivateAttr()
    _query_encoder: Encoder = PrivateAttr()

    def __init__(
        self,
        encoder: Encoder | BaseEmbedding,
        *,
        query_encoder: Encoder | None = None,
        **settings: Any,
    ) -> None:
        if isinstance(encoder, BaseEmbedding):
            encoder = LlamaIndexEncoder(encoder)
        super().__init__(model_name=encoder.model, **settings)
        self._encoder = encoder
        self._query_encoder = query_encoder or encoder

    @classmethod
    def class_name(cls) -> str:
        """Return the name LlamaIndex serialises."""
        return "ResilientEmbedding"

    @property
    def encoder(self) -> Encoder:
        """What runs the model: its fingerprint, dimension, window and tokenizer."""
        return self._encoder

    def embed(self, texts: Sequence[str]) -> EmbeddingResult:
        """Embed texts as they are; see :func:`~catalog.embedding.encoder.embed_in_batches`."""
        return embed_in_batches(
            self._encoder.encode,
            texts,
            dim=self._encoder.dim,
            batch_size=self.embed_batch_size,
        )

    def windows(self, text: str, lead: str = "") -> list[str]:
        """Cut ``text`` into what the model reads at once, prefix and ``lead`` before each."""
        counter = FallbackCounter(self._encoder.counter)
        return split_into_windows(
            text, counter, self._encoder.max_tokens, self.document_prefix + lead
        )

    def embed_query(self, query: str) -> npt.NDArray[np.float32]:
        """Return the query's vector, shape ``(dim,)``; raise :class:`EmbeddingError`."""
        return self.embed_alone(self.query_prefix + query)

    def embed_alone(self, text: str) -> npt.NDArray[np.float32]:
        """Embed one short text as it is, on the encoder that queries use."""
        encoder = self._query_encoder
        return _require_all(
            embed_in_batches(encoder.encode, [text], dim=encoder.dim, batch_size=1)
        )[0]

    def _get_query_embedding(self, query: str) -> list[float]:
        return [float(value) for value in self.embed_query(query)]

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        vectors = _require_all(self.embed([self.document_prefix + text for text in texts]))
        return [[float(value) for value in vector] for vector in vectors]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return await asyncio.to_thread(self._get_text_embedding, text)


def _require_all(result: EmbeddingResult) -> list[npt.NDArray[np.float32]]:
    if result.failures:
        first, reason = next(iter(result.failures.items()))
        raise EmbeddingError(f"text {first + 1} of {len(result.vectors)} is not embedded: {reason}")
    return [vector for vector in result.vectors if vector is not None]
