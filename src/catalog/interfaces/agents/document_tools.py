"""The tools that list documents and return their text: ``query_catalog``, ``get``, ``multi_get``
and ``status``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import PurePosixPath
from textwrap import indent
from typing import TYPE_CHECKING, Any

from pydantic import Field

from catalog.core.dates import display_date
from catalog.core.errors import InputError, UnknownValueError
from catalog.core.params import BrowseParams, GetParams, MultiGetParams, StatusParams
from catalog.core.text import clean
from catalog.interfaces.agents.tool import (
    AFTER,
    BEFORE,
    AgentTool,
    Argument,
    ToolArguments,
    ToolData,
    ToolPart,
    ToolResult,
    arguments_of,
    ask_by_names,
    clean_notes,
    document_reference,
    format_types,
    note_lines,
    one_line,
    possible_lists,
    quote_argument,
    shown_tags,
    tool_result,
)

if TYPE_CHECKING:
    from catalog.interfaces.calls import Engine


_INDENT = "    "
_MAX_SUMMARY = 600
_NARROWING = ("query", "containing", "file_type", "name", "tags", "filters", "after", "before")
_TEXT_BYTES = (1_000, 1_000_000)


class CatalogDocument(ToolPart):
    """One document. ``reference`` is for ``get``; dates are ISO 8601.

    ``after``, ``before`` and ``sort`` use ``date``.
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
    matching: int | None = None
    places: tuple[str, ...] = ()


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
    """List the documents that match, with the metadata of each."""
    params = arguments.params()
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
    """List the documents; of the readings of ``tags``, take the first with any documents."""
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
        tags=shown_tags(entry["tags"]),
        **dates,
        characters=entry["characters"],
        bytes=entry["bytes"],
        passages=entry["chunks"],
        matching=entry["matching"],
        places=tuple(map(one_line, entry["places"])),
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
    if document.matching is not None:
        yield f"{_INDENT}{document.matching} of them contain it: {', '.join(document.places)}"
    if document.summary:
        yield f'{_INDENT}summary: "{document.summary}"'
    yield f"{_INDENT}reference: {document.reference} (#{document.docid})"


def _dates(document: CatalogDocument) -> Iterator[str]:
    """Yield the date for bounds and sorting, and the rest that are of another day."""
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
    """Return the message on the empty list: its filters, and another call to try."""
    if page["total"]:
        total, offset = page["total"], params["offset"]
        return f"no results: {total} documents match, but offset {offset} is beyond them."
    dataset = ", ".join(map(quote_argument, page["datasets"]))
    parts = [f"{name} {quote_argument(params[name])}" for name in _NARROWING if name in params]
    if not parts:
        return f"no results: dataset {dataset} has no documents."
    message = f"no results: no document of dataset {dataset} matches {' and '.join(parts)}"
    return f"{message}. Leave out some conditions, or try search_chunks."


QUERY_CATALOG = AgentTool(
    "query_catalog",
    "List the documents there are",
    "Discover which files exist: list, count or filter documents by type, name, tag or date, "
    "sort them by date or size. Returns titles, summaries, sizes and dates, not what the "
    "documents say.",
    arguments_of(
        BrowseParams,
        last=("filters", "dataset"),
        query=Argument(
            help="Words in titles, names, summaries or tags. Default: list all documents."
        ),
        limit=Argument(bounds=(1, 100)),
        filters=Argument(help='Conditions that must all be true: ["author=ann", "size>=1000"].'),
        after=AFTER,
        before=BEFORE,
    ),
    CatalogData,
    run_query_catalog,
)


class Document(ToolPart):
    """Its lines, cells, pages or paragraphs ``start`` to ``end`` (both included) of ``total``.

    ``unit`` says which; ``line_…`` are the same where it is a line.
    """

    reference: str
    path: str
    title: str
    docid: str
    unit: str
    start: int | None
    end: int | None
    total: int | None
    line_start: int | None
    line_end: int | None
    lines_total: int | None
    text: str


