"""Nearest-neighbour search over the stored vectors: one protocol, one file per engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from catalog.core.errors import ConfigError
from catalog.core.settings import QdrantSettings

if TYPE_CHECKING:
    from catalog.store.database import Database
    from catalog.store.vectors.base import VectorEngine

__all__ = ["VECTOR_ENGINES", "get_vector_engine"]

VECTOR_ENGINES = ("qdrant", "sqlite-vec", "pgvector", "exact")


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
    options: QdrantSettings | None = None,
) -> VectorEngine:
    """Return the vector engine of that name over one dataset.

    ``qdrant`` runs in this process, in ``folder``, or on the server at ``url``; ``sqlite-vec``
    keeps one file in ``folder``; ``pgvector`` is in the store's own Postgres database; ``exact``
    needs none. ``dim`` and ``fingerprint`` are the model's; ``options`` are of that server.
    Nothing is opened before the first search or refresh. Raises :class:`ConfigError` for an unknown
    name or a store that is elsewhere, and :class:`MissingExtraError` where the engine's package is
    absent.
    """
    if name == "exact":
        from catalog.store.vectors.exact import ExactEngine

        return ExactEngine(database, dataset)
    if name == "sqlite-vec":
        from catalog.store.vectors.sqlite_vec import SqliteVecEngine

        return SqliteVecEngine(database, dataset, folder, dim, fingerprint)
    if name == "pgvector":
        from catalog.store.vectors.pgvector import PgVectorEngine

        return PgVectorEngine(database, dataset, dim, fingerprint)
    if name != "qdrant":
        known = ", ".join(VECTOR_ENGINES)
        raise ConfigError(f"unknown vector engine {name!r}; engines: {known}")
    if url is None:
        from catalog.store.vectors.edge import EdgeEngine

        return EdgeEngine(database, dataset, folder, dim, fingerprint)
    from catalog.store.vectors.qdrant_server import open_client
    from catalog.store.vectors.server import ServerEngine

    options = options or QdrantSettings()
    client = open_client(url, api_key, options.timeout_seconds)
    prefix = options.collection_prefix
    return ServerEngine(
        database, dataset, client, prefix, dim, fingerprint, options=options, owns_client=True
    )
