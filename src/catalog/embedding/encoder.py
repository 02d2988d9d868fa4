"""What runs a model: texts in, vectors out, nothing added to the texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from catalog.core.ids import sha256_hex
from catalog.core.tokens import TokenCounter

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vector = npt.NDArray[np.float32]


class Encoder(Protocol):
    """One embedding model. Building one is cheap; the model loads at its first use."""

    @property
    def model(self) -> str:
        """The model's name, as set."""
        ...

    @property
    def fingerprint(self) -> str:
        """Names the exact weights and their use: equal fingerprints give comparable vectors."""
        ...

    @property
    def dim(self) -> int:
        """Length of every vector."""
        ...

    @property
    def max_tokens(self) -> int:
        """Tokens the model reads, special ones included; the rest it would drop silently."""
        ...

    @property
    def counter(self) -> TokenCounter:
        """The model's own tokenizer."""
        ...

    def encode(self, texts: Sequence[str]) -> list[Vector]:
        """One vector of shape ``(dim,)`` for each text, in order."""
        ...


def fingerprint(*parts: object) -> str:
    """A short hash of everything that decides a vector's meaning."""
    return sha256_hex("|".join(str(part) for part in parts))[:16]
