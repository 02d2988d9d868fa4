"""The tool that answers a question with checked, cited sentences: ``ask``, where answers are on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from catalog.core.params import AskParams
from catalog.interfaces.agents.agent_passages import agent_passages
from catalog.interfaces.agents.arguments import (
    AFTER,
    BEFORE,
    Argument,
    ToolArguments,
    arguments_of,
    ask_by_names,
)
from catalog.interfaces.agents.quoting import clean, one_line
from catalog.interfaces.agents.tool import (
    AgentTool,
    ToolData,
    ToolPart,
    ToolResult,
    clean_notes,
    note_lines,
    tool_result,
)

if TYPE_CHECKING:
    from catalog.interfaces.calls import Engine

_INDENT = "    "


class CitedSource(ToolPart):
    """What ``[number]`` in an answer stands for. ``reference`` is what ``get`` takes for it.

    ``text`` is what of it supports the answer; ``verified`` tells whether anything does.
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
    """An answer in checked sentences, or why there is none and which documents are nearest."""

    answer: str | None = None
    sources: tuple[CitedSource, ...] = ()
    nearest: tuple[str, ...] = ()
    model: str | None = None
    dataset: str | None = None
    elapsed_ms: float | None = None


def run_ask(engine: Engine, arguments: ToolArguments, notes: tuple[str, ...]) -> ToolResult:
    """Answer a question; an answer that is none has the status ``no_results``."""
    params = arguments.params()
    if isinstance(params.get("filters"), str):
        params["filters"] = [params["filters"]]
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
    by_number = {one.number: one for one in passages}
    for citation in said["citations"]:
        passage = by_number[citation["n"]]
        yield CitedSource(
            number=passage.number,
            reference=passage.reference,
            path=passage.path,
            title=passage.title,
            citation=passage.citation,
            link=passage.link,
            text=clean(citation["text"]),
            verified=citation["verified"],
        )


def _source_lines(data: AskData) -> Iterator[str]:
    for source in data.sources:
        doubt = "" if source.verified else " (does not say so)"
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
        without=("role", "model", "expand", "strict", "mode", "similarity_threshold"),
        last=("docs", "filters", "rerank", "dataset"),
        question=Argument(help="The question, in a sentence."),
        top_k=Argument(
            help="How many passages to answer from, 1 to 50; by default as the settings say.",
            bounds=(1, 50),
        ),
        filters=Argument(help='Conditions that must all hold: ["tag=ops", "page>=3"].'),
        after=AFTER,
        before=BEFORE,
    ),
    AskData,
    run_ask,
)
