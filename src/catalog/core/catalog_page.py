"""Results of browsing as data; these are also the shapes of the JSON everywhere."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class CatalogEntry(BaseModel):
    """One document.

    ``summary`` is some of its own sentences, ``""`` until they have been chosen. ``created`` and
    ``modified`` are as the document says, ``modified`` as its file does where the document is
    silent. ``date`` is the one that sorting and bounds go by, in UTC: the document's own
    ``modified``, else its own ``created``, else that of its file. ``bytes`` is the size of a file
    that is one document (``None`` for a record of a larger file and a text made of another),
    ``characters`` those of its text and ``chunks`` its passages. ``score`` is how well it matches
    the query, ``None`` without one; it orders the entries of one page only.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    source_doc_id: str
    dataset: str
    path: str
    title: str
    file_type: str
    docid: str
    summary: str
    tags: tuple[str, ...]
    created: str | None
    modified: str | None
    date: str | None
    characters: int
    bytes: int | None
    chunks: int
    score: float | None


class CatalogPage(BaseModel):
    """Some of the documents that match, from the ``offset``-th on (counted from 0).

    ``datasets`` are those listed, and ``dataset`` the only one, ``None`` for several. ``total``
    counts all that match and ``types`` the same by file type, most first. ``notes`` say what else
    there is when nothing matches, and what could not be done.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str | None
    datasets: tuple[str, ...]
    query: str | None
    entries: tuple[CatalogEntry, ...]
    total: int
    offset: int
    types: dict[str, int]
    notes: tuple[str, ...]
    elapsed_ms: float

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that every interface gives."""
        return self.model_dump(mode="json")
