"""sentence-transformers models (need torch)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from catalog.core.errors import MissingExtraError, ModelUnavailableError
from catalog.core.settings import EmbeddingSettings
from catalog.core.tokens import TokenCounter
from catalog.embedding.encoder import make_fingerprint
from catalog.embedding.profiles import chosen_dim, cut_mark, profile_of
from catalog.embedding.windows import ModelTokenCounter
from catalog.models.model_files import ModelFiles

if TYPE_CHECKING:
    from catalog.embedding.encoder import Vector


class HuggingFaceEncoder:
    """A model from an installed package, from a folder, or from the hub, in that order."""

    def __init__(self, settings: EmbeddingSettings) -> None:
        self.model = settings.model
        self._settings = settings
        self._profile = profile_of(settings.model)
        self._files = ModelFiles(
            "embedding", "huggingface", settings.model, offline=settings.offline
        )

    def __reduce__(self) -> tuple[type[HuggingFaceEncoder], tuple[EmbeddingSettings]]:
        """Return how to pickle the encoder: by its settings, without the loaded model."""
        return HuggingFaceEncoder, (self._settings,)

    @cached_property
    def fingerprint(self) -> str:
        """Identify the weights and the tokens read."""
        parts = self._files.weights_hash, self.max_tokens, *cut_mark(self._settings)
        return make_fingerprint("huggingface", *parts)

    @property
    def dim(self) -> int:
        """Length of every vector."""
        full = self._profile.dim or int(self._loaded.get_embedding_dimension())
        return chosen_dim(self._settings, full)

    @property
    def max_tokens(self) -> int:
        """Tokens the model reads, special ones included."""
        return self._profile.max_tokens or int(self._loaded.max_seq_length)

    @cached_property
    def counter(self) -> TokenCounter:
        """The model's own tokenizer."""
        return ModelTokenCounter(
            self._files.folder / "tokenizer.json", f"tokenizer of {self.model}"
        )

    def encode(self, texts: Sequence[str]) -> list[Vector]:
        """Return one vector of shape ``(dim,)`` for each text, in order."""
        import numpy as np

        vectors = self._loaded.encode(
            list(texts),
            prompt="",  # a model may bring its own; ours are in the profiles
            batch_size=self._settings.batch_size,
            normalize_embeddings=True,
            show_progress_bar=False,
        )
        return self._profile.cut(list(np.asarray(vectors, dtype=np.float32)), self.dim)

    @cached_property
    def _loaded(self) -> Any:
        self._files.verify()
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise MissingExtraError("the huggingface provider", "huggingface") from error
        folder = self._files.folder
        if b'"num_experts"' in (folder / "config.json").read_bytes():  # would be left out silently
            raise ModelUnavailableError(
                f"{self.model} needs code of its own, which is never run here: use a server that "
                "has it, such as Ollama, with IDX_EMBEDDING__PROVIDER=openai"
            )
        try:
            return SentenceTransformer(str(folder), local_files_only=True)
        except (ValueError, OSError) as error:
            message = f"{folder} has no usable sentence-transformers model: {error}"
            raise ModelUnavailableError(message) from error
