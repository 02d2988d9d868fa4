"""The tools that give documents and the state of the store: ``get``, ``multi_get``, ``status``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from textwrap import indent
from typing import TYPE_CHECKING, Any

from catalog.core.errors import InputError
from catalog.core.params import GetParams, MultiGetParams, StatusParams
from catalog.interfaces.agents.arguments import (
    Argument,
    ToolArguments,
    arguments_of,
    ask_by_names,
    possible_lists,
)
from catalog.interfaces.agents.quoting import clean, document_reference, one_line
from catalog.interfaces.agents.tool import (
    AgentTool,
    ToolData,
    ToolPart,
    ToolResult,
    clean_notes,
    note_lines,
    quote_argument,
    tool_result,
)

if TYPE_CHECKING:
    from catalog.interfaces.calls import Engine

_INDENT = "    "
_TEXT_BYTES = (1_000, 1_000_000)


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
    """A document that is named but not given."""

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
        raise InputError("the argument patterns names no document")
    answer = ask_by_names(engine, "multi_get", params, "patterns")
    documents, left_out = _take_fitting(map(_document, answer["documents"]), params["max_bytes"])
    skipped = [*map(_skipped_document, answer["skipped"]), *left_out]
    quoted_notes = clean_notes(answer["notes"])  # they name documents
    pattern = quote_argument(params["patterns"])
    data = MultiGetData(
        status="ok" if documents else "no_results",
        message=None if documents else f"no results: no document of {pattern} could be given.",
        notes=(*notes, *quoted_notes),
        documents=tuple(documents),
        skipped=tuple(skipped),
    )
    not_given = "\n".join(f"not given: {document.path}: {document.reason}" for document in skipped)
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
    """Return the documents that fit together, and the others."""
    fitting, others, remaining = [], [], max_bytes
    for document in documents:
        size = len(document.text.encode())
        if size > remaining:
            reason = (
                f"{size} bytes, {remaining} are left of max_bytes {max_bytes}: get it by itself"
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
    updated: str


class StatusData(ToolData):
    """What there is to search, and with what."""

    datasets: tuple[DatasetStatus, ...] = ()
    model: str | None = None
    lexical_engine: str | None = None
    vector_engine: str | None = None


def run_status(engine: Engine, arguments: ToolArguments, notes: tuple[str, ...]) -> ToolResult:
    """Count what the store holds now."""
    answer = engine.ask("status", arguments.params())
    datasets = tuple(map(_dataset_status, answer["datasets"]))
    data = StatusData(
        status="ok" if datasets else "no_results",
        message=None if datasets else "no results: nothing has been indexed yet",
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
    updated = datetime.fromtimestamp(answer["updated_at"], UTC)
    return DatasetStatus(
        name=one_line(answer["dataset"]),
        documents=answer["documents"],
        passages=passages,
        modalities=answer["modalities"],
        embedded=answer["embedded"] / passages if passages else 1.0,
        updated=updated.isoformat(timespec="seconds"),
    )


def _dataset_line(dataset: DatasetStatus) -> str:
    modalities = ", ".join(f"{name} {count}" for name, count in dataset.modalities.items())
    embedded = math.floor(100 * dataset.embedded)
    return (
        f"dataset {dataset.name}: {dataset.documents} documents, {dataset.passages} passages "
        f"({modalities}), {embedded} % embedded, updated {dataset.updated}"
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
            help="A reference from a search, a path, dataset:path or #docid; :12-20 picks lines "
            "(or pages, cells, paragraphs), unless line_start and line_end pick others; "
            ":1:05-1:18 picks times."
        ),
        max_bytes=Argument(
            help="More text than this is cut after a line.", default=65_536, bounds=_TEXT_BYTES
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
            help='A glob ("guides/**/*.md"), or paths and #docids: a list or with commas. Of a '
            "reference, citation or link with a place that part is given.",
        ),
        limit=Argument(bounds=(1, 100)),
        max_bytes=Argument(
            help="Documents beyond this much text, all together, are only named.",
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
