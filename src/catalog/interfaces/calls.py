"""The verbs, once for every edge: search, ask, generate, get, multi_get, browse and status.

:class:`LocalEngine` answers them in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol

from catalog.core import params as verbs
from catalog.core.arguments import read_params
from catalog.core.errors import InputError
from catalog.core.ids import source_doc_id

if TYPE_CHECKING:
    from catalog.core.answers import Answer, AnswerEvent, Artifact
    from catalog.core.results import CatalogPage
    from catalog.library.get import DocumentLines, NamedPart
    from catalog.library.library import Library
    from catalog.retrieval.search import Searcher
    from catalog.store.log_entries import LogEntry

_NAMED = 20  # names without a document, each in a note


@dataclass(frozen=True, slots=True)
class Verb:
    """One operation on a store: its parameters and the function that runs it.

    ``run`` takes an engine and ``params``. It returns a JSON object, or something whose
    ``to_dict()`` is one.
    """

    name: str
    params: type[Any]
    run: Callable[[LocalEngine, Any], Any]


def to_json(result: Any) -> dict[str, Any]:
    """Return the result of a verb's function as the JSON object of all edges."""
    answer: dict[str, Any] = result if isinstance(result, dict) else result.to_dict()
    return answer


def _ask(engine: LocalEngine, params: verbs.AskParams) -> Answer:
    from catalog.answers.answering import answer_question

    return answer_question(engine.service, params)


def _generate(engine: LocalEngine, params: verbs.GenerateParams) -> Artifact:
    from catalog.answers.generating import generate_artifact

    return generate_artifact(engine.service, params)


def get_lines(library: Library, params: verbs.GetParams) -> DocumentLines:
    """Return the document, cut to ``max_bytes``; without one to the most that may be asked for."""
    from catalog.library.get import find_document

    dataset, seen = library.seen_datasets(params.role, params.dataset)
    lines = {"line_start": params.line_start, "line_end": params.line_end}
    found = find_document(library.database, params.reference, dataset=dataset, seen=seen, **lines)
    return cut_to_fit(found, params.max_bytes or verbs.MAX_TEXT_BYTES)


def _get(engine: LocalEngine, params: verbs.GetParams) -> dict[str, Any]:
    return get_lines(engine.library, params).to_dict()


def _multi_get(engine: LocalEngine, params: verbs.MultiGetParams) -> dict[str, Any]:
    """Return the documents that the patterns name, in their order; large ones are only named.

    So are those from the first on that would make all texts together more than 10 MB. A pattern
    that names no document is listed in ``notes`` with near misses; it is an error if every pattern
    does.
    """
    from catalog.library.get import find_parts

    database = engine.library.database
    dataset, seen = engine.library.seen_datasets(params.role, params.dataset)
    parts, missing = find_parts(database, dataset, params.patterns, seen)
    documents, skipped = [], []
    notes = [str(error) for error in missing[:_NAMED]]
    if len(missing) > _NAMED:
        notes.append(f"{len(missing) - _NAMED:,} more names match no document")

    def skip(part: NamedPart, reason: str) -> None:
        name = source_doc_id(part.dataset, part.path)
        skipped.append({"source_doc_id": name, "path": part.path, "reason": reason})

    remaining, wanted = verbs.MAX_TEXT_BYTES, parts[: params.limit]
    full = f"a reply has at most {verbs.MAX_TEXT_BYTES:,} bytes of text"
    for at, part in enumerate(wanted):
        with database.read() as connection:
            document = part.read(connection)
        size, most = _size(document), params.max_bytes
        if size > most:
            skip(part, f"{size} bytes, more than max_bytes {most}: get its lines instead")
        elif size <= remaining:
            documents.append(document.to_dict())
            remaining -= size
        else:
            for other in wanted[at:]:
                skip(other, f"{full}: get this document separately")
            notes.append(f"{full}: get the {len(wanted) - at} documents left out by their paths")
            break
    if len(parts) > params.limit:
        beyond = len(parts) - params.limit
        notes.append(f"{beyond} more documents match, beyond limit {params.limit}")
    return {"documents": documents, "skipped": skipped, "notes": notes}


