"""What an agent's tool is: arguments in a schema, an answer in words and as data, never a raise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from catalog.core.errors import CatalogError
from catalog.interfaces.tools.cleaning import one_line, without_long_echoes
from catalog.interfaces.tools.forgiving import coerce_arguments
from catalog.interfaces.tools.schemas import quick_schema

if TYPE_CHECKING:
    from catalog.interfaces.operations import Engine

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
        return quick_schema(self.data.model_json_schema(mode="serialization"))

    def call(self, engine: Engine, arguments: Mapping[str, Any]) -> ToolResult:
        """The answer; what our own errors say comes as an answer whose status is ``error``.

        An optional argument that is null or blank counts as not given, and ``5.0`` as the whole
        number 5.
        """
        try:
            given, notes = coerce_arguments(self.arguments, self.arguments.CLAMPED, arguments)
            checked = self.arguments.model_validate(given)
        except ValidationError as error:
            from catalog.interfaces.operations.base import validation_message

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
