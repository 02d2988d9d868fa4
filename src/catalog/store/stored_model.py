"""The embedding model a store belongs to: it remembers one, and refuses another."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from sqlalchemy import delete, update

from catalog.core.errors import EmbeddingMismatchError
from catalog.store.database import Database, read_meta, set_meta
from catalog.store.schema import chunk_windows, datasets, embeddings, outbox

_KEY = "embedding"


@dataclass(frozen=True, slots=True)
class StoredModel:
    """Name, fingerprint and dimension of the model whose vectors a store holds."""

    model: str
    fingerprint: str
    dim: int


def read_stored_model(database: Database) -> StoredModel | None:
    """Return the store's model; ``None`` while nothing was ever embedded."""
    value = database.meta(_KEY)
    return StoredModel(**json.loads(value)) if value is not None else None


def require_model(database: Database, model: StoredModel) -> None:
    """Bind a new store to the model; raise :class:`EmbeddingMismatchError` if bound to another."""
    bound_model = read_stored_model(database)
    if bound_model is None:
        with database.write() as connection:
            set_meta(connection, _KEY, json.dumps(asdict(model)), replace=False)
        bound_model = read_stored_model(database)
    if bound_model is not None and bound_model.fingerprint != model.fingerprint:
        raise EmbeddingMismatchError(
            f"the store holds vectors of {bound_model.model} ({bound_model.fingerprint}), not of "
            f"{model.model} ({model.fingerprint}); use that model, or re-embed everything: "
            "catalog index rebuild"
        )


def adopt_model(database: Database, model: StoredModel) -> None:
    """Bind the store to another model: every old vector goes, texts and lexical index stay."""
    with database.write() as connection:
        bound = read_meta(connection, _KEY)
        if bound is not None and json.loads(bound)["fingerprint"] == model.fingerprint:
            return
        for table in (chunk_windows, embeddings, outbox):
            connection.execute(delete(table))
        connection.execute(update(datasets).values(generation=datasets.c.generation + 1))
        set_meta(connection, _KEY, json.dumps(asdict(model)), replace=True)
