"""Reading what a listing is asked for: checked before anything runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from catalog.core.dates import read_bound
from catalog.core.errors import InputError
from catalog.core.filters import (
    And,
    Filter,
    Op,
    condition,
    file_type_filter,
    name_filter,
    parse_filters,
)
from catalog.core.param_fields import check_params
from catalog.core.params import SORTS, BrowseParams
from catalog.core.text import storable
from catalog.library.names import keep_whole

if TYPE_CHECKING:
    from sqlalchemy import Connection


@dataclass(frozen=True, slots=True)
class BrowseRequest:
    """A checked listing. ``visible`` is what the caller may see, ``wanted`` what is asked of it.

    A blank query is none. ``by_type``, ``by_name`` and ``by_tag`` are the parts of ``wanted`` that
    are not ``visible``. ``after`` and ``before`` know their time zone. ``notes`` say what was cut.
    """

    params: BrowseParams
    query: str | None
    visible: Filter | None
    by_type: Filter | None
    by_name: Filter | None
    by_tag: dict[str, Filter]
    after: datetime | None
    before: datetime | None
    notes: tuple[str, ...]

    @property
    def wanted(self) -> Filter | None:
        """Return all conditions but the query and the dates; ``None``: there are none."""
        filters = (self.visible, self.by_type, self.by_name, *self.by_tag.values())
        parts = tuple(part for part in filters if part is not None)
        return And(parts) if parts else None

    @property
    def visible_and_tags(self) -> Filter | None:
        """Return the conditions on the caller's filters and on tags; ``None``: there are none."""
        filters = (self.visible, *self.by_tag.values())
        parts = tuple(part for part in filters if part is not None)
        return And(parts) if parts else None

    @property
    def file_type(self) -> str | None:
        """Return the file type that is asked for."""
        return None if self.params.file_type is None else storable(self.params.file_type)

    def with_names(self, connection: Connection, datasets: tuple[str, ...]) -> BrowseRequest:
        """Return the request in which a name finds all files of its document."""
        visible = keep_whole(connection, datasets, self.visible)
        by_name = keep_whole(connection, datasets, self.by_name)
        return replace(self, visible=visible, by_name=by_name)


def read_browse_request(params: BrowseParams, *, max_query_chars: int) -> BrowseRequest:
    """Return the request that the parameters make; raise :class:`InputError` kinds for bad ones."""
    check_params(params)
    file_type, name, tags = params.file_type, params.name, params.tags
    text = "" if params.query is None else storable(params.query).strip()
    query = _cut(text, max_query_chars)
    cut = f"query cut from {len(text):,} to {len(query):,} characters"
    request = BrowseRequest(
        params=params,
        query=query or None,
        visible=parse_filters(params.filters),
        by_type=None if file_type is None else file_type_filter(storable(file_type)),
        by_name=None if name is None else name_filter(storable(name)),
        by_tag={str(tag): condition("tags", Op.ALL, [tag]) for tag in tags},
        after=read_bound("after", params.after),
        before=read_bound("before", params.before),
        notes=(cut,) if len(query) < len(text) else (),
    )
    if params.sort not in SORTS:
        raise InputError(f"no sort order {params.sort!r}; orders: {', '.join(SORTS)}")
    return request


def _cut(text: str, most: int) -> str:
    """Return the beginning of a text, cut between words if its last half has white space."""
    start = text[:most]
    if len(text) <= most or text[most].isspace():
        return start.rstrip()
    words = start[most // 2 :].rsplit(maxsplit=1)
    return start[: -len(words[-1])].rstrip() if len(words) > 1 else start
