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
    """The store's model; ``None`` while nothing was ever embedded."""
    value = database.meta(_KEY)
    return StoredModel(**json.loads(value)) if value is not None else None


def require_model(database: Database, wanted: StoredModel) -> None:
    """Bind a new store to the model; raise :class:`EmbeddingMismatchError` if bound to another."""
    found = read_stored_model(database)
    if found is None:
        with database.write() as connection:
            set_meta(connection, _KEY, json.dumps(asdict(wanted)), replace=False)
        found = read_stored_model(database)
    if found is not None and found.fingerprint != wanted.fingerprint:
        raise EmbeddingMismatchError(
            f"the store holds vectors of {found.model} ({found.fingerprint}), not of "
            f"{wanted.model} ({wanted.fingerprint}); use that model, or re-embed everything: "
            "catalog index rebuild"
        )


def adopt_model(database: Database, wanted: StoredModel) -> None:
    """Bind the store to another model: every old vector goes, texts and lexical index stay."""
    with database.write() as connection:
        found = read_meta(connection, _KEY)
        if found is not None and json.loads(found)["fingerprint"] == wanted.fingerprint:
            return
        for table in (chunk_windows, embeddings, outbox):
            connection.execute(delete(table))
        connection.execute(update(datasets).values(generation=datasets.c.generation + 1))
        set_meta(connection, _KEY, json.dumps(asdict(wanted)), replace=True)