class SkippedDocument(ToolPart):
    """A document that is only named, without its text."""

    reference: str
    path: str
    reason: str


class GetData(ToolData):
    """The document."""

    document: Document | None = None


class MultiGetData(ToolData):
    """The documents, and those left out."""

    documents: tuple[Document, ...] = ()
    skipped: tuple[SkippedDocument, ...] = ()


def run_get(engine: Engine, arguments: ToolArguments, notes: tuple[str, ...]) -> ToolResult:
    """Give the document, or those of its lines that were asked for and fit."""
    answer = engine.ask("get", arguments.params())
    notes = (*notes, *clean_notes(answer["notes"]))
    document = _document(answer)
    data = GetData(status="ok", notes=notes, document=document)
    return tool_result(data, lines=note_lines(notes), quoted=_format_document(document))


def run_multi_get(engine: Engine, arguments: ToolArguments, notes: tuple[str, ...]) -> ToolResult:
    """Give the documents, in the order of the patterns, as long as all together fit."""
    params = arguments.params()
    if not possible_lists(params["patterns"])[-1]:
        raise InputError("the argument patterns is empty: name a document")
    answer = ask_by_names(engine, "multi_get", params, "patterns")
    documents, left_out = _take_fitting(map(_document, answer["documents"]), params["max_bytes"])
    skipped = [*map(_skipped_document, answer["skipped"]), *left_out]
    quoted_notes = clean_notes(answer["notes"])  # they name documents
    pattern = quote_argument(params["patterns"])
    data = MultiGetData(
        status="ok" if documents else "no_results",
        message=None if documents else f"no results: no document of {pattern} could be read.",
        notes=(*notes, *quoted_notes),
        documents=tuple(documents),
        skipped=tuple(skipped),
    )
    not_given = "\n".join(
        f"not returned: {document.path}: {document.reason}" for document in skipped
    )
    # Lines are set in, so that none looks like the head of another document.
    texts = [
        _format_document(document, indent(document.text.strip("\n"), _INDENT))
        for document in documents
    ]
    quoted = "\n\n".join(filter(None, (*texts, not_given)))
    return tool_result(data, lines=note_lines(notes), quoted=quoted, quoted_notes=quoted_notes)


def _document(answer: Mapping[str, Any]) -> Document:
    return Document(
        reference=document_reference(answer),
        path=one_line(answer["path"]),
        title=one_line(answer["title"]),
        docid=answer["docid"],
        unit=answer["unit"],
        start=answer["start"],
        end=answer["end"],
        total=answer["total"],
        line_start=answer["line_start"],
        line_end=answer["line_end"],
        lines_total=answer["lines_total"],
        text=clean(answer["text"]),
    )


def _skipped_document(answer: Mapping[str, Any]) -> SkippedDocument:
    return SkippedDocument(
        reference=one_line(answer["source_doc_id"]),
        path=one_line(answer["path"]),
        reason=one_line(answer["reason"]),
    )


def _take_fitting(
    documents: Iterable[Document], max_bytes: int
) -> tuple[list[Document], list[SkippedDocument]]:
    """Return the documents that fit together, and the rest."""
    fitting, others, remaining = [], [], max_bytes
    for document in documents:
        size = len(document.text.encode())
        if size > remaining:
            reason = (
                f"{size} bytes, but only {remaining} are left of max_bytes {max_bytes}: get "
                "it separately"
            )
            others.append(
                SkippedDocument(reference=document.reference, path=document.path, reason=reason)
            )
        else:
            fitting.append(document)
            remaining -= size
    return fitting, others


def _format_document(document: Document, text: str | None = None) -> str:
    title = f" — {document.title}" if document.title else ""
    extent = ""
    if document.start is not None:
        unit = f"{document.unit}s"
        extent = f" ({unit} {document.start}–{document.end} of {document.total})"
    return (
        f"{document.path}{title}{extent}\n"
        f"reference: {document.reference} (#{document.docid})\n\n"
        f"{document.text if text is None else text}"
    )


