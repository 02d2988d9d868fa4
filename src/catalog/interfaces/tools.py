"""An agent's tool: a verb of the store with a name, words and bounds for language models.

Arguments are read as models write them. Text out of documents is cleaned, and marked as data.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError

from catalog.core import errors, results
from catalog.core import params as verbs
from catalog.core.arguments import argument_names, build_model, rename_arguments, validation_message
from catalog.core.places import format_count
from catalog.core.text import clean, format_timecode, mark_as_data
from catalog.interfaces.plain_text import one_line
from catalog.interfaces.terminal import Form, documents_text, passages_text, render
from catalog.retrieval.citations import format_headings, format_shown_place

if TYPE_CHECKING:
    from catalog.interfaces.calls import Engine

TEXT_BUDGET = 12_000
"""Characters of passage text in one answer; snippets are given beyond it.

Of 150 questions of ``golden_queries/python-docs.jsonl`` the ten passages hold the labelled text for
.840; shown it is for .807, for .800 with 10,000 characters, .747 with 8,000, .713 with 6,000.
"""
MAX_MESSAGE = 1000
"""Characters of an error's message at most."""
_MOST = 10_000_000  # of a number that the verb does not bound
_MOST_ECHOED = 60  # characters of a name that nothing has
_COPIES_SHOWN = 3
_INDENT = "    "
_NAMING = ("docs", "patterns", "tags")  # a text with commas is one name or, likelier, several
_EVIDENCE_SHOWN = 2000  # characters of a recording around a passage
_OF_PROGRAMS = {"chunk_id", "source_doc_id", "start_offset", "end_offset", "moment", "explain"}
_OF_PROGRAMS |= {"snippet", "snippet_lines", "snippet_locator", "matches"}
_BOUNDS = {"top_k": (1, 50), "limit": (1, 100), "max_bytes": (1_000, 1_000_000)}
_RESULTS = TypeAdapter(results.SearchResults)
_LISTS = {"search": "results", "browse": "entries", "multi_get": "documents", "status": "datasets"}
_NO_DOCS = "docs is empty: leave it out to search all documents"
_NOTHING = "no results: try other words or fewer conditions, or list documents with query_catalog."


class ToolResult(NamedTuple):
    """``text`` is for a model to read, ``data`` the same as JSON, with its ``status``."""

    text: str
    data: dict[str, Any]

    @property
    def is_error(self) -> bool:
        """Return whether the call was wrong or could not be answered."""
        return bool(self.data["status"] == "error")


