"""The LlamaIndex embedding model this product hands out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from llama_index.core import Settings as LlamaSettings
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.callbacks import CBEventType, EventPayload
from llama_index.core.instrumentation.events.embedding import (
    EmbeddingEndEvent,
    EmbeddingStartEvent,
)
from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.dispatcher import Dispatcher
from llama_index_instrumentation.event_handlers import NullEventHandler
from pydantic import PrivateAttr

from catalog.core.errors import EmbeddingError
from catalog.core.tokens import FallbackCounter
from catalog.embedding.encoder import EmbeddingResult, Encoder, LlamaIndexEncoder, embed_in_batches
from catalog.embedding.windows import split_into_windows

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from catalog.embedding.usage import EmbeddingUsage

_dispatcher = get_dispatcher(__name__)


class ResilientEmbedding(BaseEmbedding):
    """An encoder, or any LlamaIndex model, with prefixes by side, batches, bad texts isolated.

    ``query_encoder``, when given, is the same model set up for single queries; ``has_sides`` says
    that it embeds a passage otherwise.

    ``get_query_embedding`` and ``get_text_embedding`` add the profile's prefix for their side;
    ``embed`` takes texts exactly as the model shall see them, which is what ingestion uses.
    """

    embed_batch_size: int = 32
    query_prefix: str = ""
    document_prefix: str = ""
    _encoder: Encoder = PrivateAttr()
    _query_encoder: Encoder = PrivateAttr()
    _reports: bool = PrivateAttr()
    _has_sides: bool = PrivateAttr()

    def __init__(
        self,
        encoder: Encoder | BaseEmbedding,
        *,
        query_encoder: Encoder | None = None,
        has_sides: bool = False,
        **settings: Any,
    ) -> None:
        reports = True
        if isinstance(encoder, BaseEmbedding):  # which has two sides, and reports by itself
            query_encoder, reports = LlamaIndexEncoder(encoder, side="query"), False
            encoder, has_sides = LlamaIndexEncoder(encoder), True
        super().__init__(model_name=encoder.model, **settings)
        self._encoder, self._reports, self._has_sides = encoder, reports, has_sides
        self._query_encoder = query_encoder or encoder

    @classmethod
    def class_name(cls) -> str:
        """Return the name LlamaIndex serialises."""
        return "ResilientEmbedding"

    @property
    def encoder(self) -> Encoder:
        """What runs the model: its fingerprint, dimension, window and tokenizer."""
        return self._encoder

    @property
    def usage(self) -> EmbeddingUsage | None:
        """What a server took to embed documents so far, ``None`` for a model in this process."""
        return getattr(self._encoder, "usage", None)

    def embed(self, texts: Sequence[str]) -> EmbeddingResult:
        """Embed texts as they are; see :func:`~catalog.embedding.encoder.embed_in_batches`.

        Told to LlamaIndex's callbacks and instrumentation, as its own embeddings are.
        """
        with self._reported(texts) as vectors:
            result = self._embed(texts)
            vectors.extend(result.vectors)
        return result

    def _embed(self, texts: Sequence[str]) -> EmbeddingResult:
        return embed_in_batches(
            self._encoder.encode,
            texts,
            dim=self._encoder.dim,
            batch_size=self.embed_batch_size,
        )

    def windows(self, text: str, lead: str = "", *, tokens: int | None = None) -> list[str]:
        """Cut ``text`` into what the model reads at once, prefix and ``lead`` before each.

        ``tokens`` is the size of the text, where it is known.
        """
        encoder, lead = self._encoder, self.document_prefix + lead
        counter = FallbackCounter(encoder.counter)
        return split_into_windows(text, counter, encoder.max_tokens, lead, tokens=tokens)

    def embed_query(self, query: str) -> npt.NDArray[np.float32]:
        """Return the query's vector, shape ``(dim,)``; raise :class:`EmbeddingError`."""
        return self._embed_alone(self.query_prefix + query)

    def embed_alone(self, text: str, *, is_passage: bool = False) -> npt.NDArray[np.float32]:
        """Embed one short text as it is, on the encoder that queries use; told as ``embed`` is.

        Some models treat queries and passages unlike: ``is_passage`` says which it is.
        """
        with self._reported([text]) as vectors:
            vector = self._embed_alone(text, is_passage=is_passage)
            vectors.append(vector)
        return vector

    def _embed_alone(self, text: str, *, is_passage: bool = False) -> npt.NDArray[np.float32]:
        encoder = self._encoder if is_passage and self._has_sides else self._query_encoder
        return _require_all(
            embed_in_batches(encoder.encode, [text], dim=self._encoder.dim, batch_size=1)
        )[0]

    @contextmanager
    def _reported(self, texts: Sequence[str]) -> Iterator[list[npt.NDArray[np.float32] | None]]:
        """Tell LlamaIndex of an embedding; what is appended to the yielded list is its result."""
        own = self.callback_manager
        manager = own if own.handlers else LlamaSettings.callback_manager
        if not (self._reports and (manager.handlers or _is_heard(_dispatcher))):
            yield []
            return
        about = self.to_dict()
        _dispatcher.event(EmbeddingStartEvent(model_dict=about))
        with manager.event(CBEventType.EMBEDDING, {EventPayload.SERIALIZED: about}) as event:
            vectors: list[npt.NDArray[np.float32] | None] = []
            yield vectors
            pairs = zip(texts, vectors, strict=True)
            done = [(text, vector.tolist()) for text, vector in pairs if vector is not None]
            chunks, embeddings = [text for text, _ in done], [vector for _, vector in done]
            event.on_end({EventPayload.CHUNKS: chunks, EventPayload.EMBEDDINGS: embeddings})
        _dispatcher.event(EmbeddingEndEvent(chunks=chunks, embeddings=embeddings))

    def _get_query_embedding(self, query: str) -> list[float]:
        return [float(value) for value in self.embed_query(query)]

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        prefix = self.document_prefix
        prefixed = [text if text.startswith(prefix) else prefix + text for text in texts]
        vectors = _require_all(self._embed(prefixed))
        return [[float(value) for value in vector] for vector in vectors]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return await asyncio.to_thread(self._get_text_embedding, text)


def _is_heard(dispatcher: Dispatcher | None) -> bool:
    """Tell whether any handler takes the events: to describe one takes long beside a query."""
    while dispatcher is not None:
        if any(not isinstance(one, NullEventHandler) for one in dispatcher.event_handlers):
            return True
        dispatcher = dispatcher.parent if dispatcher.propagate else None
    return False


def _require_all(result: EmbeddingResult) -> list[npt.NDArray[np.float32]]:
    if result.failures:
        first, reason = next(iter(result.failures.items()))
        raise EmbeddingError(f"text {first + 1} of {len(result.vectors)} is not embedded: {reason}")
    return [vector for vector in result.vectors if vector is not None]
