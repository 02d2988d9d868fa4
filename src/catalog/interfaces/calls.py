"""The verbs, once for every edge: search, ask, generate, get, multi_get, browse and status.

:class:`LocalEngine` answers them in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, get_type_hints

from pydantic import BaseModel, create_model

from catalog.core.agents import read_agent, with_agent
from catalog.core.answers import Answer, AnswerShape, Artifact
from catalog.core.arguments import read_params
from catalog.core.errors import InputError
from catalog.core.ids import source_doc_id
from catalog.core.params import (
    MAX_TEXT_BYTES,
    AskParams,
    BrowseParams,
    GenerateParams,
    GetParams,
    MultiGetParams,
    SearchParams,
    StatusParams,
)
from catalog.core.places import Unit
from catalog.core.results import CatalogPage, Frozen, SearchResults
from catalog.library.get import DocumentLines, NamedPart, find_document, find_parts
from catalog.library.names import WHOLE, role_scope

if TYPE_CHECKING:
    from types import TracebackType

    from catalog.core.answers import AnswerEvent
    from catalog.library.library import Library
    from catalog.retrieval.search import Searcher
    from catalog.store.filter_sql import DatasetNames
    from catalog.store.log_entries import LogEntry


_NAMED = 20  # names without a document, each in a note


@dataclass(frozen=True, slots=True)
class Verb:
    """One operation on a store: its parameters, its result, and the function that runs it.

    ``run`` takes an engine and ``params``. It returns a JSON object, or something whose
    ``to_dict()`` is one; ``result_schema`` describes that object.
    """

    name: str
    params: type[Any]
    result_schema: type[BaseModel]
    run: Callable[[LocalEngine, Any], Any]


def to_json(result: Any) -> dict[str, Any]:
    """Return the result of a verb's function as the JSON object of all edges."""
    answer: dict[str, Any] = result if isinstance(result, dict) else result.to_dict()
    return answer


def run_search(engine: LocalEngine, params: SearchParams) -> SearchResults:
    """Return the passages; see ``SearchServiceV2.search``."""
    return engine.service.run_logged(params)


def run_ask(engine: LocalEngine, params: AskParams) -> Answer:
    """Return the answer; see ``catalog.answers.answering``."""
    from catalog.answers.answering import answer_question

    return answer_question(engine.service, params)


def run_generate(engine: LocalEngine, params: GenerateParams) -> Artifact:
    """Return the artifact; see ``catalog.answers.generating``."""
    from catalog.answers.generating import generate_artifact

    return generate_artifact(engine.service, params)


def run_get(engine: LocalEngine, params: GetParams) -> dict[str, Any]:
    """Return the document, cut to ``max_bytes``; without one to the most that may be asked for."""
    library = engine.library
    dataset: DatasetNames | None
    if params.dataset is None:
        seen = role_scope(library.database, library.settings, params.role, library.datasets())
        dataset = tuple(sorted(seen.datasets())) or None
    else:
        dataset, seen = library.seen_datasets(params.role, params.dataset)
    document = find_document(
        library.database,
        params.reference,
        dataset=dataset,
        line_start=params.line_start,
        line_end=params.line_end,
        seen=seen,
    )
    return document_dict(document, params.max_bytes or MAX_TEXT_BYTES)


def run_multi_get(engine: LocalEngine, params: MultiGetParams) -> dict[str, Any]:
    """Return the documents that the patterns name, in their order; large ones are only named.

    So are those from the first on that would make all texts together more than 10 MB. A pattern
    that names no document is listed in ``notes`` with near misses; it is an error if every pattern
    does.
    """
    database = engine.library.database
    dataset, seen = engine.library.seen_datasets(params.role, params.dataset)
    parts, missing = find_parts(database, dataset, params.patterns, seen)
    documents, skipped = [], []
    notes = [str(error) for error in missing[:_NAMED]]
    if len(missing) > _NAMED:
        notes.append(f"{len(missing) - _NAMED:,} more names match no document")
    remaining = MAX_TEXT_BYTES
    wanted = parts[: params.limit]
    for at, part in enumerate(wanted):
        with database.read() as connection:
            document = part.read(connection)
        size = _size(document)
        if size > params.max_bytes:
            reason = f"{size} bytes, more than max_bytes {params.max_bytes}: get its lines instead"
            skipped.append(_skipped(part, reason))
        elif size > remaining:
            rest = wanted[at:]
            full = f"a reply has at most {MAX_TEXT_BYTES:,} bytes of text"
            reason = f"{full}: get this document separately"
            skipped += [_skipped(other, reason) for other in rest]
            notes.append(f"{full}: get the {len(rest)} documents left out by their paths")
            break
        else:
            documents.append(document_dict(document))
            remaining -= size
    beyond = len(parts) - params.limit
    if beyond > 0:
        notes.append(f"{beyond} more documents match, beyond limit {params.limit}")
    return {"documents": documents, "skipped": skipped, "notes": notes}


