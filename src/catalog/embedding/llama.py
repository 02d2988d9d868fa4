"""Any LlamaIndex embedding model as an encoder: it gains batching and isolation of failures."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from llama_index.core.base.embeddings.base import BaseEmbedding

from catalog.core.tokens import CharTokenCounter, TokenCounter
from catalog.embedding.batching import PROBE
from catalog.embedding.encoder import fingerprint

if TYPE_CHECKING:
    from catalog.embedding.encoder import Vector


class LlamaIndexEncoder:
    """Wraps a ``BaseEmbedding``; it counts tokens as four characters each, having no tokenizer.

    The fingerprint is made of class and model name: two models of one name are taken for one.
    """

    def __init__(self, model: BaseEmbedding, *, max_tokens: int = 512) -> None:
        self._model = model
        self.model = model.model_name
        self.max_tokens = max_tokens
        self.counter: TokenCounter = CharTokenCounter()

    @property
    def fingerprint(self) -> str:
        """See :class:`~catalog.embedding.encoder.Encoder`."""
        return fingerprint("llama-index", type(self._model).__qualname__, self.model)

    @cached_property
    def dim(self) -> int:
        """See :class:`~catalog.embedding.encoder.Encoder`; asks the model once."""
        return len(self._model.get_text_embedding(PROBE))

    def encode(self, texts: Sequence[str]) -> list[Vector]:
        """See :class:`~catalog.embedding.encoder.Encoder`."""
        import numpy as np

        vectors = self._model.get_text_embedding_batch(list(texts))
        return [np.asarray(vector, dtype=np.float32) for vector in vectors]