class DatasetStatus(ToolPart):
    """Counts of one dataset. ``embedded`` is the share of the passages found by meaning so far."""

    name: str
    documents: int
    passages: int
    modalities: dict[str, int]
    embedded: float
    updated: str | None


class StatusData(ToolData):
    """The datasets, the model and the engines."""

    datasets: tuple[DatasetStatus, ...] = ()
    model: str | None = None
    lexical_engine: str | None = None
    vector_engine: str | None = None


def run_status(engine: Engine, arguments: ToolArguments, notes: tuple[str, ...]) -> ToolResult:
    """Count the documents of each dataset in the store now."""
    answer = engine.ask("status", arguments.params())
    datasets = tuple(map(_dataset_status, answer["datasets"]))
    data = StatusData(
        status="ok" if datasets else "no_results",
        message=None if datasets else "no results: nothing is indexed yet",
        notes=notes,
        datasets=datasets,
        model=answer["model"],
        lexical_engine=answer["lexical_engine"],
        vector_engine=answer["vector_engine"],
    )
    engines = f"model: {data.model}; engines: {data.lexical_engine}, {data.vector_engine}"
    return tool_result(data, lines=[*map(_dataset_line, datasets), engines])


def _dataset_status(answer: Mapping[str, Any]) -> DatasetStatus:
    passages = answer["chunks"]
    updated = answer.get("updated_at")  # a role is not told
    return DatasetStatus(
        name=one_line(answer["dataset"]),
        documents=answer["documents"],
        passages=passages,
        modalities=answer["modalities"],
        embedded=answer["embedded"] / passages if passages else 1.0,
        updated=None
        if updated is None
        else datetime.fromtimestamp(updated, UTC).isoformat(timespec="seconds"),
    )


def _dataset_line(dataset: DatasetStatus) -> str:
    modalities = ", ".join(f"{name} {count}" for name, count in dataset.modalities.items())
    embedded = math.floor(100 * dataset.embedded)
    return (
        f"dataset {dataset.name}: {dataset.documents} documents, {dataset.passages} passages "
        f"({modalities}), {embedded} % embedded"
        f"{'' if dataset.updated is None else f', updated {dataset.updated}'}"
    )


GET = AgentTool(
    "get",
    "Read a document",
    "Read a document or some of its lines, by a reference that a search gave, a path or a "
    "#docid. To read around a passage that was found give its reference with line_start and "
    "line_end of your own; they count what its citation does: lines, pages, cells, paragraphs.",
    arguments_of(
        GetParams,
        last=("dataset", "max_bytes"),
        reference=Argument(
            help="A reference from a search, a path, dataset:path or #docid. A suffix selects a "
            "part: :12-20 for lines (or pages, cells, paragraphs), :1:05-1:18 for times. "
            "line_start and line_end take precedence."
        ),
        max_bytes=Argument(
            help="A longer text is cut after a whole line.", default=65_536, bounds=_TEXT_BYTES
        ),
    ),
    GetData,
    run_get,
)
MULTI_GET = AgentTool(
    "multi_get",
    "Read several documents",
    "Read several documents at once, by a glob or a list of paths and #docids, or the passages "
    "that references and citations name. Those that do not fit or do not exist are named, not "
    "given.",
    arguments_of(
        MultiGetParams,
        last=("dataset",),
        patterns=Argument(
            help='A glob ("guides/**/*.md"), or paths and #docids, as a list or separated by '
            "commas. A reference, citation or link with a place selects that part.",
        ),
        limit=Argument(bounds=(1, 100)),
        max_bytes=Argument(
            help="When all texts together reach this size, further documents are only named.",
            bounds=_TEXT_BYTES,
        ),
    ),
    MultiGetData,
    run_multi_get,
)
STATUS = AgentTool(
    "status",
    "What the store holds",
    "Tell which datasets there are, and how many documents and passages each holds.",
    arguments_of(StatusParams),
    StatusData,
    run_status,
)
