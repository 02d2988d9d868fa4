"""The interfaces of engines, which ``catalog.testing`` tests every engine against."""

from __future__ import annotations

from collections.abc import Sequence
from math import log1p, sqrt
from typing import Protocol

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection

from catalog.core.errors import EmbeddingError, EmbeddingMismatchError
from catalog.store.database import Database
from catalog.store.derived import Array, Seqs
from catalog.store.filter_sql import DatasetNames
from catalog.store.restriction import Hit, Hits, Restriction, Spread, Stamp, allowed_seqs

Vector = npt.NDArray[np.float32]


class LexicalEngine(Protocol):
    """Keyword search over the chunks of one dataset, or of several as one."""

    name: str  # in settings, stages and explanations
    dataset: DatasetNames

    def search(self, text: str, k: int, restriction: Restriction) -> Hits:
        """Return the ``k`` best chunks with at least one word of ``text``, best first.

        Any text is safe: no character acts as an operator. Every score is above zero. A text of
        stop words only finds passages with these words. The answer reflects the store as committed
        when the call began. The spread is of the scores of all chunks, allowed or not.
        """

    def is_searchable(self, text: str) -> bool:
        """Return whether the text has a word that is not a stop word."""

    def document_counts(self, words: Sequence[str]) -> tuple[int, list[int]]:
        """Return the number of passages, and for each raw word the number of passages with it.

        A stop word that is not searched counts 0. An engine may stop counting after some thousands.
        """

    def join(self, others: Sequence[LexicalEngine]) -> LexicalEngine:
        """Return one engine for this dataset and those of other engines of the same name."""

    def correct(self, text: str, restriction: Restriction) -> dict[str, str]:  # noqa: ARG002
        """Return words that no allowed passage has, each with a similar word that one has."""
        return {}

    def languages(self) -> dict[str, int]:
        """Return the number of passages by language, "" if unknown; ``{}`` without detection."""
        return {}

    def weighted(self, k1: float, b: float) -> LexicalEngine:  # noqa: ARG002
        """Return the engine with these constants of BM25, itself if it has none to set."""
        return self

    def refresh(self) -> None:
        """Save derived files, which makes searches faster; drop what a server has of no dataset."""
        return

    def verify(self) -> int:
        """Return the number of derived files that changed since they were written."""
        return 0

    def close(self) -> None:
        """Release files and memory."""
        return


def term_weight(passages: int, holding: int) -> float:
    """Return the idf of a term that ``holding`` of the passages contain; always above zero."""
    return log1p((passages - holding + 0.5) / (holding + 0.5))


def best_hits(seqs: Seqs, scores: Array, k: int, allowed: Seqs | None, passages: int) -> Hits:
    """Return the ``k`` best allowed of scored passages, ties by row number.

    The spread is that of all ``passages``; those that have no score have 0.
    """
    mean, square = (float(one.sum()) / max(1, passages) for one in (scores, np.square(scores)))
    if allowed is not None:
        scores = scores * np.isin(seqs, allowed)
    least = np.partition(scores, -k)[-k] if len(scores) > k else 0.0
    best = np.flatnonzero(scores >= least if least > 0 else scores > 0)
    best = best[np.lexsort((seqs[best], -scores[best]))][:k]
    hits = map(Hit, seqs[best].tolist(), scores[best].tolist())
    return Hits(hits, Spread(mean, sqrt(max(0.0, square - mean * mean))))


class RankedVectors(Protocol):
    """The passages of a dataset in one state, to rank by their vectors.

    ``damaged`` are the ids of documents with a damaged vector, which is skipped, as far as known.
    """

    stamp: Stamp
    damaged: frozenset[str]

    def rank(self, vector: Vector, k: int, allowed: Seqs | None = None) -> Hits:
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
