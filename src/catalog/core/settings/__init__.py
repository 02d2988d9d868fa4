"""Every setting with its default, its bounds, and the origin of its value.

``IDX_RAG_V2__*`` are settings of the v2 pipeline and ``IDX_*`` the rest. The environment takes
precedence over a TOML file (``IDX_CONFIG`` or ``catalog.toml`` in the home folder), that over a
preset, that over the defaults. An unknown name is an error and never ignored.
"""

from __future__ import annotations

from catalog.core.settings.collection import CollectionSettings
from catalog.core.settings.loading import LoadedSettings, get_settings, load_settings
from catalog.core.settings.qdrant import QdrantSettings
from catalog.core.settings.rag import IngestSettings, RAGv2Settings
from catalog.core.settings.sections import (
    AnswerSettings,
    EmbeddingSettings,
    LLMSettings,
    ServeSettings,
    Settings,
)

__all__ = [
    "AnswerSettings",
    "CollectionSettings",
    "EmbeddingSettings",
    "IngestSettings",
    "LLMSettings",
    "LoadedSettings",
    "QdrantSettings",
    "RAGv2Settings",
    "ServeSettings",
    "Settings",
    "get_settings",
    "load_settings",
]
