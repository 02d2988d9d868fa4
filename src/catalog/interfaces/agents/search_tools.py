"""The tools that find passages: ``search_chunks``, ``search``, ``vsearch``, ``query`` and ``ask``.

The last one answers with checked, cited sentences, where answers are on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from catalog.core.errors import CatalogError, ConfigError
from catalog.core.params import AskParams, Mode, SearchParams
from catalog.core.text import clean
from catalog.interfaces.agents.agent_passages import (
    AgentPassage,
    agent_passages,
    format_passages,
)
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
    format_types,
    note_lines,
    one_line,
    quote_argument,
    tool_result,
)

if TYPE_CHECKING:
    from catalog.interfaces.calls import Engine


_NARROWING = ("docs", "file_type", "name", "filters", "after", "before")
_TOP_K = Argument(
    help="Number of passages, 1 to 50. Default: the setting's, usually 10.",
    bounds=(1, 50),
)
_NOT_OF_TOOLS = ("similarity_threshold", "recency_half_life_days", "all_copies")
_QUERY = Argument(help='Words, "quoted phrases" and -exclusions.')
_FILTERS = Argument(help='Conditions that must all be true: ["tag=ops", "page>=3"].')
_SEARCH_ARGUMENTS = arguments_of(
    SearchParams,
    without=("mode", "rerank", "expand", "strict", *_NOT_OF_TOOLS),
    query=_QUERY,
    top_k=_TOP_K,
    filters=_FILTERS,
    after=AFTER,
    before=BEFORE,
)
_INDENT = "    "


class SearchData(ToolData):
    """Passages, best first. ``confidence`` is the probability that one answers, 0 to 1.

    ``elapsed_ms`` is the time of the search itself.
    """

    results: tuple[AgentPassage, ...] = ()
    confidence: float | None = None
    low_confidence: bool | None = None
    dataset: str | None = None
    query: str | None = None
    mode: Mode | None = None
    elapsed_ms: float | None = None


def run_search(
    engine: Engine, arguments: ToolArguments, notes: tuple[str, ...], **more: Any
) -> ToolResult:
    """Find passages; ``more`` are parameters of the search that the tool itself gives."""
    return _search(engine, arguments.params() | more, notes)


def run_query(engine: Engine, arguments: ToolArguments, notes: tuple[str, ...]) -> ToolResult:
    """Find passages and rerank them; not the latter if nobody asked for it and no model is set."""
    params = arguments.params() | {"mode": "hybrid"}
    try:
        return _search(engine, params, notes)
    except ConfigError as error:
        if not params["rerank"] or "rerank" in arguments.model_fields_set:
            raise
        note = f"not reranked: {one_line(str(error))}"
        return _search(engine, params | {"rerank": False}, (*notes, note))


def _search(engine: Engine, params: dict[str, Any], notes: tuple[str, ...]) -> ToolResult:
    answer = ask_by_names(engine, "search", params, "docs")
    told = [*answer.get("notes", ()), *_stage_notes(answer["stages"])]
    if nearest := answer.get("nearest"):
        told.append(f"nearest without these conditions: {', '.join(nearest)}")
    quoted_notes = clean_notes(told)
    passages, partial_note = agent_passages(answer["results"])
    own_notes = (*notes, partial_note) if partial_note else notes
    data = SearchData(
        status="ok" if passages else "no_results",
        message=None if passages else _no_results(engine, params, answer["datasets"]),
        notes=(*own_notes, *quoted_notes),
        results=passages,
        confidence=answer["confidence"],
        low_confidence=answer["low_confidence"],
        dataset=answer["dataset"],
        query=one_line(answer["query"], 2000),
        mode=answer["mode"],
        elapsed_ms=answer["elapsed_ms"],
    )
    lines = note_lines(own_notes)
    if data.low_confidence and data.results:
        lines.insert(0, "low confidence: perhaps none of these passages answers the query")
    quoted = format_passages(passages)
    return tool_result(data, lines=lines, quoted=quoted, quoted_notes=quoted_notes)


def _stage_notes(stages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return notes for the agent on the search's stages: failures, and a query cut short."""
    return [
        f"{stage['name']}: {stage['note']}"
        for stage in stages
        if stage["note"] and (stage["status"] == "failed" or stage["name"] == "normalise")
    ]


