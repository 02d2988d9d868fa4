"""The requests: names, types, bounds and defaults of every argument."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from catalog.core.browsing import DEFAULT_LIMIT, MAX_DOCUMENTS, MAX_OFFSET, Sort
from catalog.core.results import Mode
from catalog.interfaces.operations.base import Call

MAX_TOP_K = 1000
MAX_TEXT_BYTES = 10_000_000
Dataset = Annotated[
    str | None,
    Field(description="Name of the dataset; may be left out when there is only one."),
]
FileType = Annotated[
    str | None,
    Field(description="Only documents of this type: pdf, markdown, word, video, audio, …"),
]
Name = Annotated[
    str | None, Field(description="Only documents whose path, title or recording holds this text.")
]


Conditions = Annotated[
    list[str] | dict[str, Any] | None,
    Field(description='Conditions that must all hold: ["tag=ops", "page>=3"] or {"tag": "ops"}.'),
]


class SearchCall(Call):
    """A search for passages."""

    query: str = Field(
        description='Words, "quoted phrases", -exclusions, or typed parts: lex: … / vec: …'
    )
    dataset: Dataset = None
    top_k: int = Field(10, ge=1, le=MAX_TOP_K, description="How many passages.")
    mode: Mode = Field("hybrid", description="lexical (words), vector (meaning) or hybrid.")
    docs: list[str] | None = Field(
        None, description="Only these documents: paths, globs or #docids; [] is none of them."
    )
    file_type: FileType = None
    name: Name = None
    filters: Conditions = None
    rerank: bool | None = Field(None, description="Let a second model read the best passages.")
    expand: bool | None = Field(None, description="Let a language model reword the query.")
    explain: bool = Field(False, description="Tell how each score came about.")
    strict: bool = Field(False, description="Fail when a stage fails, rather than go on without.")


class GetCall(Call):
    """A document, whole or some of its lines."""

    reference: str = Field(description="dataset:path, path or #docid; :12-20 after it picks lines.")
    dataset: Dataset = None
    line_start: int | None = Field(None, ge=1, description="First line, counted from 1.")
    line_end: int | None = Field(None, ge=1, description="Last line, itself included.")
    max_bytes: int | None = Field(
        None, ge=1, le=MAX_TEXT_BYTES, description="More than this is cut after a whole line."
    )


class MultiGetCall(Call):
    """Several documents."""

    patterns: list[str] = Field(
        min_length=1, max_length=MAX_DOCUMENTS, description="Paths, globs or #docids."
    )
    dataset: Dataset = None
    limit: int = Field(20, ge=1, le=MAX_DOCUMENTS, description="How many documents at most.")
    max_bytes: int = Field(
        65_536,
        ge=1,
        le=MAX_TEXT_BYTES,
        description="A document larger than this is named, not given.",
    )


class BrowseCall(Call):
    """A look at what documents there are."""

    query: str | None = Field(None, description="Words of titles, names, summaries and tags.")
    dataset: Dataset = None
    file_type: FileType = None
    name: Name = None
    tags: list[str] = Field([], max_length=50, description="Only documents with all these tags.")
    filters: Conditions = None
    after: str | None = Field(
        None, description="Only documents dated on or after YYYY-MM-DD, YYYY-MM or YYYY."
    )
    before: str | None = Field(
        None, description="Only documents dated before that day, month or year."
    )
    sort: Sort = Field(
        "best", description="best: by the query, without one by name; modified: newest first."
    )
    limit: int = Field(DEFAULT_LIMIT, ge=1, le=MAX_DOCUMENTS, description="How many documents.")
    offset: int = Field(0, ge=0, le=MAX_OFFSET, description="How many to pass over first.")


class StatusCall(Call):
    """What the store holds; there is nothing to say."""
