"""The interface of vector engines; ``catalog.testing`` tests every engine against it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from catalog.core.errors import EmbeddingError, EmbeddingMismatchError
from catalog.store.database import Database
from catalog.store.engine_types import Hits, Restriction, Stamp, allowed_seqs

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from sqlalchemy import Connection

    Vector = npt.NDArray[np.float32]
    Seqs = npt.NDArray[np.int64]


POINTS_LOCK = "lock"  # in the folder of an index


class RankedVectors(Protocol):
    """The passages of a dataset in one state, to rank by their vectors."""

    @property
    def stamp(self) -> Stamp:
        """Return the state."""
        ...

    @property
    def damaged(self) -> frozenset[str]:
        """Return the ids of documents with a damaged vector, which is skipped, as far as known."""
        ...

    def rank(self, vector: Vector, k: int, allowed: Seqs | None = None) -> Hits:
        """Return the ``k`` passages with the nearest windows, best first, ties by row number.

        ``vector`` has shape ``(dim,)`` and any length. A score is the cosine with the passage's
        best window, to six decimals. ``allowed`` are the passages that may answer, ascending;
        ``None`` for all. ``fallback`` of the hits says why newer passages are missing. Raises
        :class:`EmbeddingMismatchError` for another dimension, :class:`EmbeddingError` for NaN or
        infinity, and :class:`EngineError` kinds; it may be called after the transaction.
        """
        ...


class VectorEngine(Protocol):
    """Nearest-neighbour search over one dataset's embedded windows; follows the store by itself."""

    @property
    def name(self) -> str:
        """Return the engine's name in settings, stages and explanations."""
        ...

    def at(self, connection: Connection) -> RankedVectors:
        """Return the passages in the state that ``connection`` sees."""
        ...

    def refresh(self) -> None:
        """Bring the index up to date, so that no search has to."""
        ...

    def rebuild(self) -> int:
        """Fill the index again from the store, without a model; return the number of points."""
        ...

    def verify(self) -> int:
        """Return the number of points that are missing, superfluous or different from the store."""
        ...

    def close(self) -> None:
        """Release memory, files and locks; the engine may be used again."""
        ...


def nearest(
    engine: VectorEngine, database: Database, vector: Vector, k: int, restriction: Restriction
) -> Hits:
    """Return the ``k`` nearest passages that the restriction allows; raises like ``rank``."""
    with database.read() as connection:
        ranking = engine.at(connection)
        allowed = allowed_seqs(connection, restriction, ranking.stamp)
    return ranking.rank(vector, k, allowed)


def query_vector(vector: Vector, dim: int) -> Vector:
    """Return a query's vector with length 1 (or 0); raise like :meth:`RankedVectors.rank`."""
    import numpy as np

    if vector.shape != (dim,):
        raise EmbeddingMismatchError(
            f"the query vector has shape {vector.shape}, but the index has ({dim},): search with "
            "the model that embedded the documents, or rebuild the index"
        )
    if not np.isfinite(vector).all():
        raise EmbeddingError("the embedding of the query contains NaN or infinity")
    length = float(np.linalg.norm(vector))
    return np.asarray(vector / length if length > 0 else vector, dtype=np.float32)
