"""Agents: named configurations for searches and answers; none is required.

An agent is a table ``[agents.NAME]`` of the settings, or a file ``NAME.toml`` in a folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from catalog.core.arguments import fold_name, params_model, validation_message
from catalog.core.dates import read_bound
from catalog.core.errors import ConfigError, InputError
from catalog.core.files import read_toml
from catalog.core.filters import Op, condition, file_type_filter, name_filter, parse_filters
from catalog.core.params import ArtifactKind, AskParams, GenerateParams, Profile, SearchParams

Settings = Any  # those of core.settings, which import agents from here
ParamsT = TypeVar("ParamsT", bound=SearchParams | AskParams | GenerateParams)
OutputType = Literal["answer"] | ArtifactKind
ARTIFACT_TEMPERATURES = (0.2, 0.4)
DEFAULT = "default"
_NOT_OF_AGENTS = ("query", "agent", "role", "explain", "strict", "all_copies")
_CHOICES = (  # the call's win
    *("top_k", "mode", "sort", "rerank", "expand", "similarity_threshold"),
    *("recency_half_life_days", "docs", "file_type", "name"),
)


class Agent(BaseModel):
    """An agent that answers: the ``persona`` for the model, its ``profile``, and how it searches.

    ``output`` is the only thing that it writes, anything if unset. ``retrieval`` are parameters of
    a search; ``agent_hint`` and ``filter_by_tags`` (documents with any of them) narrow it further.
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
        least, most = ARTIFACT_TEMPERATURES
        is_artifact = info.data.get("output") not in (None, "answer")
        if is_artifact and temperature is not None and not least <= temperature <= most:
            raise ValueError(f"the temperature of an artifact is {least} to {most}")
        return temperature

    @field_validator("retrieval")
    @classmethod
    def _is_search(cls, retrieval: Mapping[str, Any]) -> Mapping[str, Any]:
        model = params_model(SearchParams, *_NOT_OF_AGENTS)
        try:
            values = model.model_validate(dict(retrieval)).model_dump(exclude_unset=True)
            parse_filters(values.get("filters"))
        except ValidationError as error:
            raise ValueError(validation_message(error, model)) from None
        except InputError as error:
            raise ValueError(f"filters: {error}") from None
        return values

    def options(self) -> dict[str, Any]:
        """Return the options to pass to the model's client with the messages."""
        return self.model_dump(include={"temperature", "max_tokens"}, exclude_none=True)


def check_agent_tables(tree: Mapping[str, Any], path: Path) -> None:
    """Raise :class:`ConfigError` for an agent of a settings file that is wrong, naming its key."""
    agents = tree.get("agents", {})
    if not isinstance(agents, Mapping):
        raise ConfigError(f"{path}: agents must be a section: write a table [agents.NAME] for each")
    for name, values in agents.items():
        _validate(values, f"the agent {name!r} in {path}")


def _validate(values: object, where: str) -> Agent:
    try:
        return Agent.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        why = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            key = str(first["loc"][-1])
            searching = map(fold_name, params_model(SearchParams, "query").model_fields)
            known = f"keys: {', '.join(Agent.model_fields)}"
            belongs = f"{key} belongs under [retrieval]" if fold_name(key) in searching else known
            why = f"unknown key; {belongs}"
        keys = ".".join(map(str, first["loc"])) or "it"
        raise ConfigError(f"{where}: {keys}: {why}") from None


def read_agent(settings: Settings, name: str | None) -> Agent:
    """Return the agent named, or ``default``; raise :class:`InputError` or :class:`ConfigError`."""
    name = name or DEFAULT
    if path := _agent_files(settings).get(name):
        return _validate(read_toml(path, "agent file"), f"the agent file {path}")
    if name in settings.agents or name == DEFAULT:
        return _validate(settings.agents.get(name, {}), f"the agent {name!r}")
    raise InputError(
        f"there is no agent {name!r} in the settings or in the home's folder agents; "
        f"agents: {', '.join(agent_places(settings))}"
    )


def agent_places(settings: Settings) -> dict[str, Path | None]:
    """Return each agent's name and file, ``None`` of one in the settings; the default is first."""
    places = {**dict.fromkeys(settings.agents), **_agent_files(settings)}
    return {DEFAULT: None, **dict(sorted(places.items()))}


def _agent_files(settings: Settings) -> dict[str, Path]:
    folder = settings.answers.agents or settings.home / "agents"
    return {path.stem: path for path in sorted(folder.glob("*.toml")) if path.is_file()}


def with_agent(params: ParamsT, agent: Agent) -> ParamsT:
    """Return the parameters, with the agent's choices for those that the call leaves open.

    Restrictions add up: both filters apply, the later ``after``, the earlier ``before``, and the
    datasets that both name.
    """
    own = agent.retrieval
    hints = [one for one in (getattr(params, "agent_hint", None), agent.agent_hint) if one]
    if not own and not agent.filter_by_tags and not hints:
        return params
    if "docs" in own and params.docs is not None:
        raise InputError(
            f"the agent {params.agent!r} has its own docs and answers only from these: leave "
            "docs out"
        )
    changes = {
        name: own[name] for name in _CHOICES if name in own and getattr(params, name, "") is None
    }
    for name, strictest in (("after", -1), ("before", 0)):
        bounds = [one for one in (getattr(params, name), own.get(name)) if one is not None]
        dated = sorted((str(read_bound(name, bound)), bound) for bound in bounds)
        changes[name] = dated[strictest][1] if dated else None
    filters = [parse_filters(params.filters), parse_filters(own.get("filters"))]
    if params.file_type is not None and "file_type" in own:
        filters.append(file_type_filter(own["file_type"]))
    if params.name is not None and "name" in own:
        filters.append(name_filter(own["name"]))
    filters += [condition("agent_hint", Op.EQ, hint) for hint in hints]
    if agent.filter_by_tags:
        filters.append(condition("tag", Op.IN, list(agent.filter_by_tags)))
    changes["filters"] = list(filter(None, filters)) or None
    theirs, its = params.dataset, own.get("dataset")
    if theirs is not None and its is not None:
        names = [[one] if isinstance(one, str) else one for one in (theirs, its)]
        theirs = [name for name in names[0] if name in names[1]]
        if not theirs:
            raise InputError(f"the agent answers only from {' and '.join(names[1])}")
    return replace(params, **changes, dataset=its if theirs is None else theirs)
