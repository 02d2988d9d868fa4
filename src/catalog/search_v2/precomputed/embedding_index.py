"""Embeddings in memory: all are compared with a query at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from catalog.core.errors import SemanticIndexError, SemanticQueryError
from catalog.search_v2.precomputed.semantic_types import EmbeddingMetadata, EmbeddingVector

Floats = npt.NDArray[np.float32]


class EmbeddingIndex:
    """Chunk ids with their embeddings and metadata, in the order of the ids.

    ``matrix`` has shape ``(chunks, dim)``, as stored, not scaled; ``norms`` its rows' lengths.
    Safe to share between threads; nothing of it changes.
    """

    def __init__(
        self,
        ids: Sequence[str],
        matrix: Floats,
        metadata: Mapping[str, EmbeddingMetadata] | None = None,
        *,
        norms: Floats | None = None,
    ) -> None:
        if matrix.ndim != 2 or len(ids) != len(matrix):
            raise SemanticIndexError(f"{len(ids)} ids and a matrix of shape {matrix.shape}")
        self.ids = tuple(ids)
        self.matrix = matrix
        self.norms = np.linalg.norm(matrix, axis=1) if norms is None else norms
        self.metadata = dict(metadata or {})
        self._row_of: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, chunk_id: object) -> bool:
        return chunk_id in self._rows

    @property
    def dim(self) -> int:
        """The numbers of an embedding; 0 in an empty index."""
        return int(self.matrix.shape[1]) if len(self.ids) > 0 else 0

    def embedding(self, chunk_id: str) -> Floats:
        """Return the embedding of a chunk, shape ``(dim,)``. Raises ``KeyError`` for no chunk."""
        row: Floats = self.matrix[self._rows[chunk_id]]
        return row

    def similarities(self, query_embeddings: npt.NDArray[np.float32]) -> Floats:
        """Return the cosines of all chunks with queries, shape ``(queries, chunks)``, -1 to 1.

        ``query_embeddings`` has shape ``(queries, dim)``. Vectors of zeros have the cosine 0.
        """
        products = np.dot(query_embeddings, self.matrix.T)
        lengths = np.linalg.norm(query_embeddings, axis=1)[:, None] * self.norms
        cosines: Floats = np.zeros_like(products)
        np.divide(products, lengths, out=cosines, where=lengths > 0)
        np.clip(cosines, -1.0, 1.0, out=cosines)
        return cosines

    def check(self, query_embedding: EmbeddingVector) -> Floats:
        """Return a query's vector, shape ``(dim,)``, once it is known to be searchable.

        Raises :class:`SemanticQueryError` for another shape, NaN, infinity or what is no number.
        """
        vector = as_vector(query_embedding)
        if vector.shape != (self.dim,):
            raise SemanticQueryError(
                f"the query vector has shape {vector.shape}, the index holds vectors of "
                f"{self.dim} dimensions: embed the query with the model that embedded the chunks"
            )
        return vector

    @property
    def _rows(self) -> dict[str, int]:
        if not self._row_of:
            self._row_of = {chunk_id: row for row, chunk_id in enumerate(self.ids)}
        return self._row_of


def as_vector(query_embedding: Any) -> Floats:
    """Return numbers as an array. Raises :class:`SemanticQueryError` for anything else."""
    try:
        vector = np.asarray(query_embedding, dtype=np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise SemanticQueryError(f"the query vector is not a list of numbers: {error}") from error
    if not np.isfinite(vector).all():
        raise SemanticQueryError("the query vector holds NaN, infinity or a number beyond float32")
    return vector
