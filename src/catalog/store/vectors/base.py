"""The interface of vector engines; ``catalog.testing`` tests every engine against it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from catalog.store.engine_types import Hit, Restriction

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

POINTS_LOCK = "lock"  # in the folder of an index, while it is open


class VectorEngine(Protocol):
    """Nearest-neighbour search over one dataset's embedded windows."""

    @property
    def name(self) -> str:
        """Return the engine's name in settings, stages and explanations."""
        ...

    def search(
        self, vector: npt.NDArray[np.float32], k: int, restriction: Restriction
    ) -> list[Hit]:
        """Return the ``k`` chunks with the nearest windows, best first, ties by row number.

        ``vector`` has shape ``(dim,)`` and any length. A score is the cosine with the chunk's best
        window, in [-1, 1], to six decimals. Only live chunks that the restriction allows are
        returned. An empty index, ``k`` below 1 and an empty scope give ``[]``. Raises
        ``EmbeddingMismatchError`` for another dimension, ``EmbeddingError`` for NaN or infinity,
        ``EngineError`` if the index fails, and ``EngineLockedError`` if another process holds it.
        """
        ...

    @property
    def damaged(self) -> frozenset[str]:
        """Return the ids of documents with a damaged vector, which is skipped, as far as known."""
        ...

    def pop_defect(self) -> str:
        """Return why a damaged index was rebuilt since the last call; "" if it was not."""
        ...

    def refresh(self) -> int:
        """Apply the outbox in order; return the number of points changed. Repeating it is safe."""
        ...

    def rebuild(self) -> int:
        """Fill the index again from the store, without a model; return the number of points."""
        ...

    def verify(self) -> int:
        """Return the number of points that are missing, superfluous or different from the store."""
        ...

    def close(self) -> None:
        """Flush, and release files and locks."""
        ...
