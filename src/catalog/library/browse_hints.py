"""What to ask instead when no document is listed, for those conditions that alone match none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING

from catalog.library.browse_request import BrowseRequest
from catalog.store.card_search import find_documents
from catalog.store.engine_types import Restriction
from catalog.store.listing import (
    allowed_documents,
    count_by_tag,
    count_by_type,
    count_documents,
    date_range,
    dated_between,
    list_document_paths,
)

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection


_NEAR, _MOST_NAMES, _MOST_TAGS = 5, 5000, 12
_LONGEST = 200  # characters of a name that others are compared to


def find_hints(connection: Connection, request: BrowseRequest) -> tuple[str, ...]:
    """Notes on a listing without a document; only on what the caller's own filters let through."""
    visible = allowed_documents(Restriction(request.dataset, filter=request.visible))
    if not count_documents(connection, visible, 1):
        told = "the dataset has no documents"
        return (told if request.visible is None else "no document fulfils the filters",)
    alone = {told: _is_met(connection, one) for told, one in _conditions(request, visible)}
    if request.query is not None:
        alone["query"] = bool(_found(connection, request, visible))
    if all(alone.values()):
        return (f"{', '.join(alone)}: each of these matches some document, but none matches all",)
    failing = [told for told, is_met in alone.items() if not is_met]
    notes: dict[str, None] = {}
    for told in failing:
        given = list(_hints_for(told, connection, request, visible))
        if not given and len(alone) > 1:
            given = [f"nothing matches the {told} alone"]
        notes |= dict.fromkeys(given)
    return tuple(notes)


def _conditions(
    request: BrowseRequest, visible: ColumnElement[bool]
) -> Iterator[tuple[str, ColumnElement[bool]]]:
    """The conditions but the query, by name, each on the documents that are visible."""
    narrowed = {"file type": request.by_type, "name": request.by_name}
    narrowed |= {_tag_told(tag): part for tag, part in request.by_tag.items()}
    for told, part in narrowed.items():
        if part is not None:
            yield told, visible & allowed_documents(Restriction(request.dataset, filter=part))
    if request.after is not None or request.before is not None:
        yield "date", visible & dated_between(request.after, request.before)


def _is_met(connection: Connection, allowed: ColumnElement[bool]) -> bool:
    return count_documents(connection, allowed, 1) > 0


def _found(
    connection: Connection, request: BrowseRequest, visible: ColumnElement[bool]
) -> Mapping[int, float]:
    return find_documents(connection, request.dataset, request.query or "", visible).scores


def _hints_for(
    told: str, connection: Connection, request: BrowseRequest, visible: ColumnElement[bool]
) -> Iterator[str]:
    if told == "file type":
        yield f"file types there are: {_counted(count_by_type(connection, visible))}"
    elif told == "date":
        days = date_range(connection, visible)
        yield "no document has a date" if days is None else f"dates are from {days[0]} to {days[1]}"
    elif told in ("name", "query"):
        wanted = request.name if told == "name" else request.query
        near = _near_paths(list_document_paths(connection, visible), wanted or "")
        if near:
            yield f"names that are near: {', '.join(near)}"
    else:
        yield from _hints_for_tags(count_by_tag(connection, visible), request, told)


def _hints_for_tags(tags: Mapping[str, int], request: BrowseRequest, told: str) -> Iterator[str]:
    asked = next(tag for tag in request.by_tag if told == _tag_told(tag))
    near = _near(asked, {tag: [tag] for tag in tags})
    if near:
        yield f"tags that are near: {', '.join(near)}"
    most = dict(list(tags.items())[:_MOST_TAGS])
    more = ", …" if len(tags) > len(most) else ""
    yield f"tags there are: {_counted(most)}{more}"


def _tag_told(tag: str) -> str:
    return f"tag {tag[:_LONGEST]!r}"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in counts.items()) or "none"


def _near_paths(paths: Iterable[str], wanted: str) -> list[str]:
    told: dict[str, list[str]] = {}
    for path in list(paths)[:_MOST_NAMES]:
        name = path.rpartition("/")[2]
        for form in (path, name, name.rpartition(".")[0] or name):
            told.setdefault(form, []).append(path)
    return _near(wanted, told)


def _near(wanted: str, meant: Mapping[str, list[str]]) -> list[str]:
    """What is meant by the names most like the one wanted, whatever their case."""
    folded: dict[str, list[str]] = {}
    for name, those in meant.items():
        folded.setdefault(name.casefold(), []).extend(those)
    close = get_close_matches(wanted.casefold()[:_LONGEST], folded, n=_NEAR)
    return list(dict.fromkeys(one for form in close for one in folded[form]))[:_NEAR]
