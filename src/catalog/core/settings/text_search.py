"""``IDX_RAG_V2__TSVECTOR__*``: what Postgres' text search indexes, and how."""

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
        description="A text search configuration of the server: english, german, …; simple: words "
        "as they are.",
    )
    fields: str = Field(
        "title:A, headings:C",
        pattern=r"^\s*([\w.-]+:[A-D](\s*[,\s]\s*|\s*$)){0,20}$",
        max_length=1000,
        description="What is searched beside the text: title, headings, path or a field of the "
        "metadata, at most 20, each with its weight. A word counts four times in A, three times in "
        "B, twice in C, once in D and in the text.",
    )

    @property
    def labels(self) -> dict[str, str]:
        """Return the letter of each field, in the order given."""
        pairs = (one.partition(":") for one in self.fields.replace(",", " ").split())
        return {name: letter for name, _, letter in pairs}
