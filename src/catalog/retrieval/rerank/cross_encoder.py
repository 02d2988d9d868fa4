"""Cross-encoders in this process: ONNX models (the default), or torch ones."""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

from catalog.core.errors import MissingExtraError, ModelUnavailableError, RerankError
from catalog.core.tokens import FallbackCounter, TokenCounter
from catalog.embedding.encoder import make_fingerprint
from catalog.embedding.fastembed import OnnxModel, open_onnx_model
from catalog.embedding.windows import ModelTokenCounter
from catalog.models.model_files import ModelFiles
from catalog.models.packaged import MS_MARCO
from catalog.retrieval.rerank.scoring import cut_query, fit_pair, sigmoid

DEFAULT_MODEL = MS_MARCO.name
_BATCH = 16
_WINDOW = 512  # tokens, if the model does not say


class _CrossEncoder(ABC):
    """A cross-encoder on this machine; its raw scores are logits.

    Subclasses have ``_window`` (tokens of a pair) and ``_loaded`` (the model).
    """

    _provider: str
    _window: Any
    _loaded: Any

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        max_tokens: int = _WINDOW,
        threads: int | None = None,
        offline: bool = False,
    ) -> None:
        self.name, self._max_tokens, self._threads = Path(model).name, max_tokens, threads
        self._files = ModelFiles("reranker", self._provider, model, offline=offline)
        self._loading = Lock()

    @cached_property
    def fingerprint(self) -> str:
        """Identify the weights and the window."""
        kind = f"{self._provider.replace('_', '-')}-rerank"
        return make_fingerprint(kind, self._files.weights_hash, self._window)

    def fit(self, query: str, passage: str, *, head: str = "") -> tuple[str, bool]:
        """Return the part of a passage that the model can read, and whether any was cut."""
        return fit_pair(query, passage, self._counter, self._window, head)

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        """Score each passage, in order; a long query is cut to its head."""
        model = self._load_once()
        query = cut_query(query, self._counter, self._window)
        try:
            return self._predict(model, [(query, passage) for passage in passages])
        except Exception as error:
            raise RerankError(f"{self.name} failed: {error}") from error

    def relevance(self, score: float) -> float:
        """Return the sigmoid of a logit."""
        return sigmoid(score)

    @abstractmethod
    def _predict(self, model: Any, pairs: list[tuple[str, str]]) -> list[float]: ...

    def _load_once(self) -> Any:
        with self._loading:
            return self._loaded

    @cached_property
    def _counter(self) -> TokenCounter:
        path = self._files.folder / "tokenizer.json"
        return FallbackCounter(ModelTokenCounter(path, f"tokenizer of {self._files.name}"))


class FastEmbedReranker(_CrossEncoder):
    """An ONNX model from a folder, an installed package or the hub cache."""

    _provider = "fastembed"

    @cached_property
    def batch_size(self) -> int:
        """Return 1 unless the weights are known to score each pair alike in any batch."""
        known = self._files.known
        return _BATCH if known and known.batch_invariant else 1

    def _predict(self, model: OnnxModel, pairs: list[tuple[str, str]]) -> list[float]:
        return list(model.score(pairs, batch_size=self.batch_size))

    @cached_property
    def _window(self) -> int:
        path = self._files.folder / "tokenizer_config.json"
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ModelUnavailableError(f"{path} cannot be read") from error
        values = config.get("model_max_length"), config.get("max_length")
        limits = [limit for limit in values if isinstance(limit, int) and 0 < limit < 1_000_000]
        return min(self._max_tokens, *limits or [_WINDOW])

    @cached_property
    def _loaded(self) -> OnnxModel:
        files, folder = self._files, self._files.folder
        files.verify()
        options = {"max_tokens": self._window, "threads": self._threads}
        try:
            return open_onnx_model(files.weights_file, folder / "tokenizer.json", **options)
        except Exception as error:
            message = f"{folder} has no usable reranker: {error}"
            raise ModelUnavailableError(message) from error


class SentenceTransformersReranker(_CrossEncoder):
    """A torch model from a folder or the hub: safetensors weights, never a model's own code."""

    _provider = "sentence_transformers"
    batch_size = _BATCH

    def _predict(self, model: Any, pairs: list[tuple[str, str]]) -> list[float]:
        scores = model.predict(pairs, batch_size=_BATCH, show_progress_bar=False)
        return list(scores.tolist())

    @cached_property
    def _window(self) -> int:
        return min(self._max_tokens, int(self._load_once().max_seq_length or _WINDOW))

    @cached_property
    def _loaded(self) -> Any:
        try:
            import torch
            from sentence_transformers import CrossEncoder
        except ImportError as error:
            raise MissingExtraError("the sentence_transformers reranker", "huggingface") from error
        folder = self._files.folder
        config = (folder / "config.json").read_bytes()
        if b'ForCausalLM"' in config and not (folder / "modules.json").is_file():
            raise ModelUnavailableError(  # scores by the words yes and no would mean nothing
                f"{folder} is a language model without the modules.json that makes it a reranker: "
                "use a server that has it, with IDX_RAG_V2__RERANK_PROVIDER=http"
            )
        safe = {"local_files_only": True, "trust_remote_code": False}
        try:
            model = CrossEncoder(str(folder), activation_fn=torch.nn.Identity(), **safe)
        except (ValueError, OSError) as error:
            message = f"{folder} has no usable cross-encoder: {error}"
            raise ModelUnavailableError(message) from error
        if model.num_labels != 1:
            raise ModelUnavailableError(
                f"{self.name} returns {model.num_labels} scores per pair, so it is not a reranker"
            )
        return model
