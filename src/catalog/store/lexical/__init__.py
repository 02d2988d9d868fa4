"""Keyword engines behind one protocol, found by name; each of ours is one file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from catalog.core.entry_points import OURS, load_engine

if TYPE_CHECKING:
    from catalog.store.database import EngineSetup
    from catalog.store.lexical.base import LexicalEngine

LEXICAL_ENGINES = tuple(OURS["catalog.lexical"])


def get_lexical_engine(name: str, setup: EngineSetup) -> LexicalEngine:
    """Return the engine of that name, ours or another package's, or raise :class:`ConfigError`."""
    engine: LexicalEngine = load_engine("catalog.lexical", name)(setup)
    return engine
