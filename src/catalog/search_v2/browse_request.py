"""Reading a listing's arguments: what is asked for, checked before anything runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, Required, TypedDict

from catalog.core.errors import InputError
from catalog.core.filters import And, Filter, Op, condition, parse_filters
from catalog.core.narrowing import named_like, of_type
from catalog.core.text import storable

Sort = Literal["best", "name", "modified", "size"]
SORTS: tuple[Sort, ...] = ("best", "name", "modified", "size")
MAX_LIMIT = 1000
DEFAULT_LIMIT = 20


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

    A blank query is none. ``after`` and ``before`` know their time zone.
    """

    dataset: str
    query: str | None
    file_type: str | None
    name: str | None
    visible: Filter | None
    wanted: Filter | None
    after: datetime | None
    before: datetime | None
    sort: Sort
    limit: int
    offset: int


def read_browse_request(asked: BrowseArguments) -> BrowseRequest:
    """The request these arguments make; raises :class:`InputError` kinds for those that do not."""
    query, file_type, name = asked.get("query"), asked.get("file_type"), asked.get("name")
    tags = asked.get("tags", ())
    if isinstance(tags, str):
        raise InputError("tags must be a list of tags, not one string")
    visible, labels = parse_filters(asked.get("filters")), list(tags)
    narrowed = [
        visible,
        None if file_type is None else of_type(_text("file_type", file_type)),
        None if name is None else named_like(_text("name", name)),
        condition("tags", Op.ALL, labels) if labels else None,
    ]
    parts = tuple(part for part in narrowed if part is not None)
    return BrowseRequest(
        dataset=_text("dataset", asked["dataset"]),
        query=None if query is None else _text("query", query).strip() or None,
        file_type=file_type,
        name=name,
        visible=visible,
        wanted=And(parts) if parts else None,
        after=_moment("after", asked.get("after")),
        before=_moment("before", asked.get("before")),
        sort=_known_sort(asked.get("sort", "best")),
        limit=_whole("limit", asked.get("limit", DEFAULT_LIMIT), 1, MAX_LIMIT),
        offset=_whole("offset", asked.get("offset", 0), 0, 2**53),
    )


def _text(what: str, given: object) -> str:
    if not isinstance(given, str):
        raise InputError(f"{what} must be text, not {given!r}")
    return storable(given)


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
    try:
        moment = datetime.fromisoformat(given.strip() if isinstance(given, str) else "")
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InputError(f"{what} must be a date such as 2026-03-31, not {given!r}") from None
