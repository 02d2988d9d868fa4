"""The arguments with which an engine is opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from catalog.core.settings import RAGv2Settings
    from catalog.store.database import Database


@dataclass(frozen=True, slots=True)
class EngineSetup:
    """What an engine is opened with; later versions may add to it.

    ``folder`` is for its derived files; it need not be there yet. ``dim`` and ``fingerprint`` are
    those of the embedding model, for engines of vectors.
    """

    database: Database
    dataset: str
    folder: Path
    rag: RAGv2Settings
    dim: int = 0
    fingerprint: str = ""