@dataclass(frozen=True)
class Tool:
    """A verb; ``names`` rename its parameters, ``fixed`` are arguments of every call."""

    name: str
    title: str
    description: str
    verb: str
    params: type[verbs.Params]
    without: Collection[str] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def parameters(self) -> Mapping[str, verbs.Param]:
        """The parameters by the names that the tool has for them; whole numbers have bounds."""
        taken = {}
        for one in verbs.edge_fields(self.params):
            if one.name in self.without or one.name in self.fixed:
                continue
            name, is_number = self.names.get(one.name, one.name), int in get_args(one.type | None)
            within = _BOUNDS.get(one.name, (one.within[0] or 0, one.within[1] or _MOST))
            taken[name] = replace(
                one,
                name=name,
                default=self.defaults.get(one.name, one.default),
                within=within if is_number else (None, None),
                aliases=tuple(alias for alias in (one.name, *one.aliases) if alias != name),
            )
        return taken

    @cached_property
    def arguments(self) -> type[BaseModel]:
        """The model of the arguments; numbers may be text, and out of bounds."""
        unbounded = (replace(one, within=(None, None)) for one in self.parameters.values())
        return build_model(self.name, unbounded, strict=False)

    def input_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments: without null, of two forms the list."""
        whole = self.arguments.model_json_schema()
        properties = {name: _lean(one) for name, one in whole.get("properties", {}).items()}
        kept = ("type", "required", "additionalProperties")
        return {name: whole[name] for name in kept if name in whole} | {"properties": properties}

    def call(self, engine: Engine, given: Mapping[str, Any]) -> ToolResult:
        """Answer the call; an error of this package becomes a result whose status is ``error``."""
        try:
            params, notes = self.read(given)
            answer = self._ask(engine, params, notes)
        except errors.CatalogError as error:
            return failed(str(error), is_quoted=error.quotes_documents)
        data, text = _told(self.verb, answer, params)
        is_found = data.get(_LISTS.get(self.verb, ""), True) and not data.get("abstained")
        data |= {"status": "ok" if is_found else "no_results", "notes": [*notes, *data["notes"]]}
        own = [f"note: {note}" for note in notes]
        if not is_found:
            data["message"] = _NOTHING
            own.insert(0, _NOTHING)
        elif data.get("low_confidence"):
            own.insert(0, "low confidence: perhaps none of these passages answers the query")
        marked = [mark_as_data(clean(text.strip("\n")))] if text else []
        return ToolResult("\n".join([*own, *marked]), data)

    def read(self, given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """Return the verb's parameters that were given, and notes on other names and bounds.

        Null, a blank text and a list of blank texts count as not given for an optional argument;
        blank ``docs`` are an error, since without them every document may answer. Raises
        :class:`InputError` that names every argument that is wrong.
        """
        values = {}
        renamed, notes = rename_arguments(given, argument_names(self.arguments))
        for name, value in renamed.items():
            if one := self.parameters.get(name):
                value = _as_meant(value, one)
                if one.is_required and (_is_blank(value) or value == []):
                    raise errors.InputError(f"the argument {name} is blank: say what to look for")
                if _is_blank(value):
                    if name == "docs" and value is not None:
                        raise errors.InputError(_NO_DOCS)
                    continue
            values[name] = value
        try:
            checked = self.arguments.model_validate(values)
        except ValidationError as error:
            raise errors.InputError(validation_message(error, self.arguments)) from error
        own_names = {shown: own for own, shown in self.names.items()}
        params = {}
        for name in values:
            wanted, (least, most) = getattr(checked, name), self.parameters[name].within
            is_bounded = type(wanted) is int and least is not None and most is not None
            value = min(max(wanted, least), most) if is_bounded else wanted
            if value != wanted:
                shown = wanted if abs(wanted) < 2**63 else "of that size"
                notes.append(f"{name} {shown} is out of range, so {value} was used")
            params[own_names.get(name, name)] = value
        return params, notes

    def _ask(self, engine: Engine, given: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
        """Ask the engine; not for reranking if nobody asked for that and no model is set."""
        params = {**self.defaults, **self.fixed, **given}
        try:
            return _ask_by_names(engine, self.verb, params)
        except errors.ConfigError as error:
            if not self.defaults.get("rerank") or "rerank" in given:
                raise
            answer = _ask_by_names(engine, self.verb, {**params, "rerank": False})
            notes.append(f"not reranked: {one_line(str(error))}")
            return answer


def _lean(schema: Mapping[str, Any]) -> dict[str, Any]:
    lean = {key: value for key, value in schema.items() if key not in ("title", "anyOf")}
    if forms := [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]:
        lean |= next((one for one in forms if one.get("type") == "array"), forms[0])
        if "anyOf" in lean.get("items", {}):
            lean["items"] = lean["items"]["anyOf"][0]
    return {key: value for key, value in lean.items() if (key, value) != ("default", None)}


def _as_meant(value: Any, one: verbs.Param) -> Any:
    """Return a list where one is wanted, of a text or of JSON, without blank texts in it."""
    if not one.takes_list:
        return value
    if isinstance(value, str) and value.lstrip().startswith("["):
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    if isinstance(value, str) and value.strip():  # no dataset's name has a comma
        return _parts(value) if one.name == "dataset" else [value]
    is_several = isinstance(value, list | tuple) and not _is_blank(value)
    return [item for item in value if not _is_blank(item)] if is_several else value


def _is_blank(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return len(value) > 0 and all(map(_is_blank, value))
    return value is None or (isinstance(value, str) and not value.strip())


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _ask_by_names(engine: Engine, verb: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Ask; a single name with commas is tried as such, and then as several."""
    alone = {name: params[name][0] for name in _NAMING if len(params.get(name, ())) == 1}
    if several := {name: _parts(text) for name, text in alone.items() if "," in text}:
        with suppress(errors.DocumentNotFoundError, errors.UnknownValueError):
            return engine.ask(verb, params)
    return engine.ask(verb, {**params, **several})