def cut_to_fit(document: DocumentLines, max_bytes: int) -> DocumentLines:
    """Return a document's lines, with a note if they had to be cut.

    ``max_bytes`` (of UTF-8) keeps whole lines, or the beginning of a first line that is larger.
    """
    if _size(document) <= max_bytes:
        return document
    cut, note = _cut(replace(document, ending=""), max_bytes)
    return replace(cut, notes=(*filter(None, [note]), *document.notes))


def _cut(document: DocumentLines, max_bytes: int) -> tuple[DocumentLines, str]:
    """Return the lines that fit, and where to continue; "" if only the last line end did not."""
    from catalog.library.names import WHOLE

    sizes = accumulate(len(line.text.encode()) + 1 for line in document.lines)
    count = sum(size <= max_bytes + 1 for size in sizes)
    kept, left, unit = document.lines[:count], document.lines[count:], document.unit
    if not left:
        return document, ""
    if not kept:
        beginning = left[0].text.encode()[:max_bytes].decode(errors="ignore")
        kept = (left[0]._replace(text=beginning),)
    is_counted = any(line.least is not None for line in document.lines)
    cut = replace(document, lines=kept, part=WHOLE if is_counted else document.part)
    if following := next((line.cells for line in document.lines[len(kept) :] if line.cells), None):
        name = f"{document.document.path} › {following}"
        return cut, f"cut at max_bytes {max_bytes}; the next row is {name}"
    if (last := cut.end) is None:
        hint = ": ask for a shorter time" if unit == "time" else ""
        return cut, f"cut at max_bytes {max_bytes}{hint}"
    is_split = count == 0 or last in [line.number for line in left]
    if not is_split or cut.start != last:
        where, at = ("within", last) if is_split else ("after", last + 1)
        told = f"cut {where} {unit} {last} of {document.total}, at max_bytes {max_bytes}"
        return cut, f"{told}; continue with line_start {at}"
    note = f"only the first {max_bytes} bytes of {unit} {last}, which is longer"
    is_last = document.total is None or last >= document.total
    return cut, note if is_last else f"{note}; line_start {last + 1} continues after it"


def _size(document: DocumentLines) -> int:
    return len(document.text.encode())


def _browse(engine: LocalEngine, params: verbs.BrowseParams) -> CatalogPage:
    from catalog.library.browse import DocumentCatalog

    return DocumentCatalog(engine.library).query(**vars(params))


def _status(engine: LocalEngine, params: verbs.StatusParams) -> dict[str, Any]:
    from catalog.library.health import describe_store

    return describe_store(engine.library, params.role)


VERBS: Mapping[str, Verb] = {
    verb.name: verb
    for verb in (
        Verb("search", verbs.SearchParams, lambda engine, it: engine.service.run_logged(it)),
        Verb("ask", verbs.AskParams, _ask),
        Verb("generate", verbs.GenerateParams, _generate),
        Verb("get", verbs.GetParams, _get),
        Verb("multi_get", verbs.MultiGetParams, _multi_get),
        Verb("browse", verbs.BrowseParams, _browse),
        Verb("status", verbs.StatusParams, _status),
    )
}


class Engine(Protocol):
    """Answer verbs, here or in another process. Thread-safe."""

    def ask(self, verb: str, arguments: Mapping[str, Any], /) -> dict[str, Any]:
        """Return the answer's JSON object; raise the verb's errors, wherever it ran."""
        ...

    def warm(self) -> None:
        """Load models and indexes, so that the first question does not wait for them."""
        ...

    def close(self) -> None:
        """Release the engine's resources; safe to call twice."""
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
        params = read_params(verbs.AskParams, arguments, "ask")
        self._require_models(params)
        from catalog.answers.answering import answer_events

        return answer_events(self.service, params)

    def _require_models(self, params: object) -> None:
        """Raise if a search lacks a model, before loading the search, which takes a second."""
        if "service" not in vars(self) and isinstance(
            params, verbs.SearchParams | verbs.AskParams | verbs.GenerateParams
        ):
            if params.agent is not None:  # whose mode may need no model
                from catalog.core.agents import read_agent, with_agent

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

    def __exit__(self, *_: object) -> None:
        self.close()
