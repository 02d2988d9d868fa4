"""The tools' arguments. The descriptions are read by language models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field

from catalog.core.params import DEFAULT_LIMIT, Sort
from catalog.interfaces.agents.tool import ToolArguments

_MOST = 10_000_000
TOP_K = (1, 50)
LIMIT = (1, 100)
MAX_BYTES = (1_000, 1_000_000)

Texts = str | list[str] | None
Dataset = Annotated[
    str | None, Field(description="Name of the dataset; needed only when there are several.")
]
FileType = Annotated[
    str | None, Field(description="Only documents of this type: pdf, markdown, video, audio, …")
]
Name = Annotated[
    str | None, Field(description="Only documents whose path, title or recording holds this text.")
]
TopK = Annotated[int, Field(description="How many passages, 1 to 50.")]


class SearchChunksArguments(ToolArguments):
    """A question about what documents say."""

    CLAMPED: ClassVar[Mapping[str, tuple[int, int]]] = {"top_k": TOP_K}

    query: str = Field(description="What to find, as a question or in words.")
    top_k: TopK = 10
    file_type_filter: FileType = None
    doc_name_filter: Name = None
    dataset: Dataset = None


class SearchToolArguments(ToolArguments):
    """A search for passages."""

    CLAMPED: ClassVar[Mapping[str, tuple[int, int]]] = {"top_k": TOP_K}

    query: str = Field(description='Words, "quoted phrases" and -exclusions.')
    dataset: Dataset = None
    top_k: TopK = 10
    docs: Texts = Field(None, description="Only these documents: paths, globs or #docids.")
    file_type: FileType = None
    name: Name = None
    filters: Texts = Field(
        None, description='Conditions that must all hold: ["tag=ops", "page>=3"].'
    )
    explain: bool = Field(False, description="Tell how each score came about.")


class QueryArguments(SearchToolArguments):
    """A search that takes more time for a better order."""

    rerank: bool = Field(True, description="Let a second model read the best passages.")
    expand: bool | None = Field(
        None, description="Let a language model reword the query; null is as configured."
    )


class CatalogArguments(ToolArguments):
    """A look at which documents there are."""

    CLAMPED: ClassVar[Mapping[str, tuple[int, int]]] = {"limit": LIMIT, "offset": (0, _MOST)}

    query: str | None = Field(
        None, description="Words of titles, names, summaries and tags; nothing lists all."
    )
    file_type: FileType = None
    name: Name = None
    tags: Texts = Field(None, description="Only documents that carry all these tags.")
    after: str | None = Field(None, description="Only documents whose date is YYYY-MM-DD or later.")
    before: str | None = Field(None, description="Only documents whose date is before YYYY-MM-DD.")
    sort: Sort = Field(
        "best", description="best: by the query; modified: newest date first; size: largest first."
    )
    limit: int = Field(DEFAULT_LIMIT, description="How many documents, 1 to 100.")
    offset: int = Field(0, description="How many to pass over first.")
    dataset: Dataset = None


class GetArguments(ToolArguments):
    """One document."""

    CLAMPED: ClassVar[Mapping[str, tuple[int, int]]] = {
        "line_start": (1, _MOST),
        "line_end": (1, _MOST),
        "max_bytes": MAX_BYTES,
    }

    reference: str = Field(
        description="A reference from a search, a path, dataset:path or #docid; :12-20 picks "
        "lines, unless line_start and line_end pick others."
    )
    line_start: int | None = Field(None, description="First line, counted from 1.")
    line_end: int | None = Field(None, description="Last line, itself included.")
    dataset: Dataset = None
    max_bytes: int = Field(65_536, description="More text than this is cut after a line.")


class MultiGetArguments(ToolArguments):
    """Several documents."""

    CLAMPED: ClassVar[Mapping[str, tuple[int, int]]] = {"limit": LIMIT, "max_bytes": MAX_BYTES}

    pattern: str | list[str] = Field(
        description='A glob ("guides/**/*.md"), or paths and #docids: a list or with commas.'
    )
    limit: int = Field(20, description="How many documents at most, 1 to 100.")
    max_bytes: int = Field(
        65_536, description="Documents beyond this much text, all together, are only named."
    )
    dataset: Dataset = None


class StatusArguments(ToolArguments):
    """Nothing to say."""


def readings(given: str | list[str] | None) -> list[list[str] | None]:
    """What an argument may mean, the likeliest last: a text with commas is one name, or several."""
    if given is None or isinstance(given, list):
        return [given]
    parts = [part.strip() for part in given.split(",") if part.strip()]
    return [[given], parts] if "," in given else [parts]
