"""A verb's parameters at the edges: fields, a pydantic model, checks, call signatures.

Other usual names of an argument are accepted; the error for a wrong name suggests the nearest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from difflib import get_close_matches
from functools import cache, wraps
from inspect import Parameter, signature
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Concatenate,
    Literal,
    ParamSpec,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from catalog.core.errors import InputError
from catalog.core.params import Param, Params
from catalog.core.text import all_storable

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

P = ParamSpec("P")
ParamsT = TypeVar("ParamsT", bound=Params)
ModelT = TypeVar("ModelT", bound="BaseModel")
SelfT = TypeVar("SelfT")
ResultT = TypeVar("ResultT")

Names = Mapping[str, Iterable[str]]
"""The aliases of each argument, by its name."""

_MAX_COMPARED = 60  # characters of a name
_MAX_SHOWN = 60  # characters of a value
_ALIKE = 0.7  # share of the letters, as difflib counts
_YES_OR_NO = {"true": True, "false": False}
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}(?:\.[0-9]{1,18})?")
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}(?:\.0{1,18})?")
_CALLED = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list of texts",
    Iterable: "a list of texts",
    dict: "an object",
}


@dataclass(frozen=True, slots=True)
class ParamField:
    """One parameter of a verb: its name, type, default, description and place."""

    name: str
    type: Any
    default: Any
    param: Param
    is_positional: bool

    @property
    def is_required(self) -> bool:
        """Return whether the field has no default."""
        return self.default is MISSING

    @property
    def types(self) -> tuple[Any, ...]:
        """The accepted types, including ``None``'s."""
        return _types_in(self.type)

    @property
    def aliases(self) -> tuple[str, ...]:
        """Other names of the parameter."""
        return tuple(self.param.aliases.split())

    @property
    def takes_list(self) -> bool:
        """Return whether the field accepts a list or any iterable of texts, among other types."""
        return any(get_origin(kind) in (list, Iterable) for kind in self.types)


@cache
def param_fields(kind: type[Any]) -> tuple[ParamField, ...]:
    """Return the parameters of a verb in order, with the ones for Python only."""
    hints = get_type_hints(kind, include_extras=True)
    parameters = []
    for field in fields(kind):
        plain, *notes = get_args(hints[field.name])
        param = next(note for note in notes if isinstance(note, Param))
        parameters.append(ParamField(field.name, plain, field.default, param, not field.kw_only))
    return tuple(
        sorted(parameters, key=lambda field: (not field.is_positional, not field.is_required))
    )


def edge_fields(kind: type[Any]) -> tuple[ParamField, ...]:
    """Return the parameters that the edges outside Python take, with the types they take."""
    return tuple(
        replace(field, type=field.param.json or field.type)
        for field in param_fields(kind)  # type: ignore[arg-type]  # a class is hashable
        if not field.param.python_only
    )


@cache
def params_model(kind: type[Any], *without: str) -> type[BaseModel]:
    """Return the pydantic model of a verb's parameters in JSON: strict, no unknown names.

    Parameters in ``without`` are left out.
    """
    from pydantic import BaseModel, ConfigDict

    base = type("_Strict", (BaseModel,), {"model_config": ConfigDict(extra="forbid", strict=True)})
    parameters = [
        with_help(field, f"{field.param.help} {field.param.json_help}".rstrip())
        for field in edge_fields(kind)
        if field.name not in without
    ]
    return build_model(kind.__name__, base, parameters, about=summary_of(kind))


def with_help(field: ParamField, text: str) -> ParamField:
    """Return the same parameter with another help text."""
    return replace(field, param=replace(field.param, help=text))


def summary_of(kind: type[Any]) -> str:
    """Return the first line of the docstring of a verb's parameters."""
    return (kind.__doc__ or "").partition("\n")[0]


