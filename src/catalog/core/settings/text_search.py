"""``IDX_RAG_V2__TSVECTOR__*``: fields and language of Postgres's text search."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class TsvectorSettings(BaseModel):
    """``IDX_RAG_V2__TSVECTOR__*``: the engine `fts` on a store in Postgres.

    A change makes another index, from the store and without a model.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    config: str = Field(
        "english",
        pattern=r"^[^\W\d]\w*(\.[^\W\d]\w*)?$",
        max_length=100,
        description="A text search configuration of the server: english, german, … or simple (no "
        "stemming).",
    )
    fields: str = Field(
        "title:A, headings:C",
        pattern=r"^\s*([\w.-]+:[A-D](\s*[,\s]\s*|\s*$)){0,20}$",
        max_length=1000,
        description="Fields to search in addition to the text, each with a weight: title, "
        "headings, path or up to 20 fields of the metadata. A word counts four times in A, three "
        "times in B, twice in C, and once in D and in the text.",
    )

    @property
    def labels(self) -> dict[str, str]:
        """Return the letter of each field, in the order given."""
        pairs = (one.partition(":") for one in self.fields.replace(",", " ").split())
        return {name: letter for name, _, letter in pairs}
