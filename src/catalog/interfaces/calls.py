"""The five verbs, once for every edge: search, get, multi_get, browse, status."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Generic, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from catalog.core.errors import InputError
from catalog.core.filter_forms import file_type_filter, name_filter, parse_filters
from catalog.core.filters import And, Filter, Op, condition
from catalog.core.params import DEFAULT_LIMIT, MAX_DOCUMENTS, MAX_OFFSET, Mode, Sort
from catalog.core.results import CatalogPage, Comparison, SearchResult, SearchResults, StageReport
from catalog.core.text import all_storable
from catalog.library.health import describe_store
from catalog.library.references import DocumentLines, find_document, resolve_documents
from catalog.search_v2.legs import UNSEARCHABLE

if TYPE_CHECKING:
    from catalog.interfaces.engine import LocalEngine


class Call(BaseModel):
    """Arguments of an operation: unknown names and wrong types are refused, nothing is guessed."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class CallResult(Protocol):
    """What an operation found."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that every edge gives."""
        ...


CallT = TypeVar("CallT", bound=Call)
AnswerT = TypeVar("AnswerT", bound=CallResult)


@dataclass(frozen=True, slots=True)
class Operation(Generic[CallT, AnswerT]):
    """One thing to ask. ``shape`` is the model that every ``to_dict()`` of its answers fits."""

    name: str
    call: type[CallT]
    shape: type[BaseModel]
    run: Callable[[LocalEngine, CallT], AnswerT]

    def read(self, arguments: Mapping[str, Any]) -> CallT:
        """The arguments, checked; raises :class:`InputError` naming each that is wrong."""
        try:
            return self.call.model_validate(all_storable(dict(arguments)))
        except ValidationError as error:
            raise InputError(f"{self.name}: {validation_message(error, self.call)}") from error


def validation_message(error: ValidationError, model: type[BaseModel]) -> str:
    """What is wrong with arguments, for whoever gave them; the values are not repeated whole."""
    found = []
    for one in error.errors():
        name = ".".join(str(part) for part in one["loc"]) or "arguments"
        if one["type"] == "extra_forbidden":
            known = ", ".join(model.model_fields) or "none"
            found.append(f"there is no argument {_short(name)}; arguments: {known}")
        elif one["type"] == "missing":
            found.append(f"the argument {name} is missing")
        else:
            found.append(f"{name}: {one['msg']}, not {_short(one['input'])}")
    return "; ".join(dict.fromkeys(found))


