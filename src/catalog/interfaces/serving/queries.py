"""The operations' requests as parameters of an address: the same bounds, numbers out of text."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from catalog.core.browsing import DEFAULT_LIMIT, MAX_DOCUMENTS, Sort
from catalog.core.results import Mode
from catalog.interfaces.operations.calls import BrowseCall, GetCall, SearchCall


class _Query(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    def arguments(self) -> dict[str, Any]:
        """What was given, as the operation's arguments."""
        return self.model_dump(exclude_unset=True)


_SEARCH: dict[str, Any] = dict(SearchCall.model_fields)
_GET: dict[str, Any] = dict(GetCall.model_fields)
_BROWSE: dict[str, Any] = dict(BrowseCall.model_fields)


class SearchQuery(_Query):
    """The handy form of a search; ``POST`` takes every argument."""

    q: str = _SEARCH["query"]
    dataset: str | None = _SEARCH["dataset"]
    top_k: int = _SEARCH["top_k"]
    mode: Mode = _SEARCH["mode"]

    def arguments(self) -> dict[str, Any]:
        """The same with ``query`` for ``q``."""
        given = super().arguments()
        return {"query": given.pop("q"), **given}


class GetQuery(_Query):
    """Which lines of the document, and at most how much."""

    dataset: str | None = _GET["dataset"]
    line_start: int | None = _GET["line_start"]
    line_end: int | None = _GET["line_end"]
    max_bytes: int | None = _GET["max_bytes"]


class BrowseQuery(_Query):
    """Which documents, in which order; ``tags`` and ``filters`` may be given several times."""

    query: str | None = _BROWSE["query"]
    dataset: str | None = _BROWSE["dataset"]
    file_type: str | None = _BROWSE["file_type"]
    name: str | None = _BROWSE["name"]
    tags: list[str] = _BROWSE["tags"]
    filters: list[str] = Field(
        [], description='Conditions that must all hold, such as "tag=ops" or "page>=3".'
    )
    after: str | None = _BROWSE["after"]
    before: str | None = _BROWSE["before"]
    sort: Sort = _BROWSE["sort"]
    limit: int = Field(
        DEFAULT_LIMIT,
        ge=1,
        le=MAX_DOCUMENTS,
        description="How many documents; a stream gives all if it is left out.",
    )
    offset: int = _BROWSE["offset"]
