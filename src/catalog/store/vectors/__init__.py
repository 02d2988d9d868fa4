"""Nearest-neighbour search over the stored vectors: one protocol, one file for each engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from catalog.core.entry_points import OURS, load_engine
from catalog.store.database import EngineSetup

if TYPE_CHECKING:
    from catalog.store.vectors.base import VectorEngine

VECTOR_ENGINES = tuple(OURS["catalog.vectors"])


def get_vector_engine(name: str, setup: EngineSetup) -> VectorEngine:
    """Return the engine of that name, ours or another package's, or raise :class:`ConfigError`.

    Raises :class:`MissingExtraError` if the engine's package is not installed.
    """
    engine: VectorEngine = load_engine("catalog.vectors", name)(setup)
    return engine


def open_qdrant(setup: EngineSetup) -> VectorEngine:
    """Return Qdrant by URL if one is set, else by path."""
    if setup.rag.qdrant_url is None:
        from catalog.store.vectors.qdrant_edge import QdrantEdgeEngine

        return QdrantEdgeEngine(setup)
    from catalog.store.vectors.qdrant import QdrantServerEngine

    return QdrantServerEngine(setup)
