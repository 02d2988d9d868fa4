"""An agent's tool: arguments in a schema, a result in words and as data, never a raise.

Arguments are generated from the verbs' parameters, and read as language models write them. Text
out of documents is cleaned, and marked as data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import reduce
from operator import or_
from types import GenericAlias, NoneType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, ValidationError

from catalog.core.arguments import argument_names, build_model, rename_arguments, validation_message
from catalog.core.errors import CatalogError, DocumentNotFoundError, InputError
from catalog.core.params import Param, Params, edge_fields
from catalog.core.text import clean, mark_as_data, storable

if TYPE_CHECKING:
    from pydantic_core import CoreSchema

    from catalog.interfaces.calls import Engine


_MOST = 10_000_000  # of a number that the verb does not bound
_SHOWN = 2**63 - 1  # a larger number is not repeated in a note
MAX_ECHO = 60
"""Characters of an argument that a message repeats at most."""
_MAX_COMPARED = 20_000  # characters of an argument; a message is far shorter
MAX_MESSAGE = 1000
"""Characters of an error's message at most."""
_MAX_NOTE = 300
_MOST_TAGS = 20
_QUOTING_ERROR = "error: the call is wrong; the reason quotes names from documents."
_PLAIN_TYPE = re.compile(r"[a-z0-9+_-]{1,12}")
_MAX_TYPES = 12
_FREE_KEYS = frozenset(["type", "title", "description"])
_ANNOTATIONS = frozenset(["title", "description", "default"])
_SUBSCHEMAS = ("items", "prefixItems", "anyOf", "oneOf", "allOf", "additionalProperties")


class ToolArguments(BaseModel):
    """Arguments as a model writes them: unknown names and wrong types are refused.

    ``CLAMPED`` has the least and most of every whole number: beyond them the nearest is taken, and
    a note says so. ``RENAMED`` has the parameter for every argument of another name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    CLAMPED: ClassVar[Mapping[str, tuple[int, int]]] = {}
    RENAMED: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return the schema for a model: an optional argument may be left out, or be null.

        A list may also be given as one text; the schema shows the list only.
        """
        schema = dict(handler.resolve_ref_schema(handler(core_schema)))
        schema.pop("description", None)
        fields = schema.get("properties", {}).items()
        schema["properties"] = {name: _lean_field(field) for name, field in fields}
        return schema

    @classmethod
    def read(cls, arguments: Mapping[str, Any]) -> tuple[Self, tuple[str, ...]]:
        """Return the arguments, and the notes on clamped values and other names.

        Null, a blank text and a list of blank texts count as not given for an optional argument;
        blank ``docs`` are an error, since without them every document may answer. A number, or a
        yes or no, may be text; a character that no document can hold becomes U+FFFD. Raises
        :class:`InputError` that names every argument that is wrong.
        """
        values: dict[str, Any] = {}
        given, notes = rename_arguments(arguments, argument_names(cls))
        for name, value in given.items():
            field = cls.model_fields.get(name)
            if field is not None:
                if field.is_required():
                    _check_not_blank(name, value)
                elif _is_empty(value):
                    if value is not None and name == "docs":
                        raise InputError("docs is empty: leave it out to search all documents")
                    continue
                takes_list = any(get_origin(kind) is list for kind in get_args(field.annotation))
                value = _as_list_or_text(value, takes_list=takes_list)
                if isinstance(value, list):
                    value = [_storable(item) for item in value if not _is_blank(item)]
                value = _storable(value)
            values[name] = value
        try:
            checked = cls.model_validate(values)
        except ValidationError as error:
            raise InputError(validation_message(error, cls)) from error
        clamped = {
            name: _clamp(name, getattr(checked, name), cls.CLAMPED[name], notes)
            for name in values
            if name in cls.CLAMPED
        }
        return checked.model_copy(update=clamped), tuple(notes)

    def params(self) -> dict[str, Any]:
        """Return the parameters for the verb, without those that are ``None``.

        A text with commas names several datasets, since no dataset's name has one. A text of
        filters is one condition.
        """
        values = {self.RENAMED.get(name, name): value for name, value in self}
        if isinstance(values.get("filters"), str):
            values["filters"] = [values["filters"]]
        if isinstance(values.get("dataset"), str) and "," in values["dataset"]:
            values["dataset"] = [name.strip() for name in values["dataset"].split(",")]
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Argument:
    """The differences of an argument from the verb's parameter; unset fields are the same.

    ``bounds`` are the least and the most that the tool takes.
    """

    name: str = ""
    help: str = ""
    default: Any = None
    bounds: tuple[int, int] | None = None


