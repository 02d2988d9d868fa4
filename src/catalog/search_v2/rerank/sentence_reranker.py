"""Cross-encoders through sentence-transformers (needs torch)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

from catalog.core.errors import MissingExtraError, ModelUnavailableError, RerankError
from catalog.core.tokens import FallbackCounter, TokenCounter
from catalog.embedding import model_files as packaged
from catalog.embedding.encoder import make_fingerprint
from catalog.embedding.model_files import model_unavailable
from catalog.embedding.windows import ModelTokenCounter
from catalog.search_v2.rerank.base import check_scores, sigmoid
from catalog.search_v2.rerank.excerpts import cut_query, fit_pair

_BATCH = 16
_WINDOW = 512
_FILES = ("*.json", "*.txt", "*.model", "*.safetensors")


class SentenceTransformersReranker:
    """A model from a folder or from the hub; only safetensors weights, never a model's own code.

    Raw scores are logits.
    """

    batch_size = _BATCH

    def __init__(self, model: str, *, max_tokens: int = _WINDOW, offline: bool = False) -> None:
        self._model = model
        self._max_tokens = max_tokens
        self._offline = offline
        self._loading = Lock()

    @property
    def name(self) -> str:
        """See :class:`~catalog.search_v2.rerank.base.Reranker`."""
        return Path(self._model).name

    @cached_property
    def fingerprint(self) -> str:
        """See :class:`~catalog.search_v2.rerank.base.Reranker`."""
        weights = [packaged.hash_file(path) for path in sorted(self._folder.glob("*.safetensors"))]
        if not weights:
            raise ModelUnavailableError(f"the folder {self._folder} holds no .safetensors model")
        return make_fingerprint("sentence-transformers-rerank", *weights, self._window)

    def fitted(self, query: str, passage: str, *, head: str = "") -> tuple[str, bool]:
        """See :class:`~catalog.search_v2.rerank.base.Reranker`."""
        return fit_pair(query, passage, self._counter, self._window, head)

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        """See :class:`~catalog.search_v2.rerank.base.Reranker`; a long query is cut to its head."""
        model = self._once_loaded()
        query = cut_query(query, self._counter, self._window)
        pairs = [(query, passage) for passage in passages]
        try:
            answers = model.predict(pairs, batch_size=_BATCH, show_progress_bar=False).tolist()
        except Exception as error:
            raise RerankError(f"{self.name} failed: {error}") from error
        return check_scores(answers, len(passages), self.name)

    def relevance(self, score: float) -> float:
        """See :class:`~catalog.search_v2.rerank.base.Reranker`; the sigmoid of the logit."""
        return sigmoid(score)

    @cached_property
    def _folder(self) -> Path:
        if Path(self._model).is_dir():
            return Path(self._model)
        from huggingface_hub import snapshot_download

        try:
            return Path(
                snapshot_download(
                    self._model, allow_patterns=list(_FILES), local_files_only=self._offline
                )
            )
        except (ValueError, OSError) as error:
            raise model_unavailable(self._model, "huggingface") from error

    @cached_property
    def _window(self) -> int:
        return min(self._max_tokens, int(self._once_loaded().max_seq_length or _WINDOW))

    @cached_property
    def _counter(self) -> TokenCounter:
        path = self._folder / "tokenizer.json"
        return FallbackCounter(ModelTokenCounter(path, f"tokenizer of {self._model}"))

    def _once_loaded(self) -> Any:
        with self._loading:
            return self._loaded

    @cached_property
    def _loaded(self) -> Any:
        try:
            import torch
            from sentence_transformers import CrossEncoder
        except ImportError as error:
            raise MissingExtraError("the sentence_transformers reranker", "huggingface") from error
        try:
            model = CrossEncoder(
                str(self._folder),
                activation_fn=torch.nn.Identity(),
                local_files_only=True,
                trust_remote_code=False,
            )
        except (ValueError, OSError) as error:
            raise ModelUnavailableError(
                f"{self._folder} holds no usable cross-encoder: {error}"
            ) from error
        if model.num_labels != 1:
            raise ModelUnavailableError(
                f"{self._model} gives {model.num_labels} scores a pair: it is no reranker"
            )
        return model
