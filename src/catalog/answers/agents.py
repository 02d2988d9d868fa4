"""Agents: who answers, with which model, and from what; each a TOML file, one needs none."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from catalog.core.dates import read_bound, seconds_since_epoch
from catalog.core.errors import ConfigError, InputError
from catalog.core.filter_forms import file_type_filter, name_filter, parse_filters
from catalog.core.filters import Filter, Op, condition
from catalog.core.param_fields import params_model, validation_message
from catalog.core.param_types import ArtifactKind, DatasetChoice
from catalog.core.params import AskParams, GenerateParams, SearchParams
from catalog.core.settings import Profile

if TYPE_CHECKING:
    from catalog.core.settings import Settings

AskT = TypeVar("AskT", bound=AskParams | GenerateParams)
OutputType = Literal["answer"] | ArtifactKind
DEFAULT = "default"
ARTIFACT_TEMPERATURES = (0.2, 0.4)
_CHOICES = ("top_k", "mode", "rerank", "expand")  # the call's win; all other parameters narrow


class Agent(BaseModel):
    """Who answers: the ``persona`` told to the model, its ``profile``, and what is retrieved.

    ``output`` is the only thing that it writes, anything if unset. ``temperature`` (0 to 1, of an
    artifact 0.2 to 0.4) and ``max_tokens`` (16 to 8192) are the model's own, or those of the
    output, if unset. ``agent_hint`` and ``retrieval``, parameters of a search, narrow what a call
    asks for and never widen it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    persona: str = Field("", max_length=8000)
    profile: Profile = "balanced"
    output: OutputType | None = None
    temperature: float | None = Field(None, ge=0.0, le=1.0)
    max_tokens: int | None = Field(None, ge=16, le=8192)
    agent_hint: str | None = None
    retrieval: Mapping[str, Any] = Field(default_factory=dict)

    @field_validator("temperature")
    @classmethod
    def _is_low(cls, temperature: float | None, info: ValidationInfo) -> float | None:
        """Refuse a temperature that artifacts are not written at."""
        least, most = ARTIFACT_TEMPERATURES
        is_artifact = info.data.get("output") not in (None, "answer")
        if is_artifact and temperature is not None and not least <= temperature <= most:
            raise ValueError(f"an artifact is written at {least} to {most}")
        return temperature

    @field_validator("retrieval")
    @classmethod
    def _is_search(cls, retrieval: Mapping[str, Any]) -> Mapping[str, Any]:
        """Refuse what is no parameter of a search that an agent may set."""
        model = params_model(SearchParams, "query", "explain", "strict")
        try:
            checked = model.model_validate(dict(retrieval))
        except ValidationError as error:
            raise ValueError(validation_message(error, model)) from None
        return checked.model_dump(exclude_unset=True)

    def options(self) -> dict[str, Any]:
        """Return what is told to the model's client besides the messages."""
        options = {"temperature": self.temperature, "max_tokens": self.max_tokens}
        return {name: value for name, value in options.items() if value is not None}


def read_agent(settings: Settings, name: str | None) -> Agent:
    """Return the agent of that name, ``default`` if none is given, which needs no file.

    Raises :class:`InputError` for a name without a file, listing those there are, and
    :class:`ConfigError`, naming file and key, for a file that is wrong.
    """
    folder = settings.answers.agents or settings.home / "agents"
    files = {path.stem: path for path in sorted(folder.glob("*.toml")) if path.is_file()}
    path = files.get(name or DEFAULT)
    if path is not None:
        return _load(path)
    if name in (None, DEFAULT):
        return Agent()
    known = ", ".join(dict.fromkeys([DEFAULT, *files]))
    raise InputError(f"there is no agent {name!r} in {folder}; agents: {known}")


def _load(path: Path) -> Agent:
    try:
        return Agent.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(f"cannot read the agent file {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"the agent file {path} is not TOML: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        why = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            why = f"there is no such key; keys: {', '.join(Agent.model_fields)}"
        raise ConfigError(f"the agent file {path}: {key}: {why}") from None


def with_agent(params: AskT, agent: Agent) -> AskT:
    """Return the parameters with the agent's, where a call leaves a choice at its default.

    What narrows adds up: both filters hold, the later ``after``, the earlier ``before``, datasets
    that both name. Raises :class:`InputError` where that leaves nothing, or both name documents.
    """
    own = agent.retrieval
    if not own and params.agent_hint is None and agent.agent_hint is None:
        return params
    defaults = {field.name: field.default for field in fields(AskParams)}
    changes = {
        name: own[name]
        for name in (*_CHOICES, "docs", "file_type", "name")
        if name in own and getattr(params, name) == defaults[name]
    }
    if "docs" in own and params.docs is not None:
        raise InputError(f"the agent {params.agent!r} answers from docs of its own: leave docs out")
    for name, sign in (("after", 1), ("before", -1)):
        bounds = [one for one in (getattr(params, name), own.get(name)) if one is not None]
        bounds.sort(key=partial(_seconds, name, sign))
        changes[name] = bounds[-1] if bounds else None
    filters = [*_filters(params, own), *_hints(params.agent_hint, agent.agent_hint)]
    changes["filters"] = filters or None
    return replace(params, **changes, dataset=_datasets(params.dataset, own.get("dataset")))


def _seconds(name: str, sign: int, bound: str) -> float:
    moment = read_bound(name, bound)
    return 0.0 if moment is None else sign * seconds_since_epoch(moment)


def _filters(params: AskParams | GenerateParams, own: Mapping[str, Any]) -> Iterator[Filter]:
    for filters in (params.filters, own.get("filters")):
        tree = parse_filters(filters)
        if tree is not None:
            yield tree
    if params.file_type is not None and "file_type" in own:
        yield file_type_filter(own["file_type"])
    if params.name is not None and "name" in own:
        yield name_filter(own["name"])


def _hints(*hints: str | None) -> Iterator[Filter]:
    return (condition("agent_hint", Op.EQ, hint) for hint in hints if hint is not None)


def _datasets(theirs: DatasetChoice, own: DatasetChoice) -> DatasetChoice:
    if theirs is None or own is None:
        return own if theirs is None else theirs
    names = [[one] if isinstance(one, str) else one for one in (theirs, own)]
    both = [name for name in names[0] if name in names[1]]
    if not both:
        raise InputError(f"the agent answers from {' and '.join(names[1])} alone")
    return both
