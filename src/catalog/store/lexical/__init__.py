"""Keyword engines behind one protocol, chosen by name in one factory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from catalog.core.errors import ConfigError

if TYPE_CHECKING:
    from catalog.store.database import Database
    from catalog.store.lexical.base import LexicalEngine

__all__ = ["LEXICAL_ENGINES", "get_lexical_engine"]

LEXICAL_ENGINES = ("bm25", "fts")


def get_lexical_engine(
    name: str, database: Database, dataset: str, folder: Path, **options: Any
) -> LexicalEngine:
    """Return the engine of that name over one dataset; ``folder`` is for its derived files.

    ``options`` go to the engine: ``analyzer``, ``k1`` and ``b`` for ``bm25``, ``language`` for
    ``fts``. Raises :class:`ConfigError` for a name that is not in :data:`LEXICAL_ENGINES`.
    """
    if name == "bm25":
        from catalog.store.lexical.bm25 import Bm25Engine

        return Bm25Engine(database, dataset, folder, **options)
    if name == "fts":
        from catalog.store.lexical.fts import FtsEngine

        return FtsEngine(database, dataset, **options)
    raise ConfigError(f"unknown lexical engine {name!r}; engines: {', '.join(LEXICAL_ENGINES)}")