def failed(message: str, *, is_quoted: bool = False) -> ToolResult:
    """Return an error's result: one line; one that quotes names of documents is marked as data."""
    line = one_line(clean(message))[:MAX_MESSAGE]
    quoted = f"the reason quotes names from documents.\n{mark_as_data(line)}" if is_quoted else line
    return ToolResult(f"error: {quoted}", {"status": "error", "message": line})


def _told(
    verb: str, answer: dict[str, Any], params: Mapping[str, Any]
) -> tuple[dict[str, Any], str]:
    """Return the answer's data, cleaned, and its text, which is the terminal's but for passages."""
    if verb == "search":
        found = _RESULTS.validate_python(answer)
        data = _cleaned(answer | {"results": list(_passages(found))})
        blocks = ["\n".join([*_passage_lines(one), ""]) for one in data["results"]]
        text = passages_text(found, Form())
        return data, "\n".join([*(blocks or [text.out]), text.err])
    if verb == "ask":
        read = {one["rank"]: results.SearchResult.model_validate(one) for one in answer["results"]}
        cited = [one | {"reference": _reference(read[one["rank"]])} for one in answer["citations"]]
        data = _cleaned(answer | {"citations": cited, "results": [], "sentences": []})
        return data, "\n".join(_answer_lines(data))
    if verb == "browse":
        text = render(verb, results.CatalogPage.model_validate(answer), Form())
    elif verb == "status":
        text, answer = render(verb, answer, Form()), answer | {"notes": []}
    else:  # lines have numbers, so that none looks like the name of another document
        answer = _fitting(answer, params) if verb == "multi_get" else answer
        documents = answer.get("documents", [answer])
        text = documents_text({"skipped": [], **answer, "documents": documents}, numbers=True)
    return _cleaned(answer), f"{text.out}{text.err}"


def _passages(found: results.SearchResults) -> Iterator[dict[str, Any]]:
    """Yield the passages as agents get them, whole as long as all text stays within the budget.

    ``text``, ``place`` and ``locator`` are of what is shown: the passage if ``is_whole``, else its
    snippet. A passage with another's evidence has its rank in ``evidence_at``.
    """
    from catalog.retrieval.recordings import cut_lines

    left = TEXT_BUDGET - sum(len(one.snippet) for one in found)
    for one in found:
        shown = one.model_dump(mode="json", exclude=_OF_PROGRAMS)
        shown["reference"] = _reference(one)
        shown["also_in"] = list(map(_reference, one.also_in[:_COPIES_SHOWN]))
        extra = 0 if one.evidence_at else len(one.text) - len(one.snippet)
        if is_whole := extra <= left:
            left -= extra
        else:
            one = one.model_copy(update={"locator": one.snippet_locator or one.locator})
            shown |= {"text": one.snippet, "locator": one.locator.model_dump()}
        if heard := one.evidence:
            lines = cut_lines(heard.lines, _EVIDENCE_SHOWN, anchors=heard.anchors)
            shown["evidence"] |= {"lines": [line.model_dump() for line in lines]}
        yield shown | {"is_whole": is_whole, "place": _place(one)}


def _reference(passage: results.SearchResult | results.OtherPlace) -> str:
    """Return ``notes:keys.md:12-30`` for ``get``, with a docid if no line can hold the path."""
    is_plain = passage.path == one_line(clean(passage.path))
    name = f"{passage.dataset}:{passage.path}" if is_plain else f"#{passage.docid}"
    return format_shown_place(passage.model_copy(update={"path": name, "snippet_locator": None}))


