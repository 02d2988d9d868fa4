"""The tool that tells which documents there are: ``query_catalog``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from pydantic import Field

from catalog.core.dates import display_date
from catalog.core.errors import UnknownValueError
from catalog.core.params import BrowseParams
from catalog.interfaces.agents.arguments import (
    AFTER,
    BEFORE,
    Argument,
    ToolArguments,
    arguments_of,
    possible_lists,
)
from catalog.interfaces.agents.quoting import document_reference, one_line
from catalog.interfaces.agents.tool import (
    AgentTool,
    ToolData,
    ToolPart,
    ToolResult,
    clean_notes,
    format_types,
    note_lines,
    quote_argument,
    tool_result,
)

if TYPE_CHECKING:
    from catalog.interfaces.calls import Engine

_INDENT = "    "
_MAX_SUMMARY = 600
_NARROWING = ("query", "file_type", "name", "tags", "filters", "after", "before")


class CatalogDocument(ToolPart):
    """One document. ``reference`` is what ``get`` takes; dates are ISO 8601.

    ``date`` is the one that ``after``, ``before`` and ``sort`` go by.
    """

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

    documents: tuple[CatalogDocument, ...] = ()
    total: int = 0
    offset: int = 0
    next_offset: int | None = None
    types: dict[str, int] = Field(default_factory=dict)
    dataset: str | None = None


def run_query_catalog(
    engine: Engine, arguments: ToolArguments, notes: tuple[str, ...]
) -> ToolResult:
    """List the documents that match, with what is known of each."""
    params = arguments.params()
    if isinstance(params.get("filters"), str):
        params["filters"] = [params["filters"]]
    page = _ask(engine, params)
    offset = params["offset"]
    documents = tuple(
        _catalog_document(entry, number)
        for number, entry in enumerate(page["entries"], start=offset + 1)
    )
    end = offset + len(documents)
    quoted_notes = clean_notes(page["notes"])
    data = CatalogData(
        status="ok" if documents else "no_results",
        message=None if documents else _no_results(page, params),
        notes=(*notes, *quoted_notes),
        documents=documents,
        total=page["total"],
        offset=offset,
        next_offset=end if documents and end < page["total"] else None,
        types={one_line(name, 40): count for name, count in page["types"].items()},
        dataset=page["dataset"],
    )
    lines = [*_count_lines(data), *note_lines(notes)]
    quoted = "\n\n".join("\n".join(_document_lines(document)) for document in documents)
    return tool_result(data, lines=lines, quoted=quoted, quoted_notes=quoted_notes)


def _ask(engine: Engine, params: dict[str, Any]) -> dict[str, Any]:
    """List the documents; of what the text of ``tags`` may mean, keep the first that has some."""
    *unlikely, likeliest = possible_lists(params.get("tags"))
    for tags in unlikely:
        with suppress(UnknownValueError):
            page = engine.ask("browse", {**params, "tags": tags})
            if page["total"]:
                return page
    if likeliest is not None:
        params["tags"] = likeliest
    return engine.ask("browse", params)


def _catalog_document(entry: Mapping[str, Any], number: int) -> CatalogDocument:
    dates = {
        name: None if entry[name] is None else one_line(entry[name], 40)
        for name in ("created", "modified", "date")
    }
    return CatalogDocument(
        number=number,
        reference=document_reference(entry),
        path=one_line(entry["path"]),
        title=one_line(entry["title"]),
        file_type=one_line(entry["file_type"], 40),
        docid=entry["docid"],
        summary=one_line(entry["summary"], _MAX_SUMMARY),
        tags=tuple(one_line(tag, 100) for tag in entry["tags"]),
        **dates,
        characters=entry["characters"],
        bytes=entry["bytes"],
        passages=entry["chunks"],
    )


def _count_lines(data: CatalogData) -> Iterator[str]:
    if not data.documents:
        return
    count = len(data.documents)
    matching = "1 document matches" if data.total == 1 else f"{data.total} documents match"
    first, last = data.offset + 1, data.offset + count
    extent = "" if count == data.total else f"; shown are [{first}] to [{last}]"
    types = format_types(data.types)
    yield f"{matching}{extent}" + (f"; file types: {types}" if types else "")
    if data.next_offset is not None:
        yield f"for more, ask again with offset {data.next_offset}"


def _document_lines(document: CatalogDocument) -> Iterator[str]:
    head = f"[{document.number}] {document.path}"
    path = PurePosixPath(document.path)
    yield head if document.title in ("", path.name, path.stem) else f"{head} — {document.title}"
    count = "1 passage" if document.passages == 1 else f"{document.passages} passages"
    facts = [document.file_type, _format_size(document), count, *_dates(document)]
    yield _INDENT + ", ".join(filter(None, facts))
    if document.tags:
        yield f"{_INDENT}tags: {', '.join(document.tags)}"
    if document.summary:
        yield f'{_INDENT}summary: "{document.summary}"'
    yield f"{_INDENT}reference: {document.reference} (#{document.docid})"


def _dates(document: CatalogDocument) -> Iterator[str]:
    """Yield the date that bounds and sorting go by, and the others if they are of another day."""
    day = None if document.date is None else display_date(document.date)
    if day is not None:
        yield f"dated {day}"
    for name, date in (("modified", document.modified), ("created", document.created)):
        if date is not None and display_date(date) != day:
            yield f"{name} {display_date(date)}"


def _format_size(document: CatalogDocument) -> str:
    size = document.bytes
    if size is None:
        return f"{document.characters} characters"
    if size < 1000:
        return f"{size} bytes"
    return f"{size / 1000:.1f} kB" if size < 1_000_000 else f"{size / 1_000_000:.1f} MB"


def _no_results(page: Mapping[str, Any], params: Mapping[str, Any]) -> str:
    """Say what was looked for, and what to try instead."""
    if page["total"]:
        total, offset = page["total"], params["offset"]
        return f"no results: {total} documents match, none beyond offset {offset}."
    dataset = ", ".join(map(quote_argument, page["datasets"]))
    parts = [f"{name} {quote_argument(params[name])}" for name in _NARROWING if name in params]
    if not parts:
        return f"no results: dataset {dataset} holds no documents."
    message = f"no results: no document of dataset {dataset} fits {' and '.join(parts)}"
    return f"{message}. Leave some of it out, or try search_chunks."


QUERY_CATALOG = AgentTool(
    "query_catalog",
    "List the documents there are",
    "Discover which files exist: list, count or filter documents by type, name, tag or date, "
    "sort them by date or size. Returns titles, summaries, sizes and dates, not what the "
    "documents say.",
    arguments_of(
        BrowseParams,
        last=("filters", "dataset"),
        query=Argument(help="Words of titles, names, summaries and tags; nothing lists all."),
        limit=Argument(bounds=(1, 100)),
        filters=Argument(help='Conditions that must all hold: ["author=ann", "size>=1000"].'),
        after=AFTER,
        before=BEFORE,
    ),
    CatalogData,
    run_query_catalog,
)
