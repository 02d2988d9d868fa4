"""Static models: the mean of a vector for each token. Fast, and less good at meaning."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from catalog.core.settings import EmbeddingSettings
from catalog.embedding.encoder import make_fingerprint
from catalog.embedding.profiles import ProfiledEncoder
from catalog.embedding.windows import ModelTokenCounter
from catalog.models.model_files import ModelFiles, find_table

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from catalog.embedding.encoder import Vector


class StaticEncoder(ProfiledEncoder):
    """A model from an installed package, or a folder with a ``.safetensors`` file and a tokenizer.

    A text's vector is the mean of its tokens' vectors, scaled to length 1.
    """

    def __init__(self, settings: EmbeddingSettings) -> None:
        super().__init__(settings)
        self._files = ModelFiles("embedding", "static", settings.model)

    @cached_property
    def fingerprint(self) -> str:
        """Identify the weights and the tokens read."""
        return make_fingerprint("static", self._files.weights_hash, self.max_tokens)

    @property
    def dim(self) -> int:
        """Length of every vector."""
        return self._chosen_dim(self._profile.dim or int(self._table.shape[1]))

    @property
    def max_tokens(self) -> int:
        """Tokens of a window; the mean of more distinguishes little."""
        return self._profile.max_tokens or 512

    @cached_property
    def counter(self) -> ModelTokenCounter:
        """The model's own tokenizer."""
        files = self._files.known.sha256 if self._files.known else ("tokenizer.json",)
        path = self._files.folder / next(name for name in files if "tokenizer" in name)
        return ModelTokenCounter(path, f"tokenizer of {self.model}")

    def encode(self, texts: Sequence[str]) -> list[Vector]:
        """Return one vector of shape ``(dim,)`` for each text, in order."""
        import numpy as np

        vectors = []
        for encoding in self.counter.tokenizer.encode_batch(list(texts), add_special_tokens=False):
            ids = encoding.ids or [0]  # 0: an unknown token
            mean = self._table[ids].astype(np.float32).mean(axis=0)
            vectors.append(mean / (np.linalg.norm(mean) or 1.0))
        return vectors

    @cached_property
    def _table(self) -> npt.NDArray[np.floating]:
        import numpy as np

        self._files.verify()
        dtype, offset, shape = find_table(self._files.weights_file)
        return np.memmap(self._files.weights_file, dtype, "r", offset, shape)
