"""The interface of vector engines; ``catalog.testing`` tests every engine against it."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection

from catalog.core.errors import EmbeddingError, EmbeddingMismatchError
from catalog.store.database import Database
from catalog.store.restriction import Hits, Restriction, Stamp, allowed_seqs

Vector = npt.NDArray[np.float32]


class RankedVectors(Protocol):
    """The passages of a dataset in one state, to rank by their vectors.

    ``damaged`` are the ids of documents with a damaged vector, which is skipped, as far as known.
    """

    stamp: Stamp
    damaged: frozenset[str]

    def rank(self, vector: Vector, k: int, allowed: npt.NDArray[np.int64] | None = None) -> Hits:
        """Return the ``k`` passages with the nearest windows, best first, ties by row number.

        ``vector`` has shape ``(dim,)`` and any length. A score is the cosine with the passage's
        best window, to six decimals. ``allowed`` are the passages that may answer, ascending;
        ``None`` for all. ``fallback`` of the hits says why newer passages are missing. Raises
        :class:`EmbeddingMismatchError` for another dimension, :class:`EmbeddingError` for NaN or
        infinity, and :class:`EngineError` kinds; it may be called after the transaction.
        """


class VectorEngine(Protocol):
    """Nearest-neighbour search over one dataset's embedded windows; follows the store by itself."""

    name: str

    def at(self, connection: Connection) -> RankedVectors:
        """Return the passages in the state that the connection sees."""

    def refresh(self) -> None:
        """Bring the index up to date, so that no search has to."""

    def rebuild(self) -> int:
        """Fill the index again from the store, and return the number of its points."""

    def verify(self) -> int:
        """Return the number of points that are missing, superfluous or (of ``flat``) different."""

    def close(self) -> None:
        """Release memory, files and locks; the engine may be used again."""


def nearest(
    engine: VectorEngine, database: Database, vector: Vector, k: int, restriction: Restriction
) -> Hits:
    """Return the ``k`` nearest passages that the restriction allows; raises like ``rank``."""
    with database.read() as connection:
        ranking = engine.at(connection)
        allowed = allowed_seqs(connection, restriction)
    return ranking.rank(vector, k, allowed)


def unit_vector(vector: Vector, dim: int) -> Vector:
    """Return a vector with length 1 (or 0); raise like :meth:`RankedVectors.rank`."""
    if vector.shape != (dim,):
        raise EmbeddingMismatchError(
            f"a vector has shape {vector.shape}, but the index has ({dim},): search with the model "
            "that embedded the documents, or rebuild the index"
        )
    if not np.isfinite(vector).all():
        raise EmbeddingError("the embedding of the query contains NaN or infinity")
    length = float(np.linalg.norm(vector))
    return np.asarray(vector / length if length > 0 else vector, dtype=np.float32)