def _skipped(part: NamedPart, reason: str) -> dict[str, str]:
    name = source_doc_id(part.dataset, part.path)
    return {"source_doc_id": name, "path": part.path, "reason": reason}


def document_dict(document: DocumentLines, max_bytes: int | None = None) -> dict[str, Any]:
    """Return the JSON object of a document's lines, with a note if they had to be cut.

    ``max_bytes`` (of UTF-8) keeps whole lines, or the beginning of a first line that is larger.
    """
    note = None
    if max_bytes is not None and _size(document) > max_bytes:
        document, note = _cut(replace(document, ending=""), max_bytes)
    notes = [*document.notes] if note is None else [note, *document.notes]
    return document.to_dict() | {"notes": notes}


def _cut(document: DocumentLines, max_bytes: int) -> tuple[DocumentLines, str | None]:
    """Return the lines that fit, and where to continue."""
    if _size(document) <= max_bytes:
        return document, None
    count, remaining = 0, max_bytes
    for line in document.lines:
        remaining -= len(line.text.encode()) + 1
        if remaining < 0:
            break
        count += 1
    kept, unit = document.lines[: max(count, 1)], document.unit
    if count == 0:
        beginning = kept[0].text.encode()[:max_bytes].decode(errors="ignore")
        kept = (kept[0]._replace(text=beginning),)
    is_counted = any(line.least is not None for line in document.lines)
    cut = replace(document, lines=kept, ending="", part=WHOLE if is_counted else document.part)
    left = document.lines[len(kept) :]
    if following := next(filter(None, (line.cells for line in left)), None):
        name = f"{document.document.path} › {following}"
        return cut, f"cut at max_bytes {max_bytes}; the next row is {name}"
    last, rest = cut.end, [line.number for line in document.lines[count:]]
    if last is None:
        hint = ": ask for a shorter time" if unit == "time" else ""
        return cut, f"cut at max_bytes {max_bytes}{hint}"
    if count > 0 and last not in rest:
        return cut, (
            f"cut after {unit} {last} of {document.total}, at max_bytes {max_bytes}; "
            f"continue with line_start {last + 1}"
        )
    if cut.start != last:
        return cut, (
            f"cut within {unit} {last} of {document.total}, at max_bytes {max_bytes}; "
            f"continue with line_start {last}"
        )
    note = f"only the first {max_bytes} bytes of {unit} {last}, which is longer"
    if document.total is not None and last < document.total:
        note += f"; line_start {last + 1} continues after it"
    return cut, note


def _size(document: DocumentLines) -> int:
    return len(document.text.encode())


def run_browse(engine: LocalEngine, params: BrowseParams) -> CatalogPage:
    """Return the page of documents."""
    from catalog.library.browse import DocumentCatalog

    return DocumentCatalog(engine.library).query(**vars(params))


def run_status(engine: LocalEngine, params: StatusParams) -> dict[str, Any]:
    """Return the contents of the store now."""
    from catalog.library.health import describe_store

    return describe_store(engine.library, params.role)


def _shape_of(kind: type[Any], name: str, about: str) -> type[BaseModel]:
    """Return the model of the JSON that the fields of a dataclass make."""
    hints = get_type_hints(kind)
    shown: Any = {
        one.name: (hints[one.name], ... if one.default is MISSING else one.default)
        for one in fields(kind)
    }
    return create_model(name, __base__=Frozen, __doc__=about, **shown)


SearchShape = _shape_of(
    SearchResults,
    "SearchShape",
    "Passages, best first, and a report of the search. ``docs/explanation/scoring.md`` explains "
    "the numbers.",
)


class DocumentShape(Frozen):
    """A document, or its lines, cells, pages or paragraphs ``start`` to ``end`` of ``total``.

    All count in ``unit`` as its citations do, both ends included. ``numbers`` has one for each
    line of the text: where that begins. ``cells`` are those of each row of a workbook, with the
    sheet: ``Costs!A12:F12``. ``line_start``, ``line_end`` and ``lines_total`` are the
    same where the unit is a line of the file.
    """

    source_doc_id: str
    path: str
    docid: str
    title: str
    metadata: dict[str, Any]
    unit: Unit
    start: int | None
    end: int | None
    total: int | None
    line_start: int | None
    line_end: int | None
    lines_total: int | None
    numbers: tuple[int | None, ...]
    cells: tuple[str | None, ...] = ()
    text: str
    notes: tuple[str, ...] = ()