def _short(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # of a number with thousands of digits
        text = f"a {type(value).__name__} too large to show"
    return text if len(text) <= 60 else f"{text[:57]}…"


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SearchShape(_Shape):
    """Passages, best first, and how the search went; see ``docs/scoring.md`` for the numbers."""

    query: str
    dataset: str
    mode: Mode
    results: tuple[SearchResult, ...]
    elapsed_ms: float
    confidence: float | None
    low_confidence: bool | None
    stages: tuple[StageReport, ...]
    comparison: Comparison | None = None
    notes: tuple[str, ...] = ()


class DocumentShape(_Shape):
    """A document's lines ``line_start`` to ``line_end`` (both included) of ``lines_total``."""

    source_doc_id: str
    path: str
    docid: str
    title: str
    metadata: dict[str, Any]
    line_start: int
    line_end: int
    lines_total: int
    text: str
    notes: tuple[str, ...] = ()


class SkippedShape(_Shape):
    """A document that is named but not given."""

    source_doc_id: str
    path: str
    reason: str


class DocumentsShape(_Shape):
    """Several documents, by path."""

    documents: tuple[DocumentShape, ...]
    skipped: tuple[SkippedShape, ...]
    notes: tuple[str, ...] = ()


class StatusShape(_Shape):
    """What the store holds, and which model and engines are set; ``datasets`` in full counts."""

    home: str
    model: str | None
    fingerprint: str | None
    dim: int | None
    lexical_engine: str
    vector_engine: str
    query_cache: dict[str, int]
    datasets: tuple[dict[str, Any], ...]


MAX_TOP_K = 1000
MAX_TEXT_BYTES = 10_000_000
Dataset = Annotated[
    str | None,
    Field(description="Name of the dataset; may be left out when there is only one."),
]
FileType = Annotated[
    str | None,
    Field(description="Only documents of this type: pdf, markdown, word, video, audio, …"),
]
Name = Annotated[
    str | None, Field(description="Only documents whose path, title or recording holds this text.")
]


Conditions = Annotated[
    list[str] | dict[str, Any] | None,
    Field(description='Conditions that must all hold: ["tag=ops", "page>=3"] or {"tag": "ops"}.'),
]


class SearchCall(Call):
    """A search for passages."""

    query: str = Field(
        description='Words, "quoted phrases", -exclusions, or typed parts: lex: … / vec: …'
    )
    dataset: Dataset = None
    top_k: int = Field(10, ge=1, le=MAX_TOP_K, description="How many passages.")
    mode: Mode = Field("hybrid", description="lexical (words), vector (meaning) or hybrid.")
    docs: list[str] | None = Field(
        None, description="Only these documents: paths, globs or #docids; [] is none of them."
    )
    file_type: FileType = None
    name: Name = None
    filters: Conditions = None
    rerank: bool | None = Field(None, description="Let a second model read the best passages.")
    expand: bool | None = Field(None, description="Let a language model reword the query.")
    explain: bool = Field(False, description="Tell how each score came about.")
    strict: bool = Field(False, description="Fail when a stage fails, rather than go on without.")


class GetCall(Call):
    """A document, whole or some of its lines."""

    reference: str = Field(description="dataset:path, path or #docid; :12-20 after it picks lines.")
    dataset: Dataset = None
    line_start: int | None = Field(None, ge=1, description="First line, counted from 1.")
    line_end: int | None = Field(None, ge=1, description="Last line, itself included.")
    max_bytes: int | None = Field(
        None, ge=1, le=MAX_TEXT_BYTES, description="More than this is cut after a whole line."
    )


class MultiGetCall(Call):
    """Several documents."""

    patterns: list[str] = Field(
        min_length=1, max_length=MAX_DOCUMENTS, description="Paths, globs or #docids."
    )
    dataset: Dataset = None
    limit: int = Field(20, ge=1, le=MAX_DOCUMENTS, description="How many documents at most.")
    max_bytes: int = Field(
        65_536,
        ge=1,
        le=MAX_TEXT_BYTES,
        description="A document larger than this is named, not given.",
    )


class BrowseCall(Call):
    """A look at what documents there are."""

    query: str | None = Field(None, description="Words of titles, names, summaries and tags.")
    dataset: Dataset = None
    file_type: FileType = None
    name: Name = None
    tags: list[str] = Field([], max_length=50, description="Only documents with all these tags.")
    filters: Conditions = None
    after: str | None = Field(
        None, description="Only documents dated on or after YYYY-MM-DD, YYYY-MM or YYYY."
    )
    before: str | None = Field(
        None, description="Only documents dated before that day, month or year."
    )
    sort: Sort = Field(
        "best", description="best: by the query, without one by name; modified: newest first."
    )
    limit: int = Field(DEFAULT_LIMIT, ge=1, le=MAX_DOCUMENTS, description="How many documents.")
    offset: int = Field(0, ge=0, le=MAX_OFFSET, description="How many to pass over first.")


class StatusCall(Call):
    """What the store holds; there is nothing to say."""


def run_browse(engine: LocalEngine, call: BrowseCall) -> CatalogPage:
    """The page of the catalog that was asked for."""
    return engine.catalog.query(
        dataset=engine.dataset(call.dataset),
        query=call.query,
        file_type=call.file_type,
        name=call.name,
        tags=call.tags,
        filters=call.filters,
        after=call.after,
        before=call.before,
        sort=call.sort,
        limit=call.limit,
        offset=call.offset,
    )


@dataclass(frozen=True, slots=True)
class Searched:
    """The results, and what else there is to say of them."""

    results: SearchResults
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        return self.results.to_dict() | {"notes": list(self.notes)}


def run_search(engine: LocalEngine, call: SearchCall) -> Searched:
    """The passages; when no document fits the type or name asked for, a note says which do."""
    dataset, database = engine.dataset(call.dataset), engine.library.database
    ids = None if call.docs is None else resolve_documents(database, dataset, call.docs)
    given = parse_filters(call.filters)
    parts = [part for part in (given, *_narrowing(call)) if part is not None]
    results = engine.service.search(
        call.query,
        dataset=dataset,
        top_k=call.top_k,
        mode=call.mode,
        doc_ids=ids,
        filters=And(tuple(parts)) if parts else None,
        rerank=call.rerank,
        expand=call.expand,
        explain=call.explain,
        strict=call.strict,
    )
    notes = tuple(_unsearchable(results))
    if len(results) == 0 and (call.file_type is not None or call.name is not None):
        seen = [] if given is None else [given]  # what these hide no note may tell
        if ids is not None:
            seen.append(condition("source_doc_id", Op.IN, ids))
        notes += engine.catalog.query(
            dataset=dataset,
            file_type=call.file_type,
            name=call.name,
            filters=And(tuple(seen)) if seen else None,
            limit=1,
        ).notes
    return Searched(results, notes)


def _unsearchable(results: SearchResults) -> Iterator[str]:
    if len(results) == 0 and any(UNSEARCHABLE in stage.note for stage in results.stages):
        yield f"{UNSEARCHABLE}: put words in quotes to find just these, or say it in others"


def _narrowing(call: SearchCall) -> Iterator[Filter]:
    if call.file_type is not None:
        yield file_type_filter(call.file_type)
    if call.name is not None:
        yield name_filter(call.name)


@dataclass(frozen=True, slots=True)
class Given:
    """A document, or what of it was asked for and fits."""

    found: DocumentLines
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
        engine.library.database,
        call.reference,
        dataset=dataset,
        line_start=call.line_start,
        line_end=call.line_end,
    )
    return Given(found) if call.max_bytes is None else within(found, call.max_bytes)


