"""Static models, one vector a token and their mean for a text: fast, and less good at meaning.

The weights are one table in a ``.safetensors`` file, as WordLlama and Model2Vec keep them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from catalog.core.errors import ModelUnavailableError
from catalog.core.settings import EmbeddingSettings
from catalog.embedding.encoder import make_fingerprint
from catalog.embedding.model_files import STATIC, ModelFiles, hash_file, model_unavailable
from catalog.embedding.profiles import profile_of
from catalog.embedding.windows import ModelTokenCounter

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from catalog.embedding.encoder import Vector

_TYPES = {"F16": "<f2", "F32": "<f4"}  # of safetensors, and numpy's names of them
_MAX_TOKENS = 512  # the mean of more tells little apart


class StaticEncoder:
    """A model from an installed package, or a folder of a ``.safetensors`` file and its tokenizer.

    A text's vector is the mean of those of its tokens, at length 1. It depends on the text alone.
    """

    def __init__(self, settings: EmbeddingSettings) -> None:
        self.model = settings.model
        self._profile = profile_of(settings.model)
        self._files = ModelFiles(settings.model, STATIC.get(settings.model), self._nowhere)

    @cached_property
    def fingerprint(self) -> str:
        """Names the weights and the tokens read."""
        known = self._files.known
        weights = known.sha256[known.weights] if known else hash_file(self._weights_file)
        return make_fingerprint("static", weights, self.max_tokens)

    @property
    def dim(self) -> int:
        """Length of every vector."""
        return self._profile.dim or int(self._table.shape[1])

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
    def _weights_file(self) -> Path:
        known = self._files.known
        if known is not None:
            return self._files.folder / known.weights
        files = sorted(self._files.folder.rglob("*.safetensors"))
        if not files:
            raise ModelUnavailableError(f"the folder {self._files.folder} holds no .safetensors")
        return files[0]

    @cached_property
    def _table(self) -> npt.NDArray[np.floating]:
        """The vectors by token number, shape ``(tokens, dim)``, left on disk until they are used.

        A safetensors file is the length of its header in eight bytes, the header in JSON with
        type, shape and place of each tensor, and the tensors.
        """
        import numpy as np

        self._files.verify()
        with self._weights_file.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
        tables = [it for name, it in header.items() if name != "__metadata__"]
        tables = [it for it in tables if len(it["shape"]) == 2 and it["dtype"] in _TYPES]
        if len(tables) != 1:
            raise ModelUnavailableError(f"{self._weights_file} is not one table of vectors")
        (table,) = tables
        return np.memmap(
            self._weights_file,
            dtype=_TYPES[table["dtype"]],
            mode="r",
            offset=8 + length + table["data_offsets"][0],
            shape=tuple(table["shape"]),
        )

    def _nowhere(self) -> Path:
        raise model_unavailable(self.model, "fast")
