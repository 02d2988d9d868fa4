"""sentence-transformers models (need torch)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from catalog.core.errors import MissingExtraError, ModelUnavailableError
from catalog.core.settings import EmbeddingSettings
from catalog.embedding.encoder import make_fingerprint
from catalog.embedding.profiles import ProfiledEncoder
from catalog.embedding.windows import ModelTokenCounter
from catalog.models.model_files import ModelFiles

if TYPE_CHECKING:
    from catalog.embedding.encoder import Vector


class HuggingFaceEncoder(ProfiledEncoder):
    """A model from an installed package, from a folder, or from the hub, in that order."""

    def __init__(self, settings: EmbeddingSettings) -> None:
        super().__init__(settings)
        offline = settings.offline
        self._files = ModelFiles("embedding", "huggingface", settings.model, offline=offline)

    @cached_property
    def fingerprint(self) -> str:
        """Identify the weights and the tokens read."""
        parts = self._files.weights_hash, self.max_tokens, *self._cut_mark()
        return make_fingerprint("huggingface", *parts)

    @property
    def dim(self) -> int:
        """Length of every vector."""
        return self._chosen_dim(self._profile.dim or self._loaded.get_embedding_dimension())

    @property
    def max_tokens(self) -> int:
        """Tokens the model reads, special ones included."""
        return self._profile.max_tokens or int(self._loaded.max_seq_length)

    @cached_property
    def counter(self) -> ModelTokenCounter:
        """The model's own tokenizer."""
        path = self._files.folder / "tokenizer.json"
        return ModelTokenCounter(path, f"tokenizer of {self.model}")

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
            raise ModelUnavailableError(f"{folder} has no usable model: {error}") from error
