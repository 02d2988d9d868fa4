"""The balance of the legs that a dataset's own labels taught, kept in the store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from catalog.core.ids import sha256_hex
from catalog.retrieval.adaptive import SCALE_VERSION

if TYPE_CHECKING:
    from catalog.core.settings import RAGv2Settings
    from catalog.store import Database


def find_shift(
    database: Database, dataset: str, embedding: str, rag: RAGv2Settings
) -> float | None:
    """Return the shift that labels taught for hybrid searches with an embedding model.

    ``None``: they taught none.
    """
    stored = database.meta(_key(dataset, embedding, rag))
    return None if stored is None else json.loads(stored).get("fit")


def save_balance(
    database: Database,
    dataset: str,
    embedding: str,
    rag: RAGv2Settings,
    *,
    shift: float | None,
    about: str,
) -> None:
    """Save how far the vector leg's share is shifted, ``None``: as it is where nothing was learnt.

    Searches use it from the next opening on.
    """
    entry = {"fit": shift, "of": dataset, "about": about, "embedding": embedding}
    database.set_meta(_key(dataset, embedding, rag), json.dumps(entry))


def _key(dataset: str, embedding: str, rag: RAGv2Settings) -> str:
    """Return the name of the entry: it holds for one model, engine, formula and weights only."""
    formula = f"{SCALE_VERSION}|{rag.lexical_weight}|{rag.vector_weight}|{rag.lexical_engine}"
    return f"balance:{sha256_hex(f'{dataset}|{formula}|{embedding}')[:16]}"
