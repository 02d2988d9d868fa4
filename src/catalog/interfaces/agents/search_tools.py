"""The tools that find passages: ``search_chunks``, ``search``, ``vsearch`` and ``query``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from catalog.core.errors import CatalogError, ConfigError, DocumentNotFoundError
from catalog.core.params import Mode
from catalog.core.results import SearchResult
from catalog.interfaces.agents.agent_passages import AgentPassage, passages_of, passages_text
from catalog.interfaces.agents.arguments import (
    QueryArguments,
    SearchChunksArguments,
    SearchToolArguments,
    Texts,
    readings,
)
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


_NARROWING = ("docs", "file_type", "name", "filters")


class SearchData(ToolData):
    """Passages, best first. ``confidence`` is the best passage's relevance, 0 to 1, if known.

    ``elapsed_ms`` is what the search itself took.
    """

    results: tuple[AgentPassage, ...] = ()
    confidence: float | None = None
    low_confidence: bool | None = None
    dataset: str | None = None
    query: str | None = None
    mode: Mode | None = None
    elapsed_ms: float | None = None


def run_search_chunks(
    engine: Engine, asked: SearchChunksArguments, notes: tuple[str, ...]
) -> ToolResult:
    """Passages by words and meaning, as configured."""
    arguments = {
        "query": asked.query,
        "top_k": asked.top_k,
        "file_type": asked.file_type_filter,
        "name": asked.doc_name_filter,
        "dataset": asked.dataset,
    }
    return _searched(engine, without_nones(arguments), notes)


def run_search(engine: Engine, asked: SearchToolArguments, notes: tuple[str, ...]) -> ToolResult:
    """Passages by their words."""
    return _searched(engine, _arguments(asked, "lexical"), notes)


def run_vsearch(engine: Engine, asked: SearchToolArguments, notes: tuple[str, ...]) -> ToolResult:
    """Passages by their meaning."""
    return _searched(engine, _arguments(asked, "vector"), notes)


def run_query(engine: Engine, asked: QueryArguments, notes: tuple[str, ...]) -> ToolResult:
    """Passages by both, reranked; without that if nobody asked for it and there is no model."""
    arguments = _arguments(asked, "hybrid") | without_nones({"expand": asked.expand})
    try:
        return _searched(engine, arguments | {"rerank": asked.rerank}, notes)
    except ConfigError as error:
        if not asked.rerank or "rerank" in asked.model_fields_set:
            raise
        note = f"not reranked: {one_line(str(error))}"
        return _searched(engine, arguments | {"rerank": False}, (*notes, note))


def _arguments(asked: SearchToolArguments, mode: Mode) -> dict[str, Any]:
    arguments = {
        "query": asked.query,
        "dataset": asked.dataset,
        "top_k": asked.top_k,
        "mode": mode,
        "docs": asked.docs,
        "file_type": asked.file_type,
        "name": asked.name,
        "filters": _conditions(asked.filters),
        "explain": asked.explain,
    }
    return without_nones(arguments)


def _conditions(given: Texts) -> list[str] | None:
    return [given] if isinstance(given, str) else given


def _searched(engine: Engine, arguments: dict[str, Any], notes: tuple[str, ...]) -> ToolResult:
    found = _found(engine, arguments)
    told = noted((*found.get("notes", ()), *_trouble(found["stages"])))
    results = [SearchResult.model_validate(one) for one in found["results"]]
    passages, whole = passages_of(results)
    ours = (*notes, whole) if whole else notes
    data = SearchData(
        status="ok" if passages else "no_results",
        message=None if passages else _nothing(engine, arguments, found["dataset"]),
        notes=(*ours, *told),
        results=passages,
        confidence=found["confidence"],
        low_confidence=found["low_confidence"],
        dataset=found["dataset"],
        query=one_line(found["query"], 2000),
        mode=found["mode"],
        elapsed_ms=found["elapsed_ms"],
    )
    lines = [*_doubt(data), *(f"note: {note}" for note in ours)]
    return tool_result(data, ours=lines, quoted=passages_text(passages), notes=told)


def _found(engine: Engine, arguments: dict[str, Any]) -> dict[str, Any]:
    """The answer; a text with commas in ``docs`` is one name if there is a document of it."""
    *others, docs = readings(arguments.get("docs"))
    for other in others:
        with suppress(DocumentNotFoundError):
            return engine.ask("search", arguments | {"docs": other})
    return engine.ask("search", without_nones(arguments | {"docs": docs}))


def _trouble(stages: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the steps of the search say that an agent should know: failures, a cut query."""
    return [
        f"{stage['name']}: {stage['note']}"
        for stage in stages
        if stage["note"] and (stage["status"] == "failed" or stage["name"] == "normalise")
    ]


def _doubt(data: SearchData) -> list[str]:
    if not data.low_confidence or not data.results:
        return []
    known = "" if data.confidence is None else f", estimated at {data.confidence:.2f} of 1"
    return [f"low confidence: perhaps none of these passages answers{known}"]


def _nothing(engine: Engine, arguments: Mapping[str, Any], dataset: str) -> str:
    """What was searched, and what to try instead."""
    narrowed = [name for name in _NARROWING if name in arguments]
    where, types = _there(engine, arguments, dataset)
    message = f"no results: no passage {_of(arguments)} for {echoed(arguments['query'])} {where}."
    if arguments.get("docs") == []:
        message += " docs is an empty list, which is no document: leave it out to search all."
    elif narrowed:
        message += " Leave out what narrows the search."
    message += " Try other words; query_catalog tells which documents there are."
    return f"{message} File types there are: {types}." if types else message


def _of(arguments: Mapping[str, Any]) -> str:
    """What the search was narrowed to."""
    told = []
    if "file_type" in arguments:
        told.append(f"of file type {echoed(arguments['file_type'])}")
    if "name" in arguments:
        told.append(f"of a document named like {echoed(arguments['name'])}")
    if "docs" in arguments:
        told.append("of the docs named")
    if "filters" in arguments:
        told.append("that fits the filters")
    return " ".join([*told, "was found"])


def _there(engine: Engine, arguments: Mapping[str, Any], dataset: str) -> tuple[str, str]:
    """Which documents there are under the filters, and their types; of ``docs`` nothing more."""
    nowhere = f"in dataset {echoed(dataset)}", ""
    if "docs" in arguments:
        return nowhere
    asked = {"dataset": dataset, "limit": 1, "filters": arguments.get("filters")}
    try:
        page = engine.ask("browse", without_nones(asked))
    except CatalogError:  # the search has answered; this is only to say more
        return nowhere
    documents = "document" if page["total"] == 1 else "documents"
    let_in = " that the filters let in" if "filters" in arguments else ""
    where = f"in the {page['total']} {documents} of dataset {echoed(dataset)}{let_in}"
    return where, types_text(page["types"])
