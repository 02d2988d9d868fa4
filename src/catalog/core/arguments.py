"""Read what callers give for a verb's parameters: names, aliases, types and bounds.

Pydantic checks them. The models are made at the first use, because a command that asks a server
starts in half the time without pydantic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import cache, lru_cache, wraps
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec, TypeVar

from catalog.core.errors import InputError
from catalog.core.params import Param, Params, edge_fields, param_fields
from catalog.core.text import all_storable

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

P = ParamSpec("P")
ParamsT = TypeVar("ParamsT", bound=Params)
SelfT = TypeVar("SelfT")
ResultT = TypeVar("ResultT")

Names = Mapping[str, Iterable[str]]
"""The aliases of each argument, by its name."""

_MAX_SHOWN = 60  # characters of a name or a value
_PLAIN = {  # pydantic's words, and ours
    "Value error, ": "",
    "Input should be greater than or equal to": "must be at least",
    "Input should be less than or equal to": "must be at most",
    "Input should be": "must be",
    ", unable to parse string as an integer": "",
    ", unable to parse string as a number": "",
}
_ALIKE = 0.7  # share of the letters, as difflib counts


def parameter_names(kind: type[Params]) -> Names:
    """Return the aliases of each parameter that Python takes, by the parameter's name."""
    return {one.name: one.aliases for one in param_fields(kind)}  # type: ignore[arg-type]


@cache
def params_model(kind: type[Params], *without: str) -> type[BaseModel]:
    """Return the pydantic model of a verb's parameters in JSON: strict, no unknown names."""
    parameters = [one for one in edge_fields(kind) if one.name not in without]
    told = [replace(one, help=f"{one.help} {one.json_help}".rstrip()) for one in parameters]
    return build_model(kind.__name__, told, about=kind.__doc__)


@cache
def _python_model(kind: type[Params]) -> type[BaseModel]:
    """Return the model of all parameters, whose filters may be anything and are checked later."""
    parameters = param_fields(kind)  # type: ignore[arg-type]
    types = [one.type if one.type is object else one.json or one.type for one in parameters]
    typed = [replace(one, type=kind) for one, kind in zip(parameters, types, strict=True)]
    return build_model(kind.__name__, typed)


def build_model(
    name: str, parameters: Iterable[Param], *, about: str | None = None, strict: bool = True
) -> type[Any]:
    """Build a pydantic model of parameters; one that is not strict reads text as numbers, too."""
    from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

    config = {"model_config": ConfigDict(extra="forbid", strict=strict)}
    by_name = {one.name: one for one in parameters}
    definitions: Any = {
        name: (
            Annotated[one.type, one],
            Field(
                [] if one.default == () else one.default,
                description=one.help,
                ge=one.within[0],
                le=one.within[1],
                min_length=1 if one.is_required and one.type == list[str] else None,
                max_length=one.max_items,
            ),
        )
        for name, one in by_name.items()
    }

    def take_aliases(values: Any) -> Any:
        names = {name: one.aliases for name, one in by_name.items()}
        return rename_arguments(values, names)[0] if isinstance(values, Mapping) else values

    validators: Any = {"take_aliases": model_validator(mode="before")(take_aliases)}
    model: type[Any] = create_model(
        name,
        __base__=type("_Arguments", (BaseModel,), config),
        __doc__=(about or "").partition("\n")[0] or None,
        __validators__=validators,
        **definitions,
    )
    return model


def argument_names(model: type[BaseModel]) -> Names:
    """Return the aliases of each argument of a model, by the argument's name."""
    return {
        name: next((note.aliases for note in info.metadata if isinstance(note, Param)), ())
        for name, info in model.model_fields.items()
    }


def read_params(kind: type[ParamsT], arguments: Mapping[str, Any], verb: str) -> ParamsT:
    """Return the parameters for JSON arguments; raise an error that names every wrong one."""
    checked = _validate(params_model(kind), all_storable(dict(arguments)), f"{verb}: ")  # type: ignore[arg-type]
    return kind(**{name: getattr(checked, name) for name in checked.model_fields_set})