def _place(passage: results.SearchResult) -> str:
    """Return ``lines 120–170, page 4``, ``00:01:05–00:01:18`` or ``cell 3, line 2``."""
    where, start = passage.locator, passage.locator.time_start
    if where.cells is not None:
        return where.cells
    is_timed = (
        passage.modality in results.TIMED_MODALITIES
        or (where.line_start, where.page) == (None,) * 2
    )
    if start is not None and is_timed:
        times = (start, start if where.time_end is None else where.time_end)
        return "–".join(dict.fromkeys(map(format_timecode, times)))
    lines = format_count("line", where.line_start, where.line_end, dash="–")
    parts = [lines, format_count("page", where.page, where.page_end, dash="–")]
    if where.unit not in ("line", "page", "time"):
        of_file = f" of {where.file}" if where.unit == "record" and where.file else ""
        parts = [format_count(where.unit, where.start, where.end, dash="–") + of_file, lines]
    characters = f"characters {passage.start_offset}–{passage.end_offset}"
    return ", ".join(filter(None, parts)) or characters


def _passage_lines(one: Mapping[str, Any]) -> Iterator[str]:
    """Yield source and place, the text, and what ``get`` takes for the whole passage."""
    from catalog.retrieval.recordings import format_lines

    evidence, headings = one["evidence"], one["heading_path"]
    name = one["original"] or one["path"]
    about = format_headings(headings, one["sections"][len(headings) :])
    place = f"({'quoted, ' * (one['modality'] == 'quote')}{one['place']})"
    if one["modality"] in results.TIMED_MODALITIES:
        name = evidence["media"] if evidence and "." in evidence["media"] else one["path"]
        about = one["modality"].replace("_", " ")
    head = one_line(" — ".join(filter(None, [f"[{one['rank']}] {name}", about])))
    if evidence:
        best = evidence["best_sentence"] and results.EvidenceLine(**evidence["best_sentence"])
        yield head
        yield from format_lines(
            (results.EvidenceLine(**line) for line in evidence["lines"]), best, _INDENT
        )
    elif one["evidence_at"]:
        yield f"{head} {place}: see [{one['evidence_at']}]"
    else:
        yield f"{head} {one_line(place)}"
        yield _INDENT + f'"{one["text"].strip()}"'.replace("\n", f"\n{_INDENT}")
    cut = "" if one["is_whole"] else ", cut: get has the whole"
    yield f"{_INDENT}reference: {one['reference']} (#{one['docid']}), {one['certainty']}{cut}"
    if one["also_in"]:
        yield f"{_INDENT}also in: {', '.join(one['also_in'])}"
    if one["tags"]:
        yield f"{_INDENT}tags: {one_line(', '.join(one['tags']))}"


def _answer_lines(data: Mapping[str, Any]) -> Iterator[str]:
    yield data["answer"]
    for one in data["citations"]:
        doubt = "" if one["verified"] else " (does not support it)"
        yield f"[{one['n']}] {one_line(one['citation'])}{doubt}"
        yield f"{_INDENT}reference: {one['reference']}"
    if data["abstained"]:
        near = (one_line(one["path"]) for one in data["abstention"]["nearest"])
        yield f"why: {data['reason']}; nearest documents: {', '.join(near)}"
    yield from (f"note: {one_line(note)}" for note in data["notes"])