def build_model(
    name: str,
    base: type[ModelT],
    parameters: Iterable[ParamField],
    *,
    about: str | None = None,
) -> type[ModelT]:
    """Build the pydantic model of parameters: their types, defaults, help and bounds.

    An argument may use any alias of its parameter as its name; its value may have the forms in
    :func:`as_meant`.
    """
    from pydantic import Field, create_model, model_validator

    by_name = {field.name: field for field in parameters}
    names = {name: field.aliases for name, field in by_name.items()}

    def take_aliases(values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        return {
            name: as_meant(value, by_name[name].types if name in by_name else ())
            for name, value in rename_arguments(values, names)[0].items()
        }

    definitions: Any = {
        name: (
            Annotated[field.type, field.param],
            Field(
                ... if field.is_required else [] if field.default == () else field.default,
                description=field.param.help,
                ge=field.param.least,
                le=field.param.most,
                min_length=1 if field.is_required and field.type == list[str] else None,
                max_length=field.param.max_items,
            ),
        )
        for name, field in by_name.items()
    }
    validators: Any = {"take_aliases": model_validator(mode="before")(take_aliases)}
    return create_model(
        name, __base__=base, __doc__=about, __validators__=validators, **definitions
    )


def as_meant(value: Any, types: Collection[Any]) -> Any:
    """Convert a text to the number or truth value that it spells, unless a text is expected.

    Language models write values as text: ``"5"``, ``"true"``. A number with only zeros after the
    point is whole. Every other value is returned unchanged.
    """
    if isinstance(value, str) and str not in types:
        word = value.strip().casefold()
        if bool in types and word in _YES_OR_NO:
            return _YES_OR_NO[word]
        if int in types and _WHOLE.fullmatch(word):
            return int(word.partition(".")[0])
        if float in types and _NUMBER.fullmatch(word):
            return float(word)
    if int in types and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def argument_names(model: type[BaseModel]) -> Names:
    """Return the aliases of each argument of a model, by the argument's name."""
    return {name: _param_of(info).aliases.split() for name, info in model.model_fields.items()}


def read_params(kind: type[ParamsT], arguments: Mapping[str, Any], verb: str) -> ParamsT:
    """Return the parameters for JSON arguments; text that cannot be stored is replaced.

    Raises :class:`InputError` that names every argument that is missing, unknown, of a wrong type
    or out of bounds.
    """
    from pydantic import ValidationError

    model = params_model(kind)  # type: ignore[arg-type]
    try:
        checked = model.model_validate(all_storable(dict(arguments)))
    except ValidationError as error:
        raise InputError(f"{verb}: {validation_message(error, model)}") from error
    return kind(**{name: getattr(checked, name) for name in checked.model_fields_set})


def check_names(given: Iterable[str], names: Names) -> None:
    """Raise :class:`InputError` for an unknown argument name, with the nearest known one."""
    for name in given:
        if name not in names:
            raise InputError(describe_unknown(name, names))


def parameter_names(kind: type[Any]) -> Names:
    """Return the aliases of each parameter that Python takes, by the parameter's name."""
    return {field.name: field.aliases for field in param_fields(kind)}  # type: ignore[arg-type]


def check_params(params: Params) -> None:
    """Raise :class:`InputError` for a value of another type than its parameter's, or out of bounds.

    Lists may be any iterables of texts; the items of one that can be read only once are not
    checked. Values that are not a text, a number, a truth value or a list of texts are checked
    where they are used.
    """
    for field in param_fields(type(params)):  # type: ignore[arg-type]
        value = getattr(params, field.name)
        if not (value is None and field.default is None) and not _fits(value, field):
            wanted = _wanted(field.types, field.param)
            raise InputError(f"{field.name} must be {wanted}, not {_shorten(value)}")


def _fits(value: object, field: ParamField) -> bool:
    types, param = field.types, field.param
    if not field.takes_list and not {str, bool, int, float}.intersection(types):
        return True
    if isinstance(value, bool | str):
        return (bool if isinstance(value, bool) else str) in types
    if isinstance(value, int | float):
        is_number = float in types or (int in types and isinstance(value, int))
        return is_number and (param.least or 0) <= value <= (param.most or value)
    if not field.takes_list or not isinstance(value, Collection):
        return field.takes_list and isinstance(value, Iterable)
    is_short = len(value) <= (param.max_items or len(value))
    return is_short and all(isinstance(item, str) for item in value)


def validation_message(error: ValidationError, model: type[BaseModel]) -> str:
    """Return a message about invalid arguments for their caller, without whole values."""
    messages = []
    for problem in error.errors():
        name, *inner = map(str, problem["loc"] or ("arguments",))
        info, given = model.model_fields.get(name), problem["input"]
        if problem["type"] == "extra_forbidden":
            messages.append(describe_unknown(name, argument_names(model)))
        elif problem["type"] == "missing":
            messages.append(f"the argument {name} is missing")
        elif info is None or problem["type"] == "value_error" or (inner and not info.metadata):
            messages.append(f"{'.'.join((name, *inner))}: {problem['msg']}, not {_shorten(given)}")
        else:
            wanted = _wanted(_types_in(info.annotation), _param_of(info))
            messages.append(f"{name} must be {wanted}, not {_shorten(given)}")
            if name == "reference" and isinstance(given, list):
                messages.append("multi_get takes several documents")
    return "; ".join(dict.fromkeys(messages))


def _param_of(info: Any) -> Param:
    """Return the description of a model's field that was made of a parameter, else an empty one."""
    return next((note for note in info.metadata if isinstance(note, Param)), Param(""))


def _types_in(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _wanted(types: Iterable[Any], param: Param) -> str:
    """Return the accepted values in words: "text or a list of texts"."""
    words: list[str] = []
    for kind in types:
        if get_origin(kind) is Literal:
            words += map(str, get_args(kind))
        elif kind is not NoneType:
            words.append(_CALLED.get(get_origin(kind) or kind, "another value"))
    *most, last = dict.fromkeys(words)
    text = f"{', '.join(most)} or {last}" if most else last
    if param.max_items:
        return text.replace("a list of", f"a list of at most {param.max_items}")
    if param.least is None:
        return text
    return f"{text} from {param.least}" + (f" to {param.most}" if param.most else "")


def _shorten(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # of a number with thousands of digits
        text = f"a {type(value).__name__} too large to show"
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 3]}…"


def takes(
    kind: Callable[P, ParamsT],
) -> Callable[[Callable[[ParamsT], ResultT]], Callable[P, ResultT]]:
    """Let a function with one params object be called with the parameters themselves."""
    return lambda function: _taking(kind, function)


def takes_self(
    kind: Callable[P, ParamsT],
) -> Callable[[Callable[[SelfT, ParamsT], ResultT]], Callable[Concatenate[SelfT, P], ResultT]]:
    """Let a method with one params object be called with the parameters themselves."""
    own = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    return lambda method: _taking(kind, method, own)


def _taking(kind: Any, function: Callable[..., Any], *own: Parameter) -> Any:
    names = parameter_names(kind)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        check_names(kwargs, names)
        return function(*args[: len(own)], kind(*args[len(own) :], **kwargs))

    parameters = [
        Parameter(
            field.name,
            Parameter.POSITIONAL_OR_KEYWORD if field.is_positional else Parameter.KEYWORD_ONLY,
            default=Parameter.empty if field.is_required else field.default,
            annotation=field.type,
        )
        for field in param_fields(kind)
    ]
    taken = signature(function).replace(parameters=[*own, *parameters])
    call.__signature__ = taken  # type: ignore[attr-defined]
    return call


def rename_arguments(
    arguments: Mapping[str, Any], names: Names
) -> tuple[dict[str, Any], list[str]]:
    """Return the arguments under their own names, and a note on those with another name.

    Case, hyphens and underscores of a name do not matter (``topK``, ``top-k``). An unknown name
    stays unchanged. Raises :class:`InputError` if one argument is given under two names.
    """
    known = {fold_name(alias): name for name, aliases in names.items() for alias in aliases}
    known |= {fold_name(name): name for name in names}
    renamed = {name: value for name, value in arguments.items() if name in names}
    taken = []
    for given, value in arguments.items():
        name = known.get(fold_name(given), given)
        if given in names or (value is None and name != given):
            continue
        if name in renamed and renamed[name] is not None:
            raise InputError(f"{given} and {name} are the same argument: give one of them")
        renamed[name] = value
        if name != given:
            taken.append(f"{given} was read as {name}")
    return renamed, [", ".join(taken)] if taken else []


def describe_unknown(name: str, names: Names) -> str:
    """Say that no argument has that name, which is the nearest, and list all."""
    nearest = nearest_name(name, names)
    hint = f"; did you mean {nearest}?" if nearest else ";"
    shown = repr(name if len(name) <= _MAX_COMPARED else f"{name[: _MAX_COMPARED - 1]}…")
    return f"there is no argument {shown}{hint} arguments: {', '.join(names) or 'none'}"


def nearest_name(name: str, names: Names) -> str | None:
    """Return the argument with the most similar name or alias, if one is similar."""
    aliases = {fold_name(alias): own for own, others in names.items() for alias in (own, *others)}
    near = get_close_matches(fold_name(name[:_MAX_COMPARED]), list(aliases), n=1, cutoff=_ALIKE)
    return aliases[near[0]] if near else None


def fold_name(name: str) -> str:
    """Return the name without case, hyphens and underscores."""
    return re.sub(r"[\s_-]+", "", name).casefold()
