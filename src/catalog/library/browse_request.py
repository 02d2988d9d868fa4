"""Reading a listing's arguments: what is asked for, checked before anything runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Required, TypedDict

from catalog.core.dates import parse_date
from catalog.core.errors import InputError
from catalog.core.filter_forms import file_type_filter, name_filter, parse_filters
from catalog.core.filters import And, Filter, Op, condition
from catalog.core.params import DEFAULT_LIMIT, MAX_DOCUMENTS, MAX_OFFSET, SORTS, Sort
from catalog.core.text import storable


class BrowseArguments(TypedDict, total=False):
    """What narrows a listing; ``DocumentCatalog.query`` says what each means."""

    dataset: Required[str]
    query: str | None
    file_type: str | None
    name: str | None
    tags: Iterable[str]
    filters: object
    after: str | None
    before: str | None
    sort: str
    limit: int
    offset: int


@dataclass(frozen=True, slots=True)
class BrowseRequest:
    """A listing, checked. ``visible`` is what the caller may see, ``wanted`` what is asked of it.

    A blank query is none. ``by_type``, ``by_name`` and ``by_tag`` are the parts of ``wanted`` that
    are not ``visible``. ``after`` and ``before`` know their time zone. ``notes`` say what was cut.
    """

    dataset: str
    query: str | None
    name: str | None
    visible: Filter | None
    by_type: Filter | None
    by_name: Filter | None
    by_tag: dict[str, Filter]
    after: datetime | None
    before: datetime | None
    sort: Sort
    limit: int
    offset: int
    notes: tuple[str, ...]

    @property
    def wanted(self) -> Filter | None:
        """All conditions but the query and the dates; ``None``: there are none."""
        asked = (self.visible, self.by_type, self.by_name, *self.by_tag.values())
        parts = tuple(part for part in asked if part is not None)
        return And(parts) if parts else None


def read_browse_request(asked: BrowseArguments, *, max_query_chars: int) -> BrowseRequest:
    """The request these arguments make; raises :class:`InputError` kinds for those that do not."""
    query, file_type, name = asked.get("query"), asked.get("file_type"), asked.get("name")
    tags = asked.get("tags", ())
    if isinstance(tags, str):
        raise InputError("tags must be a list of tags, not one string")
    text = "" if query is None else _text("query", query).strip()
    kept = _cut(text, max_query_chars)
    cut = f"query cut from {len(text):,} to {len(kept):,} characters"
    return BrowseRequest(
        dataset=_text("dataset", asked["dataset"]),
        query=kept or None,
        name=name,
        visible=parse_filters(asked.get("filters")),
        by_type=None if file_type is None else file_type_filter(_text("file_type", file_type)),
        by_name=None if name is None else name_filter(_text("name", name)),
        by_tag={str(tag): condition("tags", Op.ALL, [tag]) for tag in tags},
        after=_moment("after", asked.get("after")),
        before=_moment("before", asked.get("before")),
        sort=_known_sort(asked.get("sort", "best")),
        limit=_whole("limit", asked.get("limit", DEFAULT_LIMIT), 1, MAX_DOCUMENTS),
        offset=_whole("offset", asked.get("offset", 0), 0, MAX_OFFSET),
        notes=(cut,) if len(kept) < len(text) else (),
    )


def _text(what: str, given: object) -> str:
    if not isinstance(given, str):
        raise InputError(f"{what} must be text, not {given!r}")
    return storable(given)


def _cut(text: str, most: int) -> str:
    """The beginning of a text; between words where its last half has white space."""
    kept = text[:most]
    if len(text) <= most or text[most].isspace():
        return kept.rstrip()
    words = kept[most // 2 :].rsplit(maxsplit=1)
    return kept[: -len(words[-1])].rstrip() if len(words) > 1 else kept


def _known_sort(name: str) -> Sort:
    for known in SORTS:
        if name == known:
            return known
    raise InputError(f"no sort order {name!r}; orders: {', '.join(SORTS)}")


def _whole(what: str, given: object, least: int, most: int) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not least <= given <= most:
        raise InputError(f"{what} must be a whole number from {least} to {most}, not {given!r}")
    return given


def _moment(what: str, given: object) -> datetime | None:
    if given is None:
        return None
    read = parse_date(given) if isinstance(given, str) else None
    if read is None:
        raise InputError(
            f"{what} must be a date such as 2026-03-31, 2026-03 or 2026, not {given!r}"
        )
    return read
