"""Nearest-neighbour search over the stored vectors: one protocol, one file per engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from catalog.core.errors import ConfigError

if TYPE_CHECKING:
    from catalog.store.database import Database
    from catalog.store.vectors.base import VectorEngine

__all__ = ["VECTOR_ENGINES", "get_vector_engine"]

VECTOR_ENGINES = ("qdrant", "sqlite-vec", "exact")


def get_vector_engine(
    name: str,
    database: Database,
    dataset: str,
    folder: Path,
    *,
    dim: int,
    fingerprint: str,
    url: str | None = None,
    api_key: str | None = None,
    collection_prefix: str = "catalog_",
    timeout: float = 30.0,
) -> VectorEngine:
    """Return the vector engine of that name over one dataset.

    ``qdrant`` runs in this process, in ``folder``, or on the server at ``url``; ``sqlite-vec``
    keeps one file in ``folder``; ``exact`` needs neither. ``dim`` and ``fingerprint`` are the
    embedding model's; ``timeout`` is in seconds. Nothing is opened before the first search or
    refresh. Raises :class:`ConfigError` for an unknown name, and :class:`MissingExtraError` where
    the engine's package is absent.
    """
    if name == "exact":
        from catalog.store.vectors.exact import ExactEngine

        return ExactEngine(database, dataset)
    if name == "sqlite-vec":
        from catalog.store.vectors.sqlite_vec import SqliteVecEngine

        return SqliteVecEngine(database, dataset, folder, dim, fingerprint)
    if name != "qdrant":
        known = ", ".join(VECTOR_ENGINES)
        raise ConfigError(f"unknown vector engine {name!r}; engines: {known}")
    if url is None:
        from catalog.store.vectors.edge import EdgeEngine

        return EdgeEngine(database, dataset, folder, dim, fingerprint)
    from qdrant_client import QdrantClient

    from catalog.store.vectors.server import ServerEngine

    client = QdrantClient(
        url=url, api_key=api_key, timeout=max(1, round(timeout)), check_compatibility=False
    )
    return ServerEngine(
        database, dataset, client, collection_prefix, dim, fingerprint, owns_client=True
    )
