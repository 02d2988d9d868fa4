"""``IDX_RAG_V2__QDRANT__*``: how collections on a Qdrant server are made, filled and searched."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class QdrantSettings(BaseModel):
    """``IDX_RAG_V2__QDRANT__*``: options of our collections on a Qdrant server.

    Unset options follow the server's configuration.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    collection_prefix: str = Field(
        "catalog_",
        min_length=1,
        max_length=100,
        pattern=r"^[\w.-]+$",
        description="Begins the name of every collection: stores that share a server differ in it.",
    )
    texts: bool = Field(
        False,
        description="Keep the passages' texts there, too, for LlamaIndex's QdrantVectorStore.",
    )
    shard_number: int | None = Field(
        None, ge=1, le=10_000, description="Shards of a collection, from when it is next built."
    )
    replication_factor: int | None = Field(
        None, ge=1, le=100, description="Copies of each shard in a cluster."
    )
    write_consistency_factor: int | None = Field(
        None, ge=1, le=100, description="Copies that must take a write before it counts."
    )
    on_disk: bool = Field(False, description="Keep vectors on disk rather than in memory.")
    quantization: Literal["none", "int8"] = Field(
        "none", description="int8: also keep vectors of one byte a number, in memory."
    )
    oversampling: float = Field(
        2.0,
        ge=1.0,
        le=100.0,
        description="How many times more are found by those bytes, to be compared by the vectors.",
        json_schema_extra={"acts_only_with": {"quantization": "int8"}},
    )
    batch_size: int = Field(256, ge=1, le=10_000, description="Points in one request.")
    parallel: int = Field(4, ge=1, le=64, description="Requests with points at once.")
    timeout_seconds: float = Field(
        30.0, ge=1.0, le=3_600.0, description="For one request to the server."
    )
