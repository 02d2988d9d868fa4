"""Static models: the mean of a vector for each token. Fast, and less good at meaning."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from catalog.core.settings import EmbeddingSettings
from catalog.embedding.encoder import make_fingerprint
from catalog.embedding.profiles import chosen_dim, profile_of
from catalog.embedding.windows import ModelTokenCounter
from catalog.models.model_files import ModelFiles, find_table

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from catalog.embedding.encoder import Vector

_MAX_TOKENS = 512  # the mean of more tokens distinguishes little


class StaticEncoder:
    """A model from an installed package, or a folder with a ``.safetensors`` file and a tokenizer.

    A text's vector is the mean of its tokens' vectors, scaled to length 1. It depends on the text
    only.
    """

    def __init__(self, settings: EmbeddingSettings) -> None:
        self.model, self._settings = settings.model, settings
        self._profile = profile_of(settings.model)
        self._files = ModelFiles("embedding", "static", settings.model)

    def __reduce__(self) -> tuple[type[StaticEncoder], tuple[EmbeddingSettings]]:
        """Return how to pickle the encoder: by its settings, without the loaded model."""
        return StaticEncoder, (self._settings,)

    @cached_property
    def fingerprint(self) -> str:
        """Identify the weights and the tokens read."""
        return make_fingerprint("static", self._files.weights_hash, self.max_tokens)

    @property
    def dim(self) -> int:
        """Length of every vector."""
        return chosen_dim(self._settings, self._profile.dim or int(self._table.shape[1]))

    @property
    def max_tokens(self) -> int:
        """Tokens of a window."""
        return self._profile.max_tokens or _MAX_TOKENS

    @cached_property
    def counter(self) -> ModelTokenCounter:
        """The model's own tokenizer."""
        known = self._files.known
        files = known.sha256 if known else ("tokenizer.json",)
        path = self._files.folder / next(name for name in files if "tokenizer" in name)
        return ModelTokenCounter(path, f"tokenizer of {self.model}")

    def encode(self, texts: Sequence[str]) -> list[Vector]:
        """Return one vector of shape ``(dim,)`` for each text, in order."""
        import numpy as np

        vectors = []
        for ids in self.counter.token_ids(texts):
            mean = self._table[ids or [0]].astype(np.float32).mean(axis=0)  # 0: an unknown token
            vectors.append(mean / (np.linalg.norm(mean) or 1.0))
        return vectors

    @cached_property
    def _table(self) -> npt.NDArray[np.floating]:
        """The vectors by token number, shape ``(tokens, dim)``, left on disk until used."""
        import numpy as np

        self._files.verify()
        file = self._files.weights_file
        dtype, offset, shape = find_table(file)
        return np.memmap(file, dtype, "r", offset, shape)
