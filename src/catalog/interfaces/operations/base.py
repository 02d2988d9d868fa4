"""What an operation is: a request that is checked, a function that runs it, an answer as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from catalog.core.errors import InputError
from catalog.core.text import all_storable

if TYPE_CHECKING:
    from catalog.interfaces.operations.engine import LocalEngine


class Call(BaseModel):
    """Arguments of an operation: unknown names and wrong types are refused, nothing is guessed."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class CallResult(Protocol):
    """What an operation found."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that every edge gives."""
        ...


CallT = TypeVar("CallT", bound=Call)
AnswerT = TypeVar("AnswerT", bound=CallResult)


@dataclass(frozen=True, slots=True)
class Operation(Generic[CallT, AnswerT]):
    """One thing to ask. ``shape`` is the model that every ``to_dict()`` of its answers fits."""

    name: str
    call: type[CallT]
    shape: type[BaseModel]
    run: Callable[[LocalEngine, CallT], AnswerT]

    def read(self, arguments: Mapping[str, Any]) -> CallT:
        """The arguments, checked; raises :class:`InputError` naming each that is wrong."""
        try:
            return self.call.model_validate(all_storable(dict(arguments)))
        except ValidationError as error:
            raise InputError(f"{self.name}: {validation_message(error, self.call)}") from error


def validation_message(error: ValidationError, model: type[BaseModel]) -> str:
    """What is wrong with arguments, for whoever gave them; the values are not repeated whole."""
    found = []
    for one in error.errors():
        name = ".".join(str(part) for part in one["loc"]) or "arguments"
        if one["type"] == "extra_forbidden":
            known = ", ".join(model.model_fields) or "none"
            found.append(f"there is no argument {_short(name)}; arguments: {known}")
        elif one["type"] == "missing":
            found.append(f"the argument {name} is missing")
        else:
            found.append(f"{name}: {one['msg']}, not {_short(one['input'])}")
    return "; ".join(dict.fromkeys(found))


def _short(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # of a number with thousands of digits
        text = f"a {type(value).__name__} too large to show"
    return text if len(text) <= 60 else f"{text[:57]}…"
