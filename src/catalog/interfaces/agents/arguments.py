"""Arguments of tools: generated from the verbs' parameters, read as language models write them."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from types import GenericAlias, NoneType
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, ValidationError

from catalog.core.errors import DocumentNotFoundError, InputError
from catalog.core.param_fields import (
    argument_names,
    as_meant,
    build_model,
    edge_fields,
    rename_arguments,
    summary_of,
    validation_message,
)
from catalog.core.params import Param, Params
from catalog.core.text import storable

if TYPE_CHECKING:
    from pydantic_core import CoreSchema

    from catalog.interfaces.calls import Engine

_MOST = 10_000_000  # of a number that the verb does not bound
_SHOWN = 2**63 - 1  # a larger number is not repeated in a note


class ToolArguments(BaseModel):
    """Arguments as a model writes them: unknown names and wrong types are refused.

    ``CLAMPED`` has the least and most of every whole number: beyond them the nearest is taken, and
    a note says so. ``RENAMED`` has the parameter for every argument of another name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    CLAMPED: ClassVar[Mapping[str, tuple[int, int]]] = {}
    RENAMED: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return the schema as a model reads it: what is optional may be left out, or be null.

        A list may be given as one text, too; of both the list is told.
        """
        schema = dict(handler.resolve_ref_schema(handler(core_schema)))
        schema.pop("description", None)
        fields = schema.get("properties", {}).items()
        schema["properties"] = {name: _lean_field(field) for name, field in fields}
        return schema

    @classmethod
    def read(cls, arguments: Mapping[str, Any]) -> tuple[Self, tuple[str, ...]]:
        """Return the arguments, and the notes on what was clamped or had another name.

        Null, a blank text and a list of blank texts count as not given for an optional argument;
        blank ``docs`` are an error, since without them every document may answer. A number, or a
        yes or no, may be text (see :func:`~catalog.core.param_fields.as_meant`); a character that
        no document can hold becomes U+FFFD. Raises :class:`InputError` that names every argument
        that is wrong.
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
                        raise InputError("docs names no document: leave it out to search all")
                    continue
                takes_list = any(get_origin(kind) is list for kind in get_args(field.annotation))
                value = _as_list_or_text(value, takes_list=takes_list)
                value = as_meant(value, get_args(field.annotation) or (field.annotation,))
                if isinstance(value, list):
                    value = [_storable(item) for item in value if not _is_blank(item)]
                value = _storable(value)
                if name in cls.CLAMPED:
                    value = _clamp(name, value, cls.CLAMPED[name], notes)
            values[name] = value
        try:
            return cls.model_validate(values), tuple(notes)
        except ValidationError as error:
            raise InputError(validation_message(error, cls)) from error

    def params(self) -> dict[str, Any]:
        """Return the parameters for the verb, without those that are ``None``.

        A text with commas names several datasets, since no dataset's name has one.
        """
        values = {self.RENAMED.get(name, name): value for name, value in self}
        if isinstance(values.get("dataset"), str) and "," in values["dataset"]:
            values["dataset"] = [name.strip() for name in values["dataset"].split(",")]
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Argument:
    """Say in what an argument differs from the verb's parameter; what is left out is the same.

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
            clamped[name] = change.bounds or (field.param.least or 0, field.param.most or _MOST)
        if name != field.name:
            renamed[name] = field.name
        description = change.help or field.param.help
        if change.bounds and not change.help:
            least, most = change.bounds
            description = f"{description.removesuffix('.')}, {least} to {most}."
        accepted = reduce(or_, types if default is not None else [*types, NoneType])
        aliases = tuple({field.name: 0, **dict.fromkeys(field.param.aliases)})
        aliases = tuple(alias for alias in aliases if alias != name)
        param = Param(description, aliases=aliases)
        parameters.append(replace(field, name=name, type=accepted, default=default, param=param))
    title = kind.__name__.replace("Params", "Arguments")
    model = build_model(title, ToolArguments, parameters, about=summary_of(kind))
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
    """Return what an argument may mean: a text with commas is one name or, likelier, several."""
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


def _clamp(name: str, value: Any, bounds: tuple[int, int], notes: list[str]) -> Any:
    """Return the whole number within the bounds, anything else as it is; note what was clamped."""
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    nearest = min(max(value, bounds[0]), bounds[1])
    if nearest != value:
        text = value if abs(value) <= _SHOWN else "of that size"
        notes.append(f"{name} {text} is out of range: {nearest} was taken")
    return nearest
