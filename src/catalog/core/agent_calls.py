"""The agent that a call names, and the merge of its choices with the call's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from catalog.core.agents import Agent, load_agent
from catalog.core.dates import read_bound, seconds_since_epoch
from catalog.core.errors import InputError
from catalog.core.filters import Filter, Op, condition, file_type_filter, name_filter, parse_filters
from catalog.core.params import AskParams, DatasetChoice, GenerateParams, SearchParams

if TYPE_CHECKING:
    from catalog.core.settings import Settings

AgentParams = SearchParams | AskParams | GenerateParams
ParamsT = TypeVar("ParamsT", bound=AgentParams)
_CHOICES = (  # the call's win
    *("top_k", "mode", "sort", "rerank", "expand"),
    *("similarity_threshold", "recency_half_life_days"),
)
_NARROWING = ("docs", "file_type", "name")
DEFAULT = "default"


def read_agent(settings: Settings, name: str | None) -> Agent:
    """Return the agent of that name; by default ``default``, which needs no file.

    Raises :class:`InputError` that lists the agents for an unknown name, and :class:`ConfigError`
    with file and key for an invalid file.
    """
    path = _agent_files(settings).get(name or DEFAULT)
    if path is not None:
        return load_agent(path)
    if (name or DEFAULT) in settings.agents:
        return settings.agents[name or DEFAULT]
    if name in (None, DEFAULT):
        return Agent()
    raise InputError(
        f"there is no agent {name!r} in the settings or in the home's folder agents; "
        f"agents: {', '.join(agent_places(settings))}"
    )


def agent_places(settings: Settings) -> dict[str, Path | None]:
    """Return each agent's name and file, the default agent first.

    The file is ``None`` for an agent in the settings and for the built-in default. A file replaces
    a table of the settings with the same name.
    """
    places = {**dict.fromkeys(settings.agents), **_agent_files(settings)}
    return {DEFAULT: None, **dict(sorted(places.items()))}


def with_agent(params: ParamsT, agent: Agent) -> ParamsT:
    """Return the parameters, with the agent's choices for those that the call leaves open.

    Restrictions add up: both filters apply, the later ``after``, the earlier ``before``, and the
    datasets that both name. Raises :class:`InputError` if that leaves nothing, or if both name
    documents.
    """
    own = agent.retrieval
    hint = getattr(params, "agent_hint", None)
    if not own and not agent.filter_by_tags and hint is None and agent.agent_hint is None:
        return params
    changes = {
        name: own[name]
        for name in (*_CHOICES, *_NARROWING)
        if name in own and getattr(params, name, "") is None
    }
    if "docs" in own and params.docs is not None:
        raise InputError(
            f"the agent {params.agent!r} has its own docs and answers only from these: leave "
            "docs out"
        )
    for name, sign in (("after", 1), ("before", -1)):
        bounds = [one for one in (getattr(params, name), own.get(name)) if one is not None]
        bounds.sort(key=partial(_seconds, name, sign))
        changes[name] = bounds[-1] if bounds else None
    filters = [*_filters(params, own), *_conditions(agent, hint)]
    changes["filters"] = filters or None
    return replace(params, **changes, dataset=_datasets(params.dataset, own.get("dataset")))


def _seconds(name: str, sign: int, bound: str) -> float:
    moment = read_bound(name, bound)
    return 0.0 if moment is None else sign * seconds_since_epoch(moment)


def _filters(params: AgentParams, own: Mapping[str, Any]) -> Iterator[Filter]:
    for filters in (params.filters, own.get("filters")):
        tree = parse_filters(filters)
        if tree is not None:
            yield tree
    if params.file_type is not None and "file_type" in own:
        yield file_type_filter(own["file_type"])
    if params.name is not None and "name" in own:
        yield name_filter(own["name"])


def _conditions(agent: Agent, hint: str | None) -> Iterator[Filter]:
    """Yield the conditions of the call's and the agent's hints, and of the agent's tags."""
    for one in (hint, agent.agent_hint):
        if one is not None:
            yield condition("agent_hint", Op.EQ, one)
    if agent.filter_by_tags:
        yield condition("tag", Op.IN, list(agent.filter_by_tags))


def _datasets(theirs: DatasetChoice, own: DatasetChoice) -> DatasetChoice:
    if theirs is None or own is None:
        return own if theirs is None else theirs
    names = [[one] if isinstance(one, str) else one for one in (theirs, own)]
    both = [name for name in names[0] if name in names[1]]
    if not both:
        raise InputError(f"the agent answers only from {' and '.join(names[1])}")
    return both


def _agent_files(settings: Settings) -> dict[str, Path]:
    folder = settings.answers.agents or settings.home / "agents"
    files = sorted(folder.glob("*.toml"))
    return {path.stem: path for path in files if path.is_file()}
