"""The interface of vector engines; ``catalog.testing`` tests every engine against it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from catalog.store.engine_types import Hit, Restriction

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class VectorEngine(Protocol):
    """Nearest-neighbour search over one dataset's embedded windows."""

    @property
    def name(self) -> str:
        """Return the engine's name in settings, stages and explanations."""
        ...

    def search(
        self, vector: npt.NDArray[np.float32], k: int, restriction: Restriction
    ) -> list[Hit]:
        """Return the ``k`` chunks whose best window is nearest, best first, ties by row number.

        ``vector`` has shape ``(dim,)`` and any length; a score is the cosine, in [-1, 1], to six
        decimals. Only live chunks that the restriction allows are returned; an empty index,
        ``k`` below 1 or a scope of nothing answer ``[]``. Raises ``EmbeddingMismatchError`` for
        another dimension, ``EmbeddingError`` for NaN or infinity, ``EngineError`` when the
        index fails, and ``EngineLockedError`` when another process holds it.
        """
        ...

    @property
    def damaged(self) -> frozenset[str]:
        """Return the ids of documents with a damaged vector that was left out, as far as seen."""
        ...

    def pop_defect(self) -> str:
        """Return why a damaged index was rebuilt since the last call; empty if it was not."""
        ...

    def refresh(self) -> int:
        """Apply the outbox, in order and idempotently; return the number of points changed."""
        ...

    def rebuild(self) -> int:
        """Fill the index again from the truth, without a model; return the number of points."""
        ...

    def verify(self) -> int:
        """Return the number of points that are missing, too many or not as in the truth."""
        ...

    def close(self) -> None:
        """Flush, and release files and locks."""
        ...
