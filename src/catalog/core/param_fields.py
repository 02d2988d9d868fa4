"""What edges make of a verb's parameters: fields, a pydantic model, checks, call signatures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache, wraps
from inspect import Parameter, signature
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    ParamSpec,
    TypeVar,
    cast,
    get_args,
    get_type_hints,
)

from catalog.core.errors import InputError
from catalog.core.params import Param, Params
from catalog.core.text import all_storable

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

P = ParamSpec("P")
ParamsT = TypeVar("ParamsT", bound=Params)
SelfT = TypeVar("SelfT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class ParamField:
    """Hold one parameter of a verb: its name, type, default, description and place."""

    name: str
    type: Any
    default: Any
    param: Param
    is_positional: bool

    @property
    def is_required(self) -> bool:
        """Tell whether it has no default."""
        return self.default is MISSING


@cache
def param_fields(kind: type[Any]) -> tuple[ParamField, ...]:
    """Return the parameters of a verb in order, those that only Python takes included."""
    hints = get_type_hints(kind, include_extras=True)
    parameters = []
    for field in fields(kind):
        plain, *notes = get_args(hints[field.name])
        param = next(note for note in notes if isinstance(note, Param))
        parameters.append(ParamField(field.name, plain, field.default, param, not field.kw_only))
    return tuple(parameters)


def edge_fields(kind: type[Any]) -> tuple[ParamField, ...]:
    """Return the parameters that the edges outside Python take, with the types they take."""
    return tuple(
        replace(field, type=field.param.json or field.type)
        for field in param_fields(kind)  # type: ignore[arg-type]  # a class is hashable
        if not field.param.python_only
    )


@cache
def params_model(kind: type[Any]) -> type[BaseModel]:
    """Return the pydantic model of a verb's parameters as JSON: strict, unknown names refused."""
    from pydantic import BaseModel, ConfigDict, create_model

    base = type("_Strict", (BaseModel,), {"model_config": ConfigDict(extra="forbid", strict=True)})
    summary = (kind.__doc__ or "").partition("\n")[0]
    definitions: Any = {
        field.name: (field.type, _model_field(field)) for field in edge_fields(kind)
    }
    return create_model(kind.__name__, __base__=base, __doc__=summary, **definitions)


def _model_field(field: ParamField) -> Any:
    from pydantic import Field

    param, needs_items = field.param, field.is_required and field.type == list[str]
    return Field(
        ... if field.is_required else [] if field.default == () else field.default,
        description=f"{param.help} {param.json_help}".rstrip(),
        ge=param.least,
        le=param.most,
        min_length=1 if needs_items else None,
        max_length=param.max_items,
    )


def read_params(kind: type[ParamsT], arguments: Mapping[str, Any], verb: str) -> ParamsT:
    """Return the parameters that JSON arguments make; text that cannot be stored is replaced.

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


def check_bounds(params: Params) -> None:
    """Raise :class:`InputError` for a whole number that is none or out of its bounds."""
    for field in param_fields(type(params)):  # type: ignore[arg-type]
        value, param = getattr(params, field.name), field.param
        if param.least is None or (value is None and field.default is None):
            continue
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if not is_whole or value < param.least or (param.most is not None and value > param.most):
            bounds = f"from {param.least}" + ("" if param.most is None else f" to {param.most}")
            raise InputError(f"{field.name} must be a whole number {bounds}, not {value!r}")


def takes(
    kind: Callable[P, ParamsT],
) -> Callable[[Callable[[ParamsT], ResultT]], Callable[P, ResultT]]:
    """Let a function of one params object be called with the parameters themselves."""

    def decorate(function: Callable[[ParamsT], ResultT]) -> Callable[P, ResultT]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> ResultT:
            return function(kind(*args, **kwargs))

        result = signature(function).return_annotation
        call.__signature__ = signature(kind).replace(return_annotation=result)  # type: ignore[attr-defined]
        return call

    return decorate


def takes_self(
    kind: Callable[P, ParamsT],
) -> Callable[[Callable[[SelfT, ParamsT], ResultT]], Callable[Concatenate[SelfT, P], ResultT]]:
    """Let a method of one params object be called with the parameters themselves."""

    def decorate(
        method: Callable[[SelfT, ParamsT], ResultT],
    ) -> Callable[Concatenate[SelfT, P], ResultT]:
        @wraps(method)
        def call(self: SelfT, *args: P.args, **kwargs: P.kwargs) -> ResultT:
            return method(self, kind(*args, **kwargs))

        own = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
        parameters = [own, *signature(kind).parameters.values()]
        result = signature(method).return_annotation
        call.__signature__ = signature(kind).replace(  # type: ignore[attr-defined]
            parameters=parameters, return_annotation=result
        )
        return cast(Callable[Concatenate[SelfT, P], ResultT], call)

    return decorate


def validation_message(error: ValidationError, model: type[BaseModel]) -> str:
    """Say what is wrong with arguments, for whoever gave them; values are not repeated whole."""
    messages = []
    for problem in error.errors():
        name = ".".join(str(part) for part in problem["loc"]) or "arguments"
        if problem["type"] == "extra_forbidden":
            known = ", ".join(model.model_fields) or "none"
            messages.append(f"there is no argument {_shorten(name)}; arguments: {known}")
        elif problem["type"] == "missing":
            messages.append(f"the argument {name} is missing")
        else:
            messages.append(f"{name}: {problem['msg']}, not {_shorten(problem['input'])}")
    return "; ".join(dict.fromkeys(messages))


def _shorten(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # of a number with thousands of digits
        text = f"a {type(value).__name__} too large to show"
    return text if len(text) <= 60 else f"{text[:57]}…"