def within(found: DocumentLines, max_bytes: int) -> Given:
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


def _part_of_a_line(found: DocumentLines, max_bytes: int) -> Given:
    """The beginning of the first line, which alone is too large."""
    line = found.lines[0].encode()[:max_bytes].decode(errors="ignore")
    note = f"only the first {max_bytes} bytes of line {found.line_start}, which is larger"
    if found.line_start < found.lines_total:
        note += f"; line_start {found.line_start + 1} goes on after it"
    return Given(replace(found, lines=(line,)), (note,))


def run_multi_get(engine: LocalEngine, call: MultiGetCall) -> GivenMany:
    """The documents that the patterns name, in the order of the patterns."""
    dataset, database = engine.dataset(call.dataset), engine.library.database
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


def _bytes(found: DocumentLines) -> int:
    return len(found.text.encode())


@dataclass(frozen=True, slots=True)
class Described:
    """See ``search_v2.health.describe``."""

    status: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        return self.status


def run_status(engine: LocalEngine, call: StatusCall) -> Described:
    """The counts of now."""
    del call
    return Described(describe_store(engine.library))


_LISTED: tuple[Operation[Any, Any], ...] = (
    Operation("search", SearchCall, SearchShape, run_search),
    Operation("get", GetCall, DocumentShape, run_get),
    Operation("multi_get", MultiGetCall, DocumentsShape, run_multi_get),
    Operation("browse", BrowseCall, CatalogPage, run_browse),
    Operation("status", StatusCall, StatusShape, run_status),
)
VERBS: Mapping[str, Operation[Any, Any]] = {one.name: one for one in _LISTED}
