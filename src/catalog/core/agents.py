"""Agents: named configurations for searches and answers; none is required.

An agent is a table ``[agents.NAME]`` of the settings, or a file ``NAME.toml`` in a folder.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from catalog.core.errors import ConfigError, InputError
from catalog.core.filters import parse_filters
from catalog.core.params import (
    ArtifactKind,
    Profile,
    SearchParams,
    fold_name,
    params_model,
    validation_message,
)

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


OutputType = Literal["answer"] | ArtifactKind
ARTIFACT_TEMPERATURES = (0.2, 0.4)


class _RetrievalError(ValueError):
    """``retrieval`` is invalid: the message gives the reason, ``key`` names the entry."""

    def __init__(self, message: str, key: str) -> None:
        super().__init__(message)
        self.key = key


class Agent(BaseModel):
    """An agent that answers: the ``persona`` for the model, its ``profile``, and how it searches.

    ``output`` is the only thing that it writes, anything if unset. ``temperature`` (0 to 1, of an
    artifact 0.2 to 0.4) and ``max_tokens`` (16 to 8192) are the model's own, or those of the
    output, if unset. ``retrieval`` are parameters of a search; ``agent_hint`` and
    ``filter_by_tags`` (documents with any of them) narrow it further, and never widen a call.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    persona: str = Field("", max_length=8000)
    profile: Profile = "balanced"
    output: OutputType | None = None
    temperature: float | None = Field(None, ge=0.0, le=1.0)
    max_tokens: int | None = Field(None, ge=16, le=8192)
    agent_hint: str | None = None
    filter_by_tags: tuple[str, ...] = Field((), max_length=50, strict=False)
    retrieval: Mapping[str, Any] = Field(default_factory=dict)

    @field_validator("temperature")
    @classmethod
    def _is_low(cls, temperature: float | None, info: ValidationInfo) -> float | None:
        """Refuse a temperature that artifacts are not written at."""
        least, most = ARTIFACT_TEMPERATURES
        is_artifact = info.data.get("output") not in (None, "answer")
        if is_artifact and temperature is not None and not least <= temperature <= most:
            raise ValueError(f"the temperature of an artifact is {least} to {most}")
        return temperature

    @field_validator("retrieval")
    @classmethod
    def _is_search(cls, retrieval: Mapping[str, Any]) -> Mapping[str, Any]:
        """Refuse search parameters that an agent may not set, and malformed filters."""

        own = ("query", "agent", "role", "explain", "strict", "all_copies")
        model = params_model(SearchParams, *own)
        try:
            checked = model.model_validate(dict(retrieval))
        except ValidationError as error:
            key = str(error.errors()[0]["loc"][0])
            raise _RetrievalError(validation_message(error, model), key) from None
        values = checked.model_dump(exclude_unset=True)
        try:
            parse_filters(values.get("filters"))
        except InputError as error:
            raise _RetrievalError(f"filters: {error}", "filters") from None
        return values

    def options(self) -> dict[str, Any]:
        """Return the options to pass to the model's client with the messages."""
        options = {"temperature": self.temperature, "max_tokens": self.max_tokens}
        return {name: value for name, value in options.items() if value is not None}


def check_agent_tables(tree: Mapping[str, Any], path: Path) -> None:
    """Raise :class:`ConfigError` for an agent of a settings file that is wrong, naming its key."""
    agents = tree.get("agents", {})
    if not isinstance(agents, Mapping):
        raise ConfigError(f"{path}: agents must be a section: write a table [agents.NAME] for each")
    for name, values in agents.items():
        _validate(values, path, name)


def load_agent(path: Path) -> Agent:
    """Return the agent of a file; raise :class:`ConfigError`, naming file and key."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"cannot read the agent file {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"the agent file {path} is not TOML: {error}") from error
    return _validate(values, path)


def _validate(values: object, path: Path, name: str | None = None) -> Agent:
    """Return the agent of a file, or of a table of settings; an error names file and key."""
    try:
        return Agent.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        keys = (*map(str, first["loc"]), *_inner_key(first))
        why = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            why = f"unknown key; {_known_keys(keys[-1])}"
        where = f"the agent file {path}" if name is None else f"the agent {name!r} in {path}"
        raise ConfigError(f"{where}: {'.'.join(keys) or 'it'}: {why}") from None


def _inner_key(problem: ErrorDetails) -> tuple[str, ...]:
    cause = problem.get("ctx", {}).get("error")
    return (cause.key,) if isinstance(cause, _RetrievalError) else ()


def _known_keys(name: str) -> str:
    """Return the keys that an agent has, or the table to which the intended key belongs."""
    searching = {fold_name(key) for key in params_model(SearchParams, "query").model_fields}
    if fold_name(name) in searching:
        return f"{name} belongs under [retrieval]"
    return f"keys: {', '.join(Agent.model_fields)}"