AFTER = Argument(
    help="Only documents dated on or after this day, month or year: YYYY-MM-DD, YYYY-MM or YYYY."
)
BEFORE = Argument(help="Only documents dated before this day, month or year.")


def arguments_of(
    kind: type[Params],
    *,
    without: Collection[str] = (),
    last: Collection[str] = (),
    **changes: Argument,
) -> type[ToolArguments]:
    """Return the arguments of a tool: the parameters of a verb, less some, with some changed.

    ``changes`` are named after parameters, as are those that come ``last``. A parameter that is a
    list of texts may also be given as one text.
    """
    parameters = []
    clamped: dict[str, tuple[int, int]] = {}
    renamed: dict[str, str] = {}
    fields = [field for field in edge_fields(kind) if field.name not in without]
    for field in sorted(fields, key=lambda field: field.name in last):
        change = changes.get(field.name, Argument())
        name = change.name or field.name
        types = [part for part in get_args(field.type | None) if part is not NoneType]
        default = field.default if change.default is None else change.default
        if field.takes_list:
            objects = [kind for kind in types if get_origin(kind) is dict]
            types = [str, GenericAlias(list, (reduce(or_, [str, *objects]),)), *objects]
            default = default or None
        if int in types:
            clamped[name] = change.bounds or (field.within[0] or 0, field.within[1] or _MOST)
        if name != field.name:
            renamed[name] = field.name
        description = change.help or field.help
        if change.bounds and not change.help:
            least, most = change.bounds
            description = f"{description.removesuffix('.')}, {least} to {most}."
        accepted = reduce(or_, types if default is not None else [*types, NoneType])
        aliases = tuple(one for one in dict.fromkeys((field.name, *field.aliases)) if one != name)
        parameters.append(
            Param(description, name=name, type=accepted, default=default, aliases=aliases)
        )
    title = kind.__name__.replace("Params", "Arguments")
    model = build_model(title, parameters, about=kind.__doc__, base=ToolArguments)
    model.CLAMPED, model.RENAMED = clamped, renamed
    return model


