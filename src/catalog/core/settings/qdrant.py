"""``IDX_RAG_V2__QDRANT__*``: our collections on a Qdrant server."""

from __future__ import annotations

from catalog.core.settings.variables import SettingsSection, setting


class QdrantSettings(SettingsSection):
    """``IDX_RAG_V2__QDRANT__*``: our collections on a Qdrant server."""

    collection_prefix: str = setting(
        "catalog_",
        "Prefix of every collection's name. Stores that share a server need different ones.",
        min_length=1,
        max_length=100,
        pattern=r"^[\w.-]+$",
    )
    timeout_seconds: float = setting(
        30.0, "Time limit of one request to the server.", (1.0, 3_600.0)
    )