class SkippedShape(Frozen):
    """A document that is only named, without its text."""

    source_doc_id: str
    path: str
    reason: str


class DocumentsShape(Frozen):
    """Several documents, by path."""

    documents: tuple[DocumentShape, ...]
    skipped: tuple[SkippedShape, ...]
    notes: tuple[str, ...] = ()


class StatusShape(Frozen):
    """The contents of the store, and the model and engines set; ``datasets`` in full counts.

    As a role: only counts of what it may see.
    """

    home: str
    store: str
    model: str | None
    fingerprint: str | None
    dim: int | None
    lexical_engine: str
    vector_engine: str
    datasets: tuple[dict[str, Any], ...]


VERBS: Mapping[str, Verb] = {
    verb.name: verb
    for verb in (
        Verb("search", SearchParams, SearchShape, run_search),
        Verb("ask", AskParams, AnswerShape, run_ask),
        Verb("generate", GenerateParams, Artifact, run_generate),
        Verb("get", GetParams, DocumentShape, run_get),
        Verb("multi_get", MultiGetParams, DocumentsShape, run_multi_get),
        Verb("browse", BrowseParams, CatalogPage, run_browse),
        Verb("status", StatusParams, StatusShape, run_status),
    )
}


class Engine(Protocol):
    """Answer verbs, here or in another process. Thread-safe."""

    def ask(self, verb: str, arguments: Mapping[str, Any], /) -> dict[str, Any]:
        """Return the answer's JSON object; raise the verb's errors, wherever it ran."""
        ...

    def close(self) -> None:
        """Release the engine's resources; safe to call twice."""
        ...


class AnsweringEngine(Engine, Protocol):
    """An engine that can also stream an answer as events."""

    def answer_events(self, arguments: Mapping[str, Any]) -> Iterator[AnswerEvent]:
        """Yield results, sentences and the whole answer."""
        ...

    def check_store(self) -> None:
        """Raise an error where the store cannot be read."""
        ...


class LocalEngine:
    """Answer in this process from one library, which the engine closes."""

    def __init__(self, library: Library) -> None:
        self.library = library

    @cached_property
    def service(self) -> Searcher:
        """Return the search, which no other verb needs to load."""
        from catalog.retrieval.search import Searcher

        return Searcher(self.library)

    def answer(self, verb: str, arguments: Mapping[str, Any]) -> Any:
        """Return the result of the verb's function, see ``calls.VERBS``.

        Raises :class:`InputError` for a verb that does not exist and for wrong arguments.
        """
        if verb not in VERBS:
            raise InputError(f"there is no verb {verb!r}; verbs: {', '.join(VERBS)}")
        params = read_params(VERBS[verb].params, arguments, verb)
        self._require_models(params)
        return VERBS[verb].run(self, params)

    def ask(self, verb: str, arguments: Mapping[str, Any], /) -> dict[str, Any]:
        """Return the answer's JSON object; raise as :meth:`answer`."""
        return to_json(self.answer(verb, arguments))

    def answer_events(self, arguments: Mapping[str, Any]) -> Iterator[AnswerEvent]:
        """Yield the events of an answer: results, sentences, the whole; raise the verb's errors.

        Arguments are checked at once, before the first event.
        """
        params = read_params(AskParams, arguments, "ask")
        self._require_models(params)
        from catalog.answers.answering import answer_events

        return answer_events(self.service, params)

    def _require_models(self, params: object) -> None:
        """Raise if a search lacks a model, before loading the search, which takes a second."""
        if "service" not in vars(self) and isinstance(
            params, SearchParams | AskParams | GenerateParams
        ):
            if params.agent is not None:  # whose mode may need no model
                params = with_agent(params, read_agent(self.library.settings, params.agent))
            self.library.require_models(mode=params.mode or "hybrid", rerank=params.rerank)

    def check_store(self) -> None:
        """Read one row of the store; raise :class:`StoreError` if that fails."""
        self.library.database.meta("store_id")

    def observe(self, observer: Callable[[LogEntry], None]) -> None:
        """Call ``observer`` with the entry of each question at an edge."""
        self.library.log.observer = observer

    def warm(self) -> None:
        """Load the model and open the indexes of every dataset, so that no query waits for it.

        A process bound to a role opens those of which the role sees a document.
        """
        try:
            if self.library.datasets():
                seen, _ = self.library.seen_datasets(None)
                for name in [seen] if isinstance(seen, str) else seen:
                    self.service.warm_up(name)
        except Exception:
            if not self.library.is_closed:  # a server that is told to end does not wait for this
                raise

    def close(self) -> None:
        """Release the library, and the threads of the search if there was one."""
        if "service" in vars(self):
            self.service.close()
        self.library.close()

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