def check_params(params: Params) -> None:
    """Raise :class:`InputError` for a value of another type than its parameter's, or out of bounds.

    The items of an iterable that can be read only once are not checked.
    """
    values = dict(vars(params))
    for name, value in values.items():
        if isinstance(value, Iterable) and not isinstance(value, str | Mapping):
            values[name] = list(value) if isinstance(value, Collection) else []
    _validate(_python_model(type(params)), values)  # type: ignore[arg-type]


def _validate(model: type[BaseModel], values: Mapping[str, Any], where: str = "") -> BaseModel:
    from pydantic import ValidationError

    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise InputError(f"{where}{validation_message(error, model)}") from None


def validation_message(error: ValidationError, model: type[BaseModel]) -> str:
    """Return a message about invalid arguments for their caller, without whole values."""
    return problems_message(error.errors(), argument_names(model))


def problems_message(problems: Iterable[Mapping[str, Any]], names: Names) -> str:
    """Return the message about pydantic's problems with arguments of these names."""
    messages: dict[str, str] = {}
    for problem in problems:
        name, words = str((*problem["loc"], "arguments")[0]), plain_words(problem["msg"])
        if problem["type"] == "extra_forbidden":
            messages[name] = describe_unknown(name, names)
        elif problem["type"] == "missing":
            messages[name] = f"the argument {name} is missing"
        elif name in messages:  # of a union, whose every type reports
            words = words.removeprefix("must be ")
            if words not in messages[name]:
                messages[name] = messages[name].replace(", not ", f" or {words}, not ", 1)
        else:
            colon = "" if words.startswith("must be") else ":"
            messages[name] = f"{name}{colon} {words}, not {_shown(problem['input'])}"
            if name == "reference" and isinstance(problem["input"], list):
                messages[name] += "; multi_get takes several documents"
    return "; ".join(messages.values())


def plain_words(message: str) -> str:
    """Return pydantic's message in the words of ours: ``must be at least 1``."""
    for theirs, ours in _PLAIN.items():
        message = message.replace(theirs, ours)
    return message


def _shown(value: object) -> str:
    try:
        text = value if isinstance(value, str) else repr(value)
    except ValueError:  # of a number with thousands of digits
        return "a number too large to show"
    cut = text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"
    return repr(cut) if isinstance(value, str) else cut


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
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        kwargs, _ = rename_arguments(kwargs, {"dataset": ("dataset_name",)})
        check_names(kwargs, parameter_names(kind))
        return function(*args[: len(own)], kind(*args[len(own) :], **kwargs))

    taken = [*own, *signature(kind, eval_str=True).parameters.values()]
    call.__signature__ = signature(function).replace(parameters=taken)  # type: ignore[attr-defined]
    return call


def rename_arguments(
    arguments: Mapping[str, Any], names: Names
) -> tuple[dict[str, Any], list[str]]:
    """Return the arguments under their own names, and a note on those with another name.

    An unknown name stays. Raises :class:`InputError` if one argument is given under two names.
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


def check_names(given: Iterable[str], names: Names) -> None:
    """Raise :class:`InputError` for an unknown argument name, with the nearest known one."""
    for name in (one for one in given if one not in names):
        raise InputError(describe_unknown(name, names))


def describe_unknown(name: str, names: Names) -> str:
    """Say that no argument has that name, which is the nearest, and list all."""
    hint = f"; did you mean {near}?" if (near := nearest_name(name, names)) else ";"
    return f"there is no argument {_shown(name)}{hint} arguments: {', '.join(names) or 'none'}"


def nearest_name(name: str, names: Names) -> str | None:
    """Return the argument with the most similar name or alias, if one is similar."""
    aliases = {fold_name(alias): own for own, others in names.items() for alias in (own, *others)}
    near = get_close_matches(fold_name(name[:_MAX_SHOWN]), list(aliases), n=1, cutoff=_ALIKE)
    return aliases[near[0]] if near else None


@lru_cache(maxsize=1_000)
def fold_name(name: str) -> str:
    """Return the name without case, hyphens and underscores."""
    return re.sub(r"[\s_-]+", "", name).casefold()
