"""ONNX cross-encoders through fastembed: the default, no torch."""

from __future__ import annotations

import json
import mmap
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

from catalog.core.errors import ModelUnavailableError, RerankError
from catalog.core.tokens import FallbackCounter, TokenCounter
from catalog.embedding import model_files as packaged
from catalog.embedding.encoder import make_fingerprint
from catalog.embedding.model_files import ModelFiles, hash_weights, model_unavailable
from catalog.embedding.windows import ModelTokenCounter
from catalog.search_v2.rerank.base import check_scores, sigmoid
from catalog.search_v2.rerank.excerpts import cut_query, fit_pair

DEFAULT_MODEL = "cross-encoder/ms-marco-MiniLM-L-12-v2"
_HUB_NAMES: Mapping[str, str] = {  # the ONNX exports that fastembed knows
    "cross-encoder/ms-marco-MiniLM-L-6-v2": "Xenova/ms-marco-MiniLM-L-6-v2",
    DEFAULT_MODEL: "Xenova/ms-marco-MiniLM-L-12-v2",
}
_BATCH = 16
_WINDOW = 512  # of a model whose files do not tell
_registering = Lock()


class FastEmbedReranker:
    """A model from an installed package, from a folder, or from the hub, in that order.

    Reads ``max_tokens`` tokens of query and passage together, or as many as the model can.
    Raw scores are logits. Weights whose scores depend on the batch are given one pair at a time.
    """

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        max_tokens: int = _WINDOW,
        threads: int | None = None,
        offline: bool = False,
    ) -> None:
        self._model = model
        self._max_tokens = max_tokens
        self._threads = threads
        self._offline = offline
        self._packaged = packaged.RERANKERS.get(model)
        self._files = ModelFiles(model, self._packaged, self._hub_folder)
        self._loading = Lock()

    @property
    def name(self) -> str:
        """See :class:`~catalog.search_v2.rerank.base.Reranker`."""
        return Path(self._model).name

    @cached_property
    def fingerprint(self) -> str:
        """See :class:`~catalog.search_v2.rerank.base.Reranker`."""
        weights = self._files.weights_hash if self._files.is_local else hash_weights(self._weights)
        return make_fingerprint("fastembed-rerank", weights, self._window)

    @cached_property
    def batch_size(self) -> int:
        """1 for weights quantised at run time: each score would depend on its neighbours."""
        known = self._files.known
        alone = not known.batch_invariant if known else _quantises(self._weights)
        return 1 if alone else _BATCH

    def fitted(self, query: str, passage: str, *, head: str = "") -> tuple[str, bool]:
        """See :class:`~catalog.search_v2.rerank.base.Reranker`."""
        return fit_pair(query, passage, self._counter, self._window, head)

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        """See :class:`~catalog.search_v2.rerank.base.Reranker`; a long query is cut to its head."""
        with self._loading:
            model = self._loaded
        query = cut_query(query, self._counter, self._window)
        order = sorted(range(len(passages)), key=lambda index: len(passages[index]))
        ordered = [passages[index] for index in order]
        try:
            answers = list(model.rerank(query, ordered, batch_size=self.batch_size))
        except Exception as error:
            raise RerankError(f"{self.name} failed: {error}") from error
        numbers = check_scores(answers, len(passages), self.name)
        return [number for _, number in sorted(zip(order, numbers, strict=True))]

    def relevance(self, score: float) -> float:
        """See :class:`~catalog.search_v2.rerank.base.Reranker`; the sigmoid of the logit."""
        return sigmoid(score)

    @property
    def _weights(self) -> Path:
        if self._files.is_local:
            return self._files.weights_file
        description = self._from_hub.model.model_description  # other variants may lie beside it
        return Path(self._files.folder / description.model_file)

    @cached_property
    def _window(self) -> int:
        """Tokens of a pair: the setting, or the model's own limit where that is lower."""
        path = self._files.folder / "tokenizer_config.json"
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ModelUnavailableError(f"{path} cannot be read") from error
        told = [config.get(key) for key in ("model_max_length", "max_length")]
        limits = [limit for limit in told if isinstance(limit, int) and 0 < limit < 1_000_000]
        return min(self._max_tokens, *limits) if limits else min(self._max_tokens, _WINDOW)

    @cached_property
    def _counter(self) -> TokenCounter:
        path = self._files.folder / "tokenizer.json"
        return FallbackCounter(ModelTokenCounter(path, f"tokenizer of {self._model}"))

    @cached_property
    def _loaded(self) -> Any:
        if not self._files.is_local:
            self._from_hub.model.load_onnx_model()
            return self._from_hub
        self._files.verify()
        from fastembed.rerank.cross_encoder import TextCrossEncoder

        name = f"catalog/{self.fingerprint}"
        folder = self._files.folder
        weights = str(self._weights.relative_to(folder))
        with _registering:
            _register(name, weights)
        try:
            return TextCrossEncoder(name, specific_model_path=str(folder), threads=self._threads)
        except Exception as error:
            raise ModelUnavailableError(f"{folder} holds no usable reranker: {error}") from error

    def _hub_folder(self) -> Path:
        return Path(self._from_hub.model._model_dir)

    @cached_property
    def _from_hub(self) -> Any:
        from fastembed.rerank.cross_encoder import TextCrossEncoder

        try:
            return TextCrossEncoder(
                _HUB_NAMES.get(self._model, self._model),
                threads=self._threads,
                lazy_load=True,
                local_files_only=self._offline,
            )
        except (ValueError, OSError) as error:
            raise model_unavailable(
                self._model, self._packaged.extra if self._packaged else "offline"
            ) from error


def _register(name: str, weights: str) -> None:
    from fastembed.common.model_description import ModelSource
    from fastembed.rerank.cross_encoder import TextCrossEncoder

    if all(known["model"] != name for known in TextCrossEncoder.list_supported_models()):
        TextCrossEncoder.add_custom_model(
            model=name, sources=ModelSource(hf=name), model_file=weights
        )


def _quantises(weights: Path) -> bool:
    """Whether the ONNX graph scales its inputs by what is in the batch (dynamic quantisation)."""
    with weights.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data.find(b"DynamicQuantize") >= 0
