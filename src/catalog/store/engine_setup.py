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
    """The arguments of an engine; later versions may add some.

    ``folder`` is for its derived files and need not exist yet. ``dim`` and ``fingerprint`` describe
    the embedding model, for vector engines.
    """

    database: Database
    dataset: str
    folder: Path
    rag: RAGv2Settings
    dim: int = 0
    fingerprint: str = ""