def _no_results(engine: Engine, params: Mapping[str, Any], datasets: Sequence[str]) -> str:
    """Return the message on an empty result: the search, and another one to try."""
    where, types = _describe_searched(engine, params, datasets)
    query = quote_argument(params["query"])
    message = f"no results: no passage {_describe_narrowing(params)} for {query} {where}."
    if params.get("docs") == []:
        message += " docs is an empty list, which means no document: leave it out to search all."
    elif any(name in params for name in _NARROWING):
        message += " Leave out some conditions."
    message += " Try other words, or list the documents with query_catalog."
    return f"{message} Existing file types: {types}." if types else message


def _describe_narrowing(params: Mapping[str, Any]) -> str:
    parts = []
    if "file_type" in params:
        parts.append(f"of file type {quote_argument(params['file_type'])}")
    if "name" in params:
        parts.append(f"of a document with {quote_argument(params['name'])} in its name")
    if "docs" in params:
        parts.append("of the named docs")
    parts += [
        f"dated {words} {quote_argument(params[name])}"
        for name, words in (("after", "on or after"), ("before", "before"))
        if name in params
    ]
    if "filters" in params:
        parts.append("that matches the filters")
    return " ".join([*parts, "was found"])


def _describe_searched(
    engine: Engine, params: Mapping[str, Any], datasets: Sequence[str]
) -> tuple[str, str]:
    """Return how many documents the filters let in, and their types; of ``docs`` neither."""
    names = f"dataset{'s' * (len(datasets) > 1)} {', '.join(map(quote_argument, datasets))}"
    unknown = f"in {names}", ""
    if "docs" in params:
        return unknown
    filters = {"filters": params["filters"]} if "filters" in params else {}
    try:
        page = engine.ask("browse", {"dataset": list(datasets), "limit": 1, **filters})
    except CatalogError:  # the search has answered; this is only to say more
        return unknown
    documents = "document" if page["total"] == 1 else "documents"
    let_in = " that match the filters" if filters else ""
    where = f"in the {page['total']} {documents} of {names}{let_in}"
    return where, format_types(page["types"])


SEARCH_CHUNKS = AgentTool(
    "search_chunks",
    "Search the content of documents",
    "Find passages that answer a question about what documents say (what, how, why, when). "
    "Returns numbered passages, each with its document, its lines, page or times, and a "
    "reference for get.",
    arguments_of(
        SearchParams,
        without=("expand", "explain", "strict", *_NOT_OF_TOOLS),
        last=("docs", "filters", "mode", "rerank", "dataset", "agent"),
        query=Argument(help='A question or words; "quoted words" must occur, -word must not.'),
        top_k=_TOP_K,
        mode=Argument(
            help="By words (lexical), by meaning (vector) or by both (hybrid, the default)."
        ),
        file_type=Argument(name="file_type_filter"),
        name=Argument(name="doc_name_filter"),
        filters=_FILTERS,
        after=AFTER,
        before=BEFORE,
        rerank=Argument(help="Let a second model rerank the best passages: better and slower."),
    ),
    SearchData,
    run_search,
)
SEARCH = AgentTool(
    "search",
    "Search by words",
    "Find passages that hold these very words (BM25): names, codes, error messages, quotes. "
    "Returns numbered, cited passages.",
    _SEARCH_ARGUMENTS,
    SearchData,
    partial(run_search, mode="lexical"),
)
VSEARCH = AgentTool(
    "vsearch",
    "Search by meaning",
    "Find passages that mean the same in other words (embeddings). Returns numbered, cited "
    "passages; some are always found, so read whether they answer.",
    _SEARCH_ARGUMENTS,
    SearchData,
    partial(run_search, mode="vector"),
)
QUERY = AgentTool(
    "query",
    "Search thoroughly",
    "Find passages by words and meaning together, the best ones reread by a second model: the "
    "best order, and the slowest. Returns numbered, cited passages.",
    arguments_of(
        SearchParams,
        without=("mode", "strict", *_NOT_OF_TOOLS),
        last=("rerank", "expand"),
        query=_QUERY,
        top_k=_TOP_K,
        filters=_FILTERS,
        after=AFTER,
        before=BEFORE,
        rerank=Argument(default=True),
    ),
    SearchData,
    run_query,
)


