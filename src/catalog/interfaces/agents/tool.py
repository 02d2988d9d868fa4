"""What an agent's tool is: arguments in a schema, a result in words and as data, never a raise."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from catalog.core.errors import CatalogError
from catalog.interfaces.agents.arguments import ToolArguments
from catalog.interfaces.agents.quoting import (
    MAX_ECHO,
    mark_as_data,
    one_line,
    without_long_echoes,
)

if TYPE_CHECKING:
    from catalog.interfaces.calls import Engine

MAX_MESSAGE = 1000
"""Characters of an error's message at most."""
_MAX_NOTE = 300
_QUOTING_ERROR = "error: the call is wrong; the reason repeats names out of documents."
_PLAIN_TYPE = re.compile(r"[a-z0-9+_-]{1,12}")
_MAX_TYPES = 12
_FREE_KEYS = frozenset(["type", "title", "description"])
_ANNOTATIONS = frozenset(["title", "description", "default"])
_SUBSCHEMAS = ("items", "prefixItems", "anyOf", "oneOf", "allOf", "additionalProperties")


class ToolPart(BaseModel):
    """Base of the models that a tool's data consists of."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ToolData(ToolPart):
    """What every tool's data has: ``message`` says why there are no results, or what is wrong."""

    status: Literal["ok", "no_results", "error"]
    message: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolResult:
    """``text`` is for a model to read, ``data`` the same as an object of the tool's schema."""

    text: str
    data: dict[str, Any]

    @property
    def is_error(self) -> bool:
        """Return whether the call was wrong or could not be answered."""
        return bool(self.data["status"] == "error")


@dataclass(frozen=True, slots=True)
class AgentTool:
    """One tool. ``run`` gets checked arguments and the notes on what was clamped."""

    name: str
    title: str
    description: str
    arguments: type[ToolArguments]
    data: type[ToolData]
    run: Callable[[Engine, Any, tuple[str, ...]], ToolResult]

    def input_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments."""
        schema = self.arguments.model_json_schema()
        return {key: value for key, value in schema.items() if key != "title"}

    def output_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the data, of errors as well."""
        return simplify_schema(self.data.model_json_schema(mode="serialization"))

    def call(self, engine: Engine, arguments: Mapping[str, Any]) -> ToolResult:
        """Answer the call; an error of this package becomes a result whose status is ``error``."""
        try:
            checked, notes = self.arguments.read(arguments)
            return self.run(engine, checked, notes)
        except CatalogError as error:
            return self.failed(str(error), arguments, is_quoted=error.quotes_documents)

    def failed(
        self,
        message: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        is_quoted: bool = False,
    ) -> ToolResult:
        """Return an error's result: one line that repeats no argument at length.

        A message that ``is_quoted`` repeats names out of documents, and is marked as data.
        """
        short = without_long_echoes(message[: 4 * MAX_MESSAGE], arguments or {})
        line = one_line(short, MAX_MESSAGE) or "the call failed"
        text = f"{_QUOTING_ERROR}\n{mark_as_data(line)}" if is_quoted else f"error: {line}"
        return ToolResult(text, {"status": "error", "message": line})


def unknown_tool(name: str, listed: Iterable[str], known: Iterable[str]) -> str:
    """Return the message for a name that no tool has, with the nearest name and those listed."""
    nearest = get_close_matches(name[:MAX_ECHO], list(known), n=1)
    hint = f"; did you mean {nearest[0]}?" if nearest else ";"
    return f"there is no tool {quote_argument(name)}{hint} tools: {', '.join(listed)}"


def tool_result(
    data: ToolData,
    *,
    lines: Iterable[str] = (),
    quoted: str = "",
    quoted_notes: Iterable[str] = (),
) -> ToolResult:
    """Return the result whose text has our ``lines``, then what quotes documents, marked as such.

    Every string of the data is cleaned already.
    """
    own = "\n".join([*([data.message] if data.message is not None else []), *lines])
    inside = "\n\n".join(filter(None, (quoted, "\n".join(note_lines(quoted_notes)))))
    text = "\n".join(filter(None, (own, mark_as_data(inside)))) if inside else own
    return ToolResult(text, data.model_dump(mode="json"))


def note_lines(notes: Iterable[str]) -> list[str]:
    """Return the notes as lines of an answer's text."""
    return [f"note: {note}" for note in notes]


def clean_notes(notes: Iterable[object]) -> tuple[str, ...]:
    """Return the engine's notes, each on one line and without what hides or steers."""
    return tuple(one_line(str(note), _MAX_NOTE) for note in notes)


def quote_argument(value: object) -> str:
    """Return an argument as a message repeats it."""
    return repr(one_line(str(value), MAX_ECHO - 2))


def format_types(types: Mapping[str, int]) -> str:
    """Return ``pdf 8, md 4``, without extensions that are no plain words: a file may bear any."""
    counts = [f"{name} {count}" for name, count in types.items() if _PLAIN_TYPE.fullmatch(name)]
    return ", ".join(counts[:_MAX_TYPES])


def simplify_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema that allows the same and says it in few words.

    It has no references, titles, descriptions and defaults. ``anyOf`` of a type or null becomes
    ``"type": ["string", "null"]``. Definitions are put where they are referred to, so none may
    hold itself.
    """
    simple = _simplify(schema, schema.get("$defs", {}))
    assert isinstance(simple, dict)
    return simple


def _simplify(node: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_simplify(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        definition = definitions[node["$ref"].rpartition("/")[2]]
        rest = {key: value for key, value in node.items() if key != "$ref"}
        return _simplify({**definition, **rest}, definitions)
    simple = {key: value for key, value in node.items() if key not in _ANNOTATIONS | {"$defs"}}
    for key in ("properties", "patternProperties"):
        if key in simple:
            fields = simple[key].items()
            simple[key] = {name: _simplify(value, definitions) for name, value in fields}
    for key in _SUBSCHEMAS:
        if key in simple:
            simple[key] = _simplify(simple[key], definitions)
    return _merge_types(simple)


def _merge_types(node: dict[str, Any]) -> dict[str, Any]:
    """Return alternatives of types as a list of types, with the rules of the one that has some."""
    branches = node.get("anyOf")
    if not branches or any(not isinstance(branch.get("type"), str) for branch in branches):
        return node
    with_rules = [branch for branch in branches if not _FREE_KEYS.issuperset(branch)]
    if len(with_rules) > 1 or (with_rules and len(branches) != 2) or "type" in node:
        return node
    if with_rules and not any(branch["type"] == "null" for branch in branches):
        return node
    others = {key: value for key, value in node.items() if key != "anyOf"}
    rules = {key: value for branch in with_rules for key, value in branch.items() if key != "type"}
    if "enum" in rules or "const" in rules:
        return node
    return {**rules, **others, "type": [branch["type"] for branch in branches]}
