"""The tool that tells which documents there are: ``query_catalog``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from catalog.core.dates import display_date
from catalog.interfaces.agents.arguments import CatalogArguments, readings
from catalog.interfaces.agents.quoting import one_line
from catalog.interfaces.agents.tool import (
    ToolData,
    ToolResult,
    echoed,
    noted,
    tool_result,
    types_text,
    without_nones,
)

if TYPE_CHECKING:
    from catalog.interfaces.engine import Engine


_INDENT = "    "
_SUMMARY = 600
_NARROWING = ("query", "file_type", "name", "tags", "after", "before")


class Listed(BaseModel):
    """One document. ``reference`` is what ``get`` takes; dates are ISO 8601.

    ``date`` is the one that ``after``, ``before`` and ``sort`` go by.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int
    reference: str
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
    passages: int


class CatalogData(ToolData):
    """Some of the documents that match; ``total`` and ``types`` count all that do."""

    documents: tuple[Listed, ...] = ()
    total: int = 0
    offset: int = 0
    next_offset: int | None = None
    types: dict[str, int] = Field(default_factory=dict)
    dataset: str | None = None


def run_query_catalog(
    engine: Engine, asked: CatalogArguments, notes: tuple[str, ...]
) -> ToolResult:
    """The documents that match, with what is known of each."""
    for tags in readings(asked.tags):
        arguments = without_nones(asked.model_dump() | {"tags": tags})
        page = engine.ask("browse", arguments)
        if page["total"] > 0:
            break
    first = asked.offset + 1
    documents = tuple(_listed(one, first + at) for at, one in enumerate(page["entries"]))
    after = asked.offset + len(documents)
    told = noted(page["notes"])
    data = CatalogData(
        status="ok" if documents else "no_results",
        message=None if documents else _nothing(page, arguments, asked.offset),
        notes=(*notes, *told),
        documents=documents,
        total=page["total"],
        offset=asked.offset,
        next_offset=after if documents and after < page["total"] else None,
        types={one_line(name, 40): count for name, count in page["types"].items()},
        dataset=page["dataset"],
    )
    ours = [*_counted(data), *(f"note: {note}" for note in notes)]
    quoted = "\n\n".join("\n".join(_lines(one)) for one in documents)
    return tool_result(data, ours=ours, quoted=quoted, notes=told)


def _listed(entry: Mapping[str, Any], number: int) -> Listed:
    named = entry["source_doc_id"]
    return Listed(
        number=number,
        reference=named if one_line(named) == named else f"#{entry['docid']}",
        path=one_line(entry["path"]),
        title=one_line(entry["title"]),
        file_type=one_line(entry["file_type"], 40),
        docid=entry["docid"],
        summary=one_line(entry["summary"], _SUMMARY),
        tags=tuple(one_line(tag, 100) for tag in entry["tags"]),
        created=_date(entry["created"]),
        modified=_date(entry["modified"]),
        date=_date(entry["date"]),
        characters=entry["characters"],
        bytes=entry["bytes"],
        passages=entry["chunks"],
    )


def _date(told: str | None) -> str | None:
    return None if told is None else one_line(told, 40)


def _counted(data: CatalogData) -> Iterator[str]:
    if not data.documents:
        return
    last = data.offset + len(data.documents)
    matching = "1 document matches" if data.total == 1 else f"{data.total} documents match"
    is_all = len(data.documents) == data.total
    shown = "" if is_all else f"; shown are [{data.offset + 1}] to [{last}]"
    types = types_text(data.types)
    yield f"{matching}{shown}" + (f"; file types: {types}" if types else "")
    if data.next_offset is not None:
        yield f"for more, ask again with offset {data.next_offset}"


def _lines(one: Listed) -> Iterator[str]:
    head = f"[{one.number}] {one.path}"
    told_by_path = one.title in ("", PurePosixPath(one.path).name, PurePosixPath(one.path).stem)
    yield head if told_by_path else f"{head} — {one.title}"
    count = "1 passage" if one.passages == 1 else f"{one.passages} passages"
    facts = [one.file_type, _size(one), count]
    facts += _dates(one)
    yield _INDENT + ", ".join(filter(None, facts))
    if one.tags:
        yield f"{_INDENT}tags: {', '.join(one.tags)}"
    if one.summary:
        yield f'{_INDENT}summary: "{one.summary}"'
    yield f"{_INDENT}reference: {one.reference} (#{one.docid})"


def _dates(one: Listed) -> Iterator[str]:
    """The date that bounds and sorting go by, and the others where they are of another day."""
    counts = None if one.date is None else display_date(one.date)
    if counts is not None:
        yield f"dated {counts}"
    for name, date in (("modified", one.modified), ("created", one.created)):
        if date is not None and display_date(date) != counts:
            yield f"{name} {display_date(date)}"


def _size(one: Listed) -> str:
    if one.bytes is None:
        return f"{one.characters} characters"
    if one.bytes < 1000:
        return f"{one.bytes} bytes"
    if one.bytes < 1_000_000:
        return f"{one.bytes / 1000:.1f} kB"
    return f"{one.bytes / 1_000_000:.1f} MB"


def _nothing(page: Mapping[str, Any], arguments: Mapping[str, Any], offset: int) -> str:
    """What was looked for, and what to try instead."""
    if page["total"]:
        return f"no results: {page['total']} documents match, none beyond offset {offset}."
    told = [f"{name} {echoed(str(arguments[name]))}" for name in _NARROWING if name in arguments]
    if not told:
        return f"no results: dataset {echoed(page['dataset'])} holds no documents."
    message = f"no results: no document of dataset {echoed(page['dataset'])} fits"
    return f"{message} {' and '.join(told)}. Leave some of it out, or try search_chunks."
