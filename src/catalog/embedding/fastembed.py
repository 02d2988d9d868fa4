"""ONNX models through fastembed: the default, no torch."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any

from catalog.core.errors import ModelUnavailableError
from catalog.core.settings import EmbeddingSettings
from catalog.core.tokens import TokenCounter
from catalog.embedding.encoder import make_fingerprint
from catalog.embedding.profiles import profile_of
from catalog.embedding.windows import ModelTokenCounter
from catalog.models.model_files import ModelFiles

if TYPE_CHECKING:
    from catalog.embedding.encoder import Vector

_loading = Lock()


def _count_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class FastEmbedEncoder:
    """A model from an installed package, from a folder, or from the hub, in that order."""

    def __init__(self, settings: EmbeddingSettings) -> None:
        self.model = settings.model
        self._settings = settings
        self._profile = profile_of(settings.model)
        self._files = ModelFiles("embedding", "fastembed", settings.model, offline=settings.offline)

    def __reduce__(self) -> tuple[type[FastEmbedEncoder], tuple[EmbeddingSettings]]:
        """Be sent to another process without what is in memory."""
        return FastEmbedEncoder, (self._settings,)

    @cached_property
    def fingerprint(self) -> str:
        """Names the weights, their pooling and the tokens read."""
        return make_fingerprint(
            "fastembed", self._files.weights_hash, self._profile.pooling, self.max_tokens
        )

    @cached_property
    def _config(self) -> dict[str, Any]:
        folder = self._files.folder
        try:
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ModelUnavailableError(f"{folder} holds no readable config.json") from error
        return config if isinstance(config, dict) else {}

    @property
    def dim(self) -> int:
        """Length of every vector."""
        return self._profile.dim or int(self._config["hidden_size"])

    @property
    def max_tokens(self) -> int:
        """Tokens the model reads, special ones included."""
        return self._profile.max_tokens or int(self._config.get("max_position_embeddings", 512))

    @cached_property
    def counter(self) -> TokenCounter:
        """The model's own tokenizer."""
        return ModelTokenCounter(
            self._files.folder / "tokenizer.json", f"tokenizer of {self.model}"
        )

    def encode(self, texts: Sequence[str]) -> list[Vector]:
        """Return one vector of shape ``(dim,)`` for each text, in order.

        A model whose vectors depend on their batch is given one text a call, so that an
        interrupted build ends with the same vectors as any other. As many calls as there are
        threads run at once, one thread each: several threads in a call wait for one another.
        """
        if not self.is_run_alone:
            return list(self._loaded.embed(list(texts), batch_size=self._settings.batch_size))
        threads = min(self._settings.threads or _count_cores(), len(texts))
        if threads < 2:
            return list(self._loaded.embed(list(texts), batch_size=1))
        embed = self._loaded.embed
        with ThreadPoolExecutor(threads, thread_name_prefix="embedding") as pool:
            return list(pool.map(lambda text: next(iter(embed([text], batch_size=1))), texts))

    @property
    def is_run_alone(self) -> bool:
        """Whether each text is a call of its own, in one thread."""
        known = self._files.known
        return known is not None and not known.batch_invariant

    @cached_property
    def _loaded(self) -> Any:
        self._files.verify()
        from fastembed import TextEmbedding

        name = self._files.export or f"catalog/{self.fingerprint}"
        with _loading:
            if not self._files.export:
                self._register(name)
            return TextEmbedding(
                name,
                specific_model_path=str(self._files.folder),
                threads=1 if self.is_run_alone else self._settings.threads,
            )

    def _register(self, name: str) -> None:
        from fastembed import TextEmbedding
        from fastembed.common.model_description import ModelSource, PoolingType

        if any(model["model"] == name for model in TextEmbedding.list_supported_models()):
            return
        weights = self._files.weights_file.relative_to(self._files.folder)
        TextEmbedding.add_custom_model(
            model=name,
            pooling=PoolingType.CLS if self._profile.pooling == "cls" else PoolingType.MEAN,
            normalization=True,
            sources=ModelSource(hf=name),
            dim=self.dim,
            model_file=str(weights),
        )
