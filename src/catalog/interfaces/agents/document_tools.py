"""The tools that give documents and the state of the store: ``get``, ``multi_get``, ``status``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from textwrap import indent
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from catalog.core.errors import DocumentNotFoundError, InputError
from catalog.interfaces.agents.arguments import (
    GetArguments,
    MultiGetArguments,
    StatusArguments,
    readings,
)
from catalog.interfaces.agents.quoting import clean, one_line
from catalog.interfaces.agents.tool import (
    ToolData,
    ToolResult,
    echoed,
    noted,
    tool_result,
    without_nones,
)

if TYPE_CHECKING:
    from catalog.interfaces.engine import Engine


_INDENT = "    "


class Document(BaseModel):
    """Lines ``line_start`` to ``line_end`` (both included) of ``lines_total``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    reference: str
    path: str
    title: str
    docid: str
    line_start: int
    line_end: int
    lines_total: int
    text: str


class Unread(BaseModel):
    """A document that is named but not given."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    reference: str
    path: str
    reason: str


class GetData(ToolData):
    """The document."""

    document: Document | None = None


class MultiGetData(ToolData):
    """The documents, and those left out."""

    documents: tuple[Document, ...] = ()
    skipped: tuple[Unread, ...] = ()


def run_get(engine: Engine, asked: GetArguments, notes: tuple[str, ...]) -> ToolResult:
    """The document, or those of its lines that were asked for and fit."""
    found = engine.ask("get", without_nones(asked.model_dump()))
    notes = (*notes, *noted(found["notes"]))
    document = _document(found)
    data = GetData(status="ok", notes=notes, document=document)
    return tool_result(data, ours=[f"note: {note}" for note in notes], quoted=_text(document))


def run_multi_get(engine: Engine, asked: MultiGetArguments, notes: tuple[str, ...]) -> ToolResult:
    """The documents, in the order of the patterns, as long as all together fit."""
    found = _asked(engine, asked)
    documents, beyond = _fitting([_document(one) for one in found["documents"]], asked.max_bytes)
    skipped = [*map(_unread, found["skipped"]), *beyond]
    notes = (*notes, *noted(found["notes"]))
    empty = f"no results: no document of {echoed(str(asked.pattern))} could be given."
    data = MultiGetData(
        status="ok" if documents else "no_results",
        message=None if documents else empty,
        notes=notes,
        documents=tuple(documents),
        skipped=tuple(skipped),
    )
    left_out = "\n".join(f"not given: {one.path}: {one.reason}" for one in skipped)
    quoted = "\n\n".join(filter(None, (*map(_set_in, documents), left_out)))
    return tool_result(data, ours=[f"note: {note}" for note in notes], quoted=quoted)


def _asked(engine: Engine, asked: MultiGetArguments) -> dict[str, Any]:
    """What the patterns name; a text with commas is one name if there is a document of it."""
    limits = {"dataset": asked.dataset, "limit": asked.limit, "max_bytes": asked.max_bytes}
    *others, patterns = readings(asked.pattern)
    if not patterns:
        raise InputError("the argument pattern names no document")
    for other in others:
        with suppress(DocumentNotFoundError):
            return engine.ask("multi_get", without_nones({"patterns": other, **limits}))
    return engine.ask("multi_get", without_nones({"patterns": patterns, **limits}))


def _document(found: Mapping[str, Any]) -> Document:
    return Document(
        reference=_reference(found),
        path=one_line(found["path"]),
        title=one_line(found["title"]),
        docid=found["docid"],
        line_start=found["line_start"],
        line_end=found["line_end"],
        lines_total=found["lines_total"],
        text=clean(found["text"]),
    )


def _reference(found: Mapping[str, Any]) -> str:
    named: str = found["source_doc_id"]
    return named if one_line(named) == named else f"#{found['docid']}"


def _unread(found: Mapping[str, Any]) -> Unread:
    return Unread(
        reference=one_line(found["source_doc_id"]),
        path=one_line(found["path"]),
        reason=one_line(found["reason"]),
    )


def _fitting(documents: Sequence[Document], max_bytes: int) -> tuple[list[Document], list[Unread]]:
    """The documents that fit together, and the others."""
    kept, others, left = [], [], max_bytes
    for one in documents:
        size = len(one.text.encode())
        if size > left:
            reason = f"{size} bytes, {left} are left of max_bytes {max_bytes}: get it by itself"
            others.append(Unread(reference=one.reference, path=one.path, reason=reason))
        else:
            kept.append(one)
            left -= size
    return kept, others


def _set_in(one: Document) -> str:
    """The document with its lines set in, so that none looks like the head of another."""
    return _text(one.model_copy(update={"text": indent(one.text.strip("\n"), _INDENT)}))


def _text(one: Document) -> str:
    title = f" — {one.title}" if one.title else ""
    lines = f"lines {one.line_start}–{one.line_end} of {one.lines_total}"
    return f"{one.path}{title} ({lines})\nreference: {one.reference} (#{one.docid})\n\n{one.text}"


class DatasetStatus(BaseModel):
    """Counts of one dataset. ``embedded`` below 1: some text cannot be found by meaning yet."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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


def run_status(engine: Engine, asked: StatusArguments, notes: tuple[str, ...]) -> ToolResult:
    """The counts of now."""
    del asked
    found = engine.ask("status", {})
    datasets = tuple(_dataset(one) for one in found["datasets"])
    data = StatusData(
        status="ok" if datasets else "no_results",
        message=None if datasets else "no results: nothing has been indexed yet",
        notes=notes,
        datasets=datasets,
        model=found["model"],
        lexical_engine=found["lexical_engine"],
        vector_engine=found["vector_engine"],
    )
    return tool_result(data, ours=_lines(data))


def _dataset(found: Mapping[str, Any]) -> DatasetStatus:
    windows = found["windows"]
    updated = datetime.fromtimestamp(found["updated_at"], UTC)
    return DatasetStatus(
        name=one_line(found["dataset"]),
        documents=found["documents"],
        passages=found["chunks"],
        modalities=found["modalities"],
        embedded=found["vectors"] / windows if windows else 1.0,
        updated=updated.isoformat(timespec="seconds"),
    )


def _lines(data: StatusData) -> Iterator[str]:
    for one in data.datasets:
        kinds = ", ".join(f"{name} {count}" for name, count in one.modalities.items())
        yield (
            f"dataset {one.name}: {one.documents} documents, {one.passages} passages ({kinds}), "
            f"{one.embedded:.0%} embedded, updated {one.updated}"
        )
    yield f"model: {data.model}; engines: {data.lexical_engine}, {data.vector_engine}"
