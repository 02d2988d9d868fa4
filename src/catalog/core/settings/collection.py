"""``IDX_COLLECTION__*``: a Qdrant collection that other software filled."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from catalog.core.settings.variables import ApiKey


class CollectionSettings(BaseModel):
    """``IDX_COLLECTION__*``: a Qdrant collection that other software filled, searched unchanged.

    The fields of its payload are named with dots where one lies in another.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    name: str | None = Field(None, description="Name of the collection (or of an alias of it).")
    url: str | None = Field(
        None, description="The Qdrant server it is on; unset: IDX_RAG_V2__QDRANT_URL."
    )
    api_key: ApiKey = Field(
        None, description="Key for that server, one that may only read will do.", repr=False
    )
    vector: str | None = Field(
        None, description="Which of its vectors is searched, where they have names."
    )
    text: str = Field("text", min_length=1, description="Payload field that holds the passage.")
    source_url: str = Field(
        "source_url", min_length=1, description="Payload field that says where it is from."
    )
    page_title: str = Field(
        "page_title", min_length=1, description="Payload field with the title of that page."
    )
    section: str = Field(
        "section", min_length=1, description="Payload field with the heading over the passage."
    )
    chunk_index: str = Field(
        "chunk_index", min_length=1, description="Payload field with its number in the page."
    )
    threshold: float | None = Field(
        None, ge=-1.0, le=1.0, description="Passages of a lower score are left out; unset: none."
    )
    low_score_below: float = Field(
        0.3,
        ge=-1.0,
        le=1.0,
        description="Passages of a lower score are flagged. What is low differs between models.",
    )
    timeout_seconds: float = Field(
        10.0, ge=1.0, le=600.0, description="For one request to the server."
    )
