"""Keyword engines behind one protocol, found by name; each of ours is one file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from catalog.core.entry_points import OURS, load_engine
from catalog.core.settings import RAGv2Settings
from catalog.store.database import EngineSetup

if TYPE_CHECKING:
    from catalog.store.database import Database
    from catalog.store.lexical.base import LexicalEngine

__all__ = ["LEXICAL_ENGINES", "get_lexical_engine"]

LEXICAL_ENGINES = tuple(OURS["catalog.lexical"])


def get_lexical_engine(
    name: str,
    database: Database,
    dataset: str,
    folder: Path,
    *,
    rag: RAGv2Settings | None = None,
) -> LexicalEngine:
    """Return the engine of that name for one dataset; ``folder`` is for its derived files.

    ``name`` is in :data:`LEXICAL_ENGINES` or comes from another package
    (``docs/how-to/write-an-engine.md``). Raises :class:`ConfigError` for any other name, and
    :class:`ConfigError` if the engine needs a server and none is set.
    """
    engine: LexicalEngine = load_engine("catalog.lexical", name)(
        EngineSetup(database, dataset, folder, rag or RAGv2Settings())
    )
    return engine


def open_full_text(setup: EngineSetup) -> LexicalEngine:
    """Return the engine ``fts``: the store's own full text, by FTS5 or Postgres's text search."""
    from catalog.store.lexical.fts import FtsEngine

    return FtsEngine(setup.database, setup.dataset)