class CitedSource(ToolPart):
    """The source of ``[number]`` in an answer. ``get`` with ``reference`` returns it.

    ``text`` is the part of it that supports the answer; ``verified`` says whether any part does.
    """

    number: int
    reference: str
    path: str
    title: str
    citation: str
    link: str | None
    text: str
    verified: bool


class AskData(ToolData):
    """An answer in checked sentences, or the reason for no answer and the nearest documents."""

    answer: str | None = None
    sources: tuple[CitedSource, ...] = ()
    nearest: tuple[str, ...] = ()
    model: str | None = None
    dataset: str | None = None
    elapsed_ms: float | None = None


def run_ask(engine: Engine, arguments: ToolArguments, notes: tuple[str, ...]) -> ToolResult:
    """Answer a question; without an answer the status is ``no_results``."""
    params = arguments.params()
    said = ask_by_names(engine, "ask", params, "docs")
    abstention = said["abstention"] or {"nearest": ()}
    quoted_notes = clean_notes(said["notes"])
    datasets = said["datasets"]
    data = AskData(
        status="no_results" if said["abstained"] else "ok",
        message=f"no results: {one_line(said['reason'])}" if said["abstained"] else None,
        notes=(*notes, *quoted_notes),
        answer=None if said["abstained"] else clean(said["answer"]),
        sources=tuple(_sources(said)),
        nearest=tuple(one_line(near["path"]) for near in abstention["nearest"]),
        model=said["model"],
        dataset=datasets[0] if len(datasets) == 1 else None,
        elapsed_ms=said["elapsed_ms"],
    )
    quoted = "\n".join([*filter(None, [data.answer]), *_source_lines(data)])
    return tool_result(data, lines=note_lines(notes), quoted=quoted, quoted_notes=quoted_notes)


def _sources(said: Mapping[str, Any]) -> Iterator[CitedSource]:
    passages, _ = agent_passages(said["results"], 0)
    by_rank = {one.number: one for one in passages}
    for citation in said["citations"]:
        passage = by_rank[citation["rank"]]
        yield CitedSource(
            number=citation["n"],
            reference=passage.reference,
            path=passage.path,
            title=passage.title,
            citation=one_line(citation["citation"]),
            link=None if citation["link"] is None else one_line(citation["link"], 2000),
            text=clean(citation["text"]),
            verified=citation["verified"],
        )


def _source_lines(data: AskData) -> Iterator[str]:
    for source in data.sources:
        doubt = "" if source.verified else " (does not support it)"
        yield f"[{source.number}] {source.citation}{doubt}"
        yield f"{_INDENT}reference: {source.reference}"
    if data.nearest:
        yield f"nearest documents: {', '.join(data.nearest)}"


ASK = AgentTool(
    "ask",
    "Answer a question from documents",
    "Answer a question with a few sentences, each checked against the passages it cites, or say "
    "that the documents do not tell. Returns the answer and its sources, with references for get.",
    arguments_of(
        AskParams,
        without=("model", "expand", "strict", "mode", "similarity_threshold"),
        last=("docs", "filters", "rerank", "dataset"),
        question=Argument(help="The question, as a sentence."),
        top_k=Argument(
            help="Number of passages to answer from, 1 to 50. Default: the setting's.",
            bounds=(1, 50),
        ),
        filters=_FILTERS,
        after=AFTER,
        before=BEFORE,
    ),
    AskData,
    run_ask,
)
