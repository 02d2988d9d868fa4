"""``IDX_COLLECTION__*``: a Qdrant collection that other software filled."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from catalog.core.settings.variables import ApiKey


class CollectionSettings(BaseModel):
    """``IDX_COLLECTION__*``: a Qdrant collection that other software filled, searched unchanged.

    The fields of its payload are named with dots where one lies in another.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    name: str | None = Field(None, description="Name of the collection, or of an alias.")
    url: str | None = Field(
        None, description="Address of its Qdrant server; unset: IDX_RAG_V2__QDRANT_URL."
    )
    api_key: ApiKey = Field(
        None, description="API key for that server; read access is enough.", repr=False
    )
    vector: str | None = Field(
        None, description="Name of the vector to search, if vectors have names."
    )
    text: str = Field("text", min_length=1, description="Payload field with the passage.")
    source_url: str = Field(
        "source_url", min_length=1, description="Payload field with the source of the passage."
    )
    page_title: str = Field(
        "page_title", min_length=1, description="Payload field with the title of the page."
    )
    section: str = Field(
        "section", min_length=1, description="Payload field with the passage's heading."
    )
    chunk_index: str = Field(
        "chunk_index",
        min_length=1,
        description="Payload field with the passage's number in the page.",
    )
    threshold: float | None = Field(
        None, ge=-1.0, le=1.0, description="Least score of a passage; unset: no limit."
    )
    low_score_below: float = Field(
        0.3,
        ge=-1.0,
        le=1.0,
        description="Passages with a lower score are flagged. The right value depends on the "
        "model.",
    )
    timeout_seconds: float = Field(
        10.0, ge=1.0, le=600.0, description="Time limit of one request to the server."
    )