def _fitting(answer: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer with the documents that fit into ``max_bytes`` together; name the rest."""
    most = left = params.get("max_bytes", verbs.MultiGetParams.max_bytes)
    documents, skipped = [], list(answer["skipped"])
    for one in answer["documents"]:
        if (size := len(one["text"].encode())) <= left:
            documents.append(one)
            left -= size
        else:
            reason = f"{size} bytes, but only {left} are left of max_bytes {most}: get it alone"
            name = {name: one[name] for name in ("source_doc_id", "path")}
            skipped.append(name | {"reason": reason})
    return {**answer, "documents": documents, "skipped": skipped}


def _cleaned(value: Any) -> Any:
    """Return JSON without characters that steer a terminal or are hidden."""
    if isinstance(value, Mapping):
        return {clean(name): _cleaned(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return list(map(_cleaned, value))
    return clean(value) if isinstance(value, str) else value


_RARE = ("similarity_threshold", "recency_half_life_days", "all_copies", "explain", "strict")
SEARCH_CHUNKS = Tool(
    "search_chunks",
    "Search the content of documents",
    "Find passages that answer a question about what documents say (what, how, why, when). "
    "Returns numbered passages, each with its document, its lines, page or times, and a "
    "reference for get.",
    "search",
    verbs.SearchParams,
    without=("expand", *_RARE),
    names={"file_type": "file_type_filter", "name": "doc_name_filter"},
)
QUERY_CATALOG = Tool(
    "query_catalog",
    "List the documents there are",
    "Discover which files exist: list, count or filter documents by type, name, tag or date, "
    "sort them by date or size. Returns titles, summaries, sizes and dates, not what the "
    "documents say.",
    "browse",
    verbs.BrowseParams,
)
GET = Tool(
    "get",
    "Read a document",
    "Read a document or some of its lines, by a reference that a search gave, a path or a "
    "#docid. To read around a passage that was found give its reference with line_start and "
    "line_end of your own; they count what its citation does: lines, pages, cells, paragraphs.",
    "get",
    verbs.GetParams,
    defaults={"max_bytes": 65_536},
)
MULTI_GET = Tool(
    "multi_get",
    "Read several documents",
    "Read several documents at once, by a glob or a list of paths and #docids, or the passages "
    "that references and citations name. Those that do not fit together into max_bytes or do not "
    "exist are named, not given.",
    "multi_get",
    verbs.MultiGetParams,
)
SEARCH = Tool(
    "search",
    "Search by words",
    "Find passages that hold these very words (BM25): names, codes, error messages, quotes. "
    "Returns numbered, cited passages.",
    "search",
    verbs.SearchParams,
    without=("rerank", "expand", *_RARE),
    fixed={"mode": "lexical"},
)
VSEARCH = replace(
    SEARCH,
    name="vsearch",
    title="Search by meaning",
    description="Find passages that mean the same in other words (embeddings). Returns numbered, "
    "cited passages; some are always found, so read whether they answer.",
    fixed={"mode": "vector"},
)
QUERY = replace(
    SEARCH,
    name="query",
    title="Search thoroughly",
    description="Find passages by words and meaning together, the best ones reread by a second "
    "model: the best order, and the slowest. Returns numbered, cited passages.",
    without=_RARE,
    defaults={"rerank": True},
    fixed={"mode": "hybrid"},
)
STATUS = Tool(
    "status",
    "What the store holds",
    "Tell which datasets there are, and how many documents and passages each holds.",
    "status",
    verbs.StatusParams,
)
ASK = Tool(
    "ask",
    "Answer a question from documents",
    "Answer a question with a few sentences, each checked against the passages it cites, or say "
    "that the documents do not tell. Returns the answer and its sources, with references for get.",
    "ask",
    verbs.AskParams,
    without=("model", "expand", "mode", *_RARE),
)
LISTED_TOOLS = {one.name: one for one in (SEARCH_CHUNKS, QUERY_CATALOG, GET, MULTI_GET)}
"""The tools that an agent is shown: one for each thing to do."""
TOOLS = LISTED_TOOLS | {one.name: one for one in (SEARCH, VSEARCH, QUERY, STATUS, ASK)}
"""All tools: those that are not listed answer whoever calls them by name."""


def call_tool(engine: Engine, name: str, arguments: Mapping[str, Any]) -> ToolResult:
    """Call the tool of that name; for an unknown one the result is an error with the nearest."""
    tool = TOOLS.get(name)
    return tool.call(engine, arguments) if tool else failed(unknown_tool(name))


def unknown_tool(name: str) -> str:
    """Return the message for a name that no tool has, with the nearest name and those listed."""
    name = one_line(clean(name[:_MOST_ECHOED]))
    nearest = get_close_matches(name, list(TOOLS), n=1)
    hint = f"; did you mean {nearest[0]}?" if nearest else ";"
    return f"there is no tool {name!r}{hint} tools: {', '.join(LISTED_TOOLS)}"
