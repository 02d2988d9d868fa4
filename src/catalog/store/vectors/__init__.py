"""Nearest-neighbour search over the stored vectors: one protocol, one file for each engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from catalog.core.entry_points import OURS, load_engine
from catalog.core.settings import RAGv2Settings
from catalog.store.database import EngineSetup

if TYPE_CHECKING:
    from catalog.store.database import Database
    from catalog.store.vectors.base import VectorEngine

__all__ = ["VECTOR_ENGINES", "get_vector_engine"]

VECTOR_ENGINES = tuple(OURS["catalog.vectors"])


def get_vector_engine(
    name: str,
    database: Database,
    dataset: str,
    folder: Path,
    *,
    dim: int,
    fingerprint: str,
    rag: RAGv2Settings | None = None,
) -> VectorEngine:
    """Return the vector engine of that name for one dataset.

    ``name`` is in :data:`VECTOR_ENGINES` or comes from another package
    (``docs/how-to/write-an-engine.md``). ``flat`` and ``sqlite-vec`` have one file in ``folder``;
    ``qdrant`` runs in this process, in ``folder``, or on the server set in ``rag``.
    ``dim`` and ``fingerprint`` are the model's. Nothing is opened before the first search or
    refresh. Raises :class:`UnknownEngineError` for any other name, and :class:`MissingExtraError`
    if the engine's package is not installed.
    """
    engine: VectorEngine = load_engine("catalog.vectors", name)(
        EngineSetup(database, dataset, folder, rag or RAGv2Settings(), dim, fingerprint)
    )
    return engine


def open_qdrant(setup: EngineSetup) -> VectorEngine:
    """Return Qdrant by URL if one is set, else by path."""
    if setup.rag.qdrant_url is None:
        from catalog.store.vectors.qdrant_edge import QdrantEdgeEngine

        return QdrantEdgeEngine(setup)
    from catalog.store.vectors.qdrant import QdrantServerEngine

    return QdrantServerEngine(setup)