def _lean_field(field: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an argument without title, null and the lesser of two forms."""
    lean = {key: value for key, value in field.items() if key not in ("title", "anyOf")}
    branches = [branch for branch in field.get("anyOf", ()) if branch.get("type") != "null"]
    if branches:
        lean |= next((part for part in branches if part.get("type") == "array"), branches[0])
        if "anyOf" in lean.get("items", {}):
            lean["items"] = lean["items"]["anyOf"][0]
    if lean.get("default") is None:
        lean.pop("default", None)
    return dict(sorted(lean.items(), key=lambda item: item[0] == "description"))


def possible_lists(value: str | list[str] | None) -> list[list[str] | None]:
    """Return the readings of an argument: a text with commas is one name or, likelier, several."""
    if value is None or isinstance(value, list):
        return [value]
    parts = [part.strip() for part in value.split(",") if part.strip()]
    return [[value], parts] if "," in value else [parts]


def ask_by_names(
    engine: Engine, verb: str, params: Mapping[str, Any], names: str
) -> dict[str, Any]:
    """Ask the engine, where the parameter ``names`` may be a text that names documents.

    A text with commas is one name if there is such a document, else several.
    """
    *unlikely, likeliest = possible_lists(params.get(names))
    for documents in unlikely:
        with suppress(DocumentNotFoundError):
            return engine.ask(verb, {**params, names: documents})
    return engine.ask(verb, params if likeliest is None else {**params, names: likeliest})


def _as_list_or_text(value: Any, *, takes_list: bool) -> Any:
    """Return the list that a text of JSON is, or the text in a list of one, where it is wanted."""
    if takes_list and isinstance(value, str) and value.lstrip().startswith("["):
        with suppress(ValueError, RecursionError):
            return json.loads(value)
    if not takes_list and isinstance(value, list) and len(value) == 1:
        return value[0] if isinstance(value[0], str) else value
    return value


def _check_not_blank(name: str, value: Any) -> None:
    if _is_blank(value) or (isinstance(value, list) and all(map(_is_blank, value))):
        raise InputError(f"the argument {name} is blank: say what to look for")


def _is_empty(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(map(_is_blank, value))
    return value is None or _is_blank(value)


def _is_blank(value: Any) -> bool:
    return isinstance(value, str) and not value.strip()


def _storable(value: Any) -> Any:
    return storable(value) if isinstance(value, str) else value


def _clamp(name: str, value: int | None, bounds: tuple[int, int], notes: list[str]) -> int | None:
    """Return a whole number within the bounds, and note a clamped one; ``None`` stays."""
    if value is None:
        return None
    nearest = min(max(value, bounds[0]), bounds[1])
    if nearest != value:
        text = value if abs(value) <= _SHOWN else "of that size"
        notes.append(f"{name} {text} is out of range, so {nearest} was used")
    return nearest


def one_line(text: str, limit: int = 300) -> str:
    """Return the clean text on one line, cut at ``limit`` characters."""
    line = " ".join(clean(text).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def shown_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Return the first twenty tags, each cut at 40 characters, and how many there are besides."""
    more = (f"and {len(tags) - _MOST_TAGS} more",) if len(tags) > _MOST_TAGS else ()
    return (*(one_line(tag, 40) for tag in tags[:_MOST_TAGS]), *more)


def document_reference(document: Mapping[str, Any]) -> str:
    """Return a reference for ``get``: ``dataset:path``, or the docid if that is too long."""
    name: str = document["source_doc_id"]
    return name if one_line(name) == name else f"#{document['docid']}"


def without_long_echoes(message: str, arguments: Mapping[str, Any]) -> str:
    """Return the message with every stretch of an argument cut at :data:`MAX_ECHO` characters."""
    for text in _texts(arguments):
        for form in (text, repr(text)[1:-1]):
            if len(form) > MAX_ECHO:
                message = _cut_echoes(message, form[:_MAX_COMPARED])
    return message


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, part in value.items():
            yield from _texts(name)
            yield from _texts(part)
    elif isinstance(value, list | tuple):
        for part in value[:100]:
            yield from _texts(part)


def _cut_echoes(message: str, echoed: str) -> str:
    pieces, at = [], 0
    while at < len(message):
        end = at + MAX_ECHO + 1
        if end > len(message) or message[at:end] not in echoed:
            pieces.append(message[at])
            at += 1
            continue
        while end < len(message) and message[at : end + 1] in echoed:
            end += 1
        pieces.append(f"{message[at : at + MAX_ECHO - 3]}…")
        at = end
    return "".join(pieces)


class ToolPart(BaseModel):
    """Base of the models that a tool's data consists of."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ToolData(ToolPart):
    """The data of every tool: ``message`` gives the reason for no results, or the error."""

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
    """One tool. ``run`` gets checked arguments and the notes on clamped values."""

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
    """Return the engine's notes, each on one line and without control characters."""
    return tuple(one_line(str(note), _MAX_NOTE) for note in notes)


def quote_argument(value: object) -> str:
    """Return an argument as a message repeats it."""
    return repr(one_line(str(value), MAX_ECHO - 2))


def format_types(types: Mapping[str, int]) -> str:
    """Return ``pdf 8, md 4``; leave out extensions that are not plain words."""
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
