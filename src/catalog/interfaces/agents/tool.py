"""What an agent's tool is: arguments in a schema, a result in words and as data, never a raise."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from catalog.core.errors import CatalogError
from catalog.interfaces.agents.coerce import coerce_arguments
from catalog.interfaces.agents.quoting import MAX_ECHO, mark_as_data, one_line, without_long_echoes

if TYPE_CHECKING:
    from catalog.interfaces.engine import Engine


_TOLD_OF_A_TYPE = frozenset(["type", "title", "description"])


def simplify_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The same schema without references, titles, and alternatives of bare types.

    ``anyOf`` of a type or null becomes ``"type": ["string", "null"]``: one look instead of two
    branches. Definitions are put where they are referred to, so none may hold itself.
    """
    found = _plain(schema, schema.get("$defs", {}))
    assert isinstance(found, dict)
    return found


def _plain(node: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_plain(one, definitions) for one in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        named = definitions[node["$ref"].rpartition("/")[2]]
        return _plain({**named, **{k: v for k, v in node.items() if k != "$ref"}}, definitions)
    kept = {name: value for name, value in node.items() if name != "$defs"}
    if isinstance(kept.get("title"), str):
        del kept["title"]
    for name in ("properties", "patternProperties"):
        if name in kept:
            inner = kept[name].items()
            kept[name] = {key: _plain(value, definitions) for key, value in inner}
    kept |= {
        name: _plain(value, definitions)
        for name, value in kept.items()
        if name in ("items", "prefixItems", "anyOf", "oneOf", "allOf", "additionalProperties")
    }
    return _one_type(kept)


def _one_type(node: dict[str, Any]) -> dict[str, Any]:
    """Alternatives of types as a list of types, with what else binds the one that is not null."""
    branches = node.get("anyOf")
    if not branches or any(not isinstance(one.get("type"), str) for one in branches):
        return node
    bound = [one for one in branches if not _TOLD_OF_A_TYPE.issuperset(one)]
    if len(bound) > 1 or (bound and len(branches) != 2) or "type" in node:
        return node
    if bound and not any(one["type"] == "null" for one in branches):
        return node
    others = {name: value for name, value in node.items() if name != "anyOf"}
    rules = {name: value for one in bound for name, value in one.items() if name != "type"}
    if "enum" in rules or "const" in rules:
        return node
    return {**rules, **others, "type": [one["type"] for one in branches]}


Status = Literal["ok", "no_results", "error"]
MAX_MESSAGE = 1000
"""Characters of an error's message at most."""


class ToolArguments(BaseModel):
    """Arguments as a model writes them: unknown names and wrong types are refused.

    ``CLAMPED`` names whole numbers with their least and most: beyond them the nearest is taken,
    and a note says so.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    CLAMPED: ClassVar[Mapping[str, tuple[int, int]]] = {}


class ToolData(BaseModel):
    """What every tool's data has: ``message`` says why there are no results, or what is wrong."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    status: Status
    message: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolResult:
    """``text`` is for a model to read, ``data`` the same as an object of the tool's schema."""

    text: str
    data: dict[str, Any]

    @property
    def is_error(self) -> bool:
        """Whether the call was wrong or could not be answered."""
        return bool(self.data["status"] == "error")


ArgumentsT = TypeVar("ArgumentsT", bound=ToolArguments)


@dataclass(frozen=True, slots=True)
class AgentTool(Generic[ArgumentsT]):
    """One tool. ``run`` gets checked arguments and the notes of what was clamped."""

    name: str
    title: str
    description: str
    arguments: type[ArgumentsT]
    data: type[ToolData]
    run: Callable[[Engine, ArgumentsT, tuple[str, ...]], ToolResult]

    def input_schema(self) -> dict[str, Any]:
        """JSON Schema of the arguments."""
        return self.arguments.model_json_schema()

    def output_schema(self) -> dict[str, Any]:
        """JSON Schema of the data, of errors as well."""
        return simplify_schema(self.data.model_json_schema(mode="serialization"))

    def call(self, engine: Engine, arguments: Mapping[str, Any]) -> ToolResult:
        """The answer; what our own errors say comes as an answer whose status is ``error``.

        An optional argument that is null or blank counts as not given, and ``5.0`` as the whole
        number 5.
        """
        try:
            given, notes = coerce_arguments(self.arguments, self.arguments.CLAMPED, arguments)
            checked = self.arguments.model_validate(given)
        except ValidationError as error:
            from catalog.core.params import validation_message

            return self.failed(validation_message(error, self.arguments), arguments)
        except CatalogError as error:
            return self.failed(str(error), arguments)
        try:
            return self.run(engine, checked, notes)
        except CatalogError as error:
            return self.failed(str(error), arguments)

    def failed(self, message: str, arguments: Mapping[str, Any] | None = None) -> ToolResult:
        """The answer that says what is wrong: one line, without more than a bit of an argument."""
        short = without_long_echoes(message[: 4 * MAX_MESSAGE], arguments or {})
        said = one_line(short, MAX_MESSAGE) or "the call failed"
        return ToolResult(f"error: {said}", {"status": "error", "message": said})


MAX_NOTE = 300
_TYPE = re.compile(r"[a-z0-9+_-]{1,12}")
_TYPES = 12


def tool_result(
    data: ToolData, *, ours: Iterable[str] = (), quoted: str = "", notes: Iterable[str] = ()
) -> ToolResult:
    """``ours`` are lines and notes of this package; ``quoted`` and ``notes`` may quote documents.

    Every string of the data is cleaned already.
    """
    lines = [data.message] if data.message is not None else []
    text = "\n".join([*lines, *ours])
    inside = "\n\n".join(filter(None, (quoted, "\n".join(f"note: {note}" for note in notes))))
    if inside:
        text = f"{text}\n{mark_as_data(inside)}" if text else mark_as_data(inside)
    return ToolResult(text, data.model_dump(mode="json"))


def noted(notes: Iterable[object]) -> tuple[str, ...]:
    """Notes of the engine, each on one line."""
    return tuple(one_line(str(note), MAX_NOTE) for note in notes)


def echoed(value: str) -> str:
    """An argument as a message repeats it."""
    return repr(one_line(value, MAX_ECHO - 2))


def types_text(types: Mapping[str, int]) -> str:
    """``pdf 8, md 4``; an extension that is no plain word is left out, as a file may bear any."""
    told = [f"{name} {count}" for name, count in types.items() if _TYPE.fullmatch(name)]
    return ", ".join(told[:_TYPES])


def without_nones(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that say something."""
    return {name: value for name, value in arguments.items() if value is not None}
