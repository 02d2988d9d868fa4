"""An embedding model as this product uses it: an encoder with its prefixes and batches."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from catalog.core.errors import EmbeddingError
from catalog.core.tokens import FallbackCounter
from catalog.embedding.encoder import EmbeddingResult, Encoder, embed_in_batches
from catalog.embedding.windows import split_into_windows

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from catalog.embedding.usage import EmbeddingUsage

    Vector = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """An encoder with prefixes by side, where one bad text costs only itself.

    ``query_encoder`` is the same model set up for single queries, ``None`` where that is
    ``encoder``. ``has_sides``: it embeds passages and queries differently. ``reports``: each
    embedding is reported to LlamaIndex's callbacks, where a program uses LlamaIndex.

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
        with self._reported(texts) as vectors:
            encode, dim = self.encoder.encode, self.encoder.dim
            result = embed_in_batches(encode, texts, dim=dim, batch_size=self.batch_size)
            vectors.extend(result.vectors)
        return result

    def windows(self, text: str, lead: str = "", *, tokens: int | None = None) -> list[str]:
        """Cut ``text`` into parts that the model reads at once, prefix and ``lead`` before each.

        ``tokens`` is the size of the text, if known.
        """
        encoder, lead = self.encoder, self.document_prefix + lead
        counter = FallbackCounter(encoder.counter)
        return split_into_windows(text, counter, encoder.max_tokens, lead, tokens=tokens)

    def embed_query(self, query: str) -> Vector:
        """Return the query's vector, shape ``(dim,)``; raise :class:`EmbeddingError`."""
        return self.embed_alone(self.query_prefix + query)

    def embed_alone(self, text: str, *, is_passage: bool = False) -> Vector:
        """Embed one short text without a prefix, by the encoder for queries.

        Some models embed passages differently: then ``is_passage`` matters.
        """
        encoder = self.query_encoder or self.encoder
        if is_passage and self.has_sides:
            encoder = self.encoder
        with self._reported([text]) as vectors:
            result = embed_in_batches(encoder.encode, [text], dim=self.encoder.dim, batch_size=1)
            vectors.extend(result.vectors)
        return require_all(result)[0]

    @contextmanager
    def _reported(self, texts: Sequence[str]) -> Iterator[list[Vector | None]]:
        """Report an embedding to LlamaIndex; the caller appends its vectors to the yielded list."""
        if not self.reports or "llama_index.core" not in sys.modules:
            yield []
            return
        from catalog.embedding.llama_events import report_embedding

        about = {"model_name": self.encoder.model, "embed_batch_size": self.batch_size}
        with report_embedding(about, texts) as vectors:
            yield vectors


def require_all(result: EmbeddingResult) -> list[Vector]:
    """Return the vectors; raise :class:`EmbeddingError` if a text has none."""
    if result.failures:
        first, reason = next(iter(result.failures.items()))
        raise EmbeddingError(f"text {first + 1} of {len(result.vectors)} is not embedded: {reason}")
    return [vector for vector in result.vectors if vector is not None]
