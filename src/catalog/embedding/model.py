"""An embedding model as used here: an encoder with its prefixes and batches."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from catalog.core.errors import EmbeddingError
from catalog.core.tokens import CharTokenCounter, FallbackCounter, TokenCounter
from catalog.embedding.encoder import (
    PROBE,
    EmbeddingResult,
    Encoder,
    embed_in_batches,
    make_fingerprint,
)
from catalog.embedding.windows import split_into_windows

if TYPE_CHECKING:
    from catalog.embedding.encoder import EmbeddingUsage, Vector


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """An encoder with a prefix for each side; in a batch, a bad text affects only itself.

    ``query_encoder`` is the same model set up for single queries, ``None`` if that is ``encoder``.
    ``has_sides``: it embeds passages and queries differently. ``reports``: to LlamaIndex.

    >>> from catalog.embedding import get_model
    >>> get_model().embed_query("how to rotate a key").shape  # doctest: +SKIP
    (384,)
    """

    encoder: Encoder
    query_encoder: Encoder | None = None
    has_sides: bool = False
    batch_size: int = 32
    query_prefix: str = ""
    document_prefix: str = ""
    reports: bool = True

    @property
    def usage(self) -> EmbeddingUsage | None:
        """Requests, tokens and cost of a server so far; ``None`` for a model in this process."""
        return getattr(self.encoder, "usage", None)

    def embed(self, texts: Sequence[str]) -> EmbeddingResult:
        """Embed texts without a prefix; see :func:`~catalog.embedding.encoder.embed_in_batches`."""
        return self._embed(self.encoder, texts, self.batch_size)

    def windows(self, text: str, lead: str = "", *, tokens: int | None = None) -> list[str]:
        """Cut ``text``, of ``tokens``, into windows with prefix and ``lead`` before each."""
        encoder, lead = self.encoder, self.document_prefix + lead
        counter = FallbackCounter(encoder.counter)
        return split_into_windows(text, counter, encoder.max_tokens, lead, tokens=tokens)

    def embed_query(self, query: str) -> Vector:
        """Return the query's vector, shape ``(dim,)``; raise :class:`EmbeddingError`."""
        return self.embed_alone(self.query_prefix + query)

    def embed_alone(self, text: str, *, is_passage: bool = False) -> Vector:
        """Embed one short text without a prefix, by the encoder for queries.

        ``is_passage`` matters for models that embed passages differently.
        """
        encoder = self.encoder if is_passage and self.has_sides else self.query_encoder
        return require_all(self._embed(encoder or self.encoder, [text], 1))[0]

    def _embed(self, encoder: Encoder, texts: Sequence[str], batch_size: int) -> EmbeddingResult:
        vectors: list[Vector | None] = []
        about = {"model_name": encoder.model, "embed_batch_size": self.batch_size}
        with _reporting(about, texts, vectors) if self.reports else nullcontext():
            encode, dim = encoder.encode, self.encoder.dim
            result = embed_in_batches(encode, texts, dim=dim, batch_size=batch_size)
            vectors.extend(result.vectors)
        return result


@contextmanager
def _reporting(
    about: dict[str, Any], texts: Sequence[str], vectors: list[Vector | None]
) -> Iterator[None]:
    """Report an embedding to LlamaIndex's callbacks and instrumentation, like its own.

    ``vectors`` are there when the block ends. If the program has not loaded LlamaIndex, nobody
    listens.
    """
    if "llama_index.core" not in sys.modules:
        yield
        return
    from llama_index.core import Settings
    from llama_index.core.callbacks import CBEventType, EventPayload
    from llama_index.core.instrumentation.events import embedding
    from llama_index_instrumentation import get_dispatcher

    manager, dispatcher = Settings.callback_manager, get_dispatcher(__name__)
    dispatcher.event(embedding.EmbeddingStartEvent(model_dict=about))
    with manager.event(CBEventType.EMBEDDING, {EventPayload.SERIALIZED: about}) as event:
        yield
        pairs = zip(texts, vectors, strict=True)
        done = [(text, vector.tolist()) for text, vector in pairs if vector is not None]
        chunks, embeddings = [text for text, _ in done], [vector for _, vector in done]
        event.on_end({EventPayload.CHUNKS: chunks, EventPayload.EMBEDDINGS: embeddings})
    dispatcher.event(embedding.EmbeddingEndEvent(chunks=chunks, embeddings=embeddings))


def require_all(result: EmbeddingResult) -> list[Vector]:
    """Return the vectors; raise :class:`EmbeddingError` if a text has none."""
    if result.failures:
        first, reason = next(iter(result.failures.items()))
        raise EmbeddingError(f"text {first + 1} of {len(result.vectors)} is not embedded: {reason}")
    return [vector for vector in result.vectors if vector is not None]


class GivenModel(Protocol):
    """A caller's own embedding model; any ``BaseEmbedding`` of LlamaIndex fits."""

    model_name: str

    def get_query_embedding(self, query: str) -> list[float]:
        """Embed a query."""

    def get_text_embedding(self, text: str) -> list[float]:
        """Embed a passage."""

    def get_text_embedding_batch(self, texts: list[str]) -> list[list[float]]:
        """Embed passages."""


def as_model(given: EmbeddingModel | GivenModel) -> EmbeddingModel:
    """Return our model as it is, or wrap the caller's own, with two sides and its own reports."""
    if isinstance(own := getattr(given, "model", given), EmbeddingModel):
        return own  # or that within LlamaIndex's form of it
    text, query = GivenEncoder(it := cast(Any, given), "text"), GivenEncoder(it, "query")
    return EmbeddingModel(text, query, has_sides=True, reports=False)


class GivenEncoder:
    """An encoder for one side of a caller's own model: queries, or other texts.

    It has no tokenizer and counts four characters as a token. The fingerprint consists of class and
    model name, so two models with the same name count as the same.
    """

    max_tokens = 512
    counter: TokenCounter = CharTokenCounter()

    def __init__(self, model: GivenModel, side: Literal["query", "text"]) -> None:
        self._model, self._side, self.model = model, side, model.model_name

    @property
    def fingerprint(self) -> str:
        """Identify class and model; see :class:`Encoder`."""
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
