"""``IDX_RAG_V2__QDRANT__*``: how collections on a Qdrant server are made, filled and searched."""

from __future__ import annotations

from typing import Literal

from catalog.core.settings.variables import SettingsSection, setting


class QdrantSettings(SettingsSection):
    """``IDX_RAG_V2__QDRANT__*``: options of our collections on a Qdrant server.

    Unset options follow the server's configuration.
    """

    collection_prefix: str = setting(
        "catalog_",
        "Prefix of every collection's name. Stores that share a server need different ones.",
        min_length=1,
        max_length=100,
        pattern=r"^[\w.-]+$",
    )
    texts: bool = setting(
        False, "Keep the passages' texts there, too, for LlamaIndex's QdrantVectorStore."
    )
    shard_number: int | None = setting(
        None, "Shards of a collection; a change applies to the next build.", (1, 10_000)
    )
    replication_factor: int | None = setting(None, "Copies of each shard in a cluster.", (1, 100))
    write_consistency_factor: int | None = setting(
        None, "Copies that must confirm a write.", (1, 100)
    )
    on_disk: bool = setting(False, "Keep vectors on disk instead of in memory.")
    quantization: Literal["none", "int8"] = setting(
        "none", "int8: also keep vectors of one byte per number, in memory."
    )
    oversampling: float = setting(
        2.0,
        "The int8 search finds this many times more, which are then compared at full precision.",
        (1.0, 100.0),
        only_with={"quantization": "int8"},
    )
    batch_size: int = setting(256, "Points in one request.", (1, 10_000))
    parallel: int = setting(4, "Requests with points at once.", (1, 64))
    timeout_seconds: float = setting(
        30.0, "Time limit of one request to the server.", (1.0, 3_600.0)
    )
