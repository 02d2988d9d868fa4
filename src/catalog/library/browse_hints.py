"""What to ask instead when no document is listed, for those conditions that alone match none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from catalog.library.browse_request import BrowseRequest
from catalog.library.references import find_alike
from catalog.store.card_search import find_documents
from catalog.store.document_names import find_groups
from catalog.store.engine_types import Restriction
from catalog.store.filter_sql import DatasetNames
from catalog.store.listing import (
    allowed_documents,
    count_by_type,
    count_by_value,
    count_documents,
    date_range,
    dated_between,
    list_document_paths,
    without_repeats,
)

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection


_MOST_NAMES, _MOST_TAGS = 5000, 12
_LONGEST = 200  # characters of a tag that is named


def find_hints(
    connection: Connection, dataset: DatasetNames, request: BrowseRequest
) -> tuple[str, ...]:
    """Return notes on a listing without a document, on what the caller's filters let through."""
    visible = allowed_documents(Restriction(dataset, filter=request.visible))
    if not count_documents(connection, visible, 1):
        several = not isinstance(dataset, str)
        nothing = f"the {'datasets have' if several else 'dataset has'} no documents"
        return (nothing if request.visible is None else "no document fulfils the filters",)
    is_met = {
        name: count_documents(connection, allowed, 1) > 0
        for name, allowed in _conditions(dataset, request, visible)
    }
    if request.query is not None:
        matches = find_documents(connection, dataset, request.query, visible)
        is_met["query"] = bool(matches.scores)
    if all(is_met.values()):
        return (f"{', '.join(is_met)}: each of these matches some document, but none matches all",)
    notes: dict[str, None] = {}
    for name in [name for name, met in is_met.items() if not met]:
        hints = list(_hints_for(name, connection, dataset, request, visible))
        if not hints and len(is_met) > 1:
            hints = [f"nothing matches the {name} alone"]
        notes |= dict.fromkeys(hints)
    return tuple(notes)


def _conditions(
    dataset: DatasetNames, request: BrowseRequest, visible: ColumnElement[bool]
) -> Iterator[tuple[str, ColumnElement[bool]]]:
    """Yield the conditions but the query, by name, each on the documents that are visible."""
    filters = {"file type": request.by_type, "name": request.by_name}
    filters |= {_tag_name(tag): part for tag, part in request.by_tag.items()}
    for name, part in filters.items():
        if part is not None:
            yield name, visible & allowed_documents(Restriction(dataset, filter=part))
    if request.after is not None or request.before is not None:
        yield "date", visible & dated_between(request.after, request.before)


def _hints_for(
    name: str,
    connection: Connection,
    dataset: DatasetNames,
    request: BrowseRequest,
    visible: ColumnElement[bool],
) -> Iterator[str]:
    if name == "file type":
        once = without_repeats(visible, find_groups(connection, dataset, visible))
        yield f"file types there are: {_format_counts(count_by_type(connection, once))}"
    elif name == "date":
        days = date_range(connection, visible)
        yield "no document has a date" if days is None else f"dates are from {days[0]} to {days[1]}"
    elif name in ("name", "query"):
        text = request.params.name if name == "name" else request.query
        near = _near_paths(list_document_paths(connection, visible), text or "")
        if near:
            yield f"names that are near: {', '.join(near)}"
    else:
        text = next(tag for tag in request.by_tag if name == _tag_name(tag))
        yield from _hints_for_tag(count_by_value(connection, visible, "tags"), text)


def _hints_for_tag(tags: Mapping[str, int], text: str) -> Iterator[str]:
    near = _near(text, {tag: [tag] for tag in tags})
    if near:
        yield f"tags that are near: {', '.join(near)}"
    most = dict(list(tags.items())[:_MOST_TAGS])
    more = ", …" if len(tags) > len(most) else ""
    yield f"tags there are: {_format_counts(most)}{more}"


def _tag_name(tag: str) -> str:
    return f"tag {tag[:_LONGEST]!r}"


def _format_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in counts.items()) or "none"


def _near_paths(paths: Iterable[str], text: str) -> list[str]:
    named: dict[str, list[str]] = {}
    for path in list(paths)[:_MOST_NAMES]:
        name = path.rpartition("/")[2]
        for form in (path, name, name.rpartition(".")[0] or name):
            named.setdefault(form, []).append(path)
    return _near(text, named)


def _near(text: str, named: Mapping[str, list[str]]) -> list[str]:
    """Return what is named most like the name wanted, whatever their case."""
    folded: dict[str, list[str]] = {}
    for name, items in named.items():
        folded.setdefault(name.casefold(), []).extend(items)
    return find_alike(text.casefold(), folded)
