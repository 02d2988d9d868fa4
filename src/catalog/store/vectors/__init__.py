"""Nearest-neighbour search over the stored vectors: one protocol, one file for each engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from catalog.store.database import EngineSetup

if TYPE_CHECKING:
    from catalog.store.engines import VectorEngine


def open_qdrant(setup: EngineSetup) -> VectorEngine:
    """Return Qdrant by URL if one is set, else by path; nothing is opened yet."""
    if setup.rag.qdrant_url is None:
        from catalog.store.vectors.qdrant_edge import QdrantEdgeEngine

        return QdrantEdgeEngine(setup)
    from catalog.store.vectors.qdrant import QdrantServerEngine

    return QdrantServerEngine(setup)
