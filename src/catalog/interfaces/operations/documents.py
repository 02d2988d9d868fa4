"""Giving documents: one, or several within limits of size."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from catalog.interfaces.operations.calls import GetCall, MultiGetCall
from catalog.search_v2.references import FoundDocument, find_document, resolve_documents

if TYPE_CHECKING:
    from catalog.interfaces.operations.engine import LocalEngine


@dataclass(frozen=True, slots=True)
class Given:
    """A document, or what of it was asked for and fits."""

    found: FoundDocument
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        return self.found.to_dict() | {"notes": list(self.notes)}


@dataclass(frozen=True, slots=True)
class SkippedDocument:
    """A document that is named but not given."""

    source_doc_id: str
    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class GivenMany:
    """Documents by path, those left out, and what else there is to say."""

    documents: tuple[Given, ...]
    skipped: tuple[SkippedDocument, ...]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        return {
            "documents": [one.to_dict() for one in self.documents],
            "skipped": [
                {"source_doc_id": one.source_doc_id, "path": one.path, "reason": one.reason}
                for one in self.skipped
            ],
            "notes": list(self.notes),
        }


def run_get(engine: LocalEngine, call: GetCall) -> Given:
    """The document; lines beyond ``max_bytes`` (UTF-8) are cut, and a note says where to go on."""
    dataset = None if call.dataset is None else engine.dataset(call.dataset)
    found = find_document(
        engine.workspace.database,
        call.reference,
        dataset=dataset,
        line_start=call.line_start,
        line_end=call.line_end,
    )
    return Given(found) if call.max_bytes is None else within(found, call.max_bytes)


def within(found: FoundDocument, max_bytes: int) -> Given:
    """What of the document fits into so many bytes (UTF-8): whole lines, or part of the first."""
    if _bytes(found) <= max_bytes:
        return Given(found)
    found = replace(found, ending="")
    if _bytes(found) <= max_bytes:
        return Given(found)
    kept, left = 0, max_bytes
    for line in found.lines:
        left -= len(line.encode()) + 1
        if left < 0:
            break
        kept += 1
    if kept == 0:
        return _part_of_a_line(found, max_bytes)
    cut = found.first(kept)
    note = (
        f"cut after line {cut.line_end} of {cut.lines_total}, at max_bytes {max_bytes}; "
        f"go on with line_start {cut.line_end + 1}"
    )
    return Given(cut, (note,))


def _part_of_a_line(found: FoundDocument, max_bytes: int) -> Given:
    """The beginning of the first line, which alone is too large."""
    line = found.lines[0].encode()[:max_bytes].decode(errors="ignore")
    note = f"only the first {max_bytes} bytes of line {found.line_start}, which is larger"
    if found.line_start < found.lines_total:
        note += f"; line_start {found.line_start + 1} goes on after it"
    return Given(replace(found, lines=(line,)), (note,))


def run_multi_get(engine: LocalEngine, call: MultiGetCall) -> GivenMany:
    """The documents that the patterns name, in the order of the patterns."""
    dataset, database = engine.dataset(call.dataset), engine.workspace.database
    ids = resolve_documents(database, dataset, call.patterns)
    given, skipped = [], []
    for source_doc_id in ids[: call.limit]:
        found = find_document(database, source_doc_id, dataset=dataset)
        size = _bytes(found)
        if size > call.max_bytes:
            reason = f"{size} bytes, more than max_bytes {call.max_bytes}: get its lines instead"
            skipped.append(SkippedDocument(source_doc_id, found.document.path, reason))
        else:
            given.append(Given(found))
    over = len(ids) - call.limit
    notes = (f"{over} more documents match, beyond limit {call.limit}",) if over > 0 else ()
    return GivenMany(tuple(given), tuple(skipped), notes)


def _bytes(found: FoundDocument) -> int:
    return len(found.text.encode())
