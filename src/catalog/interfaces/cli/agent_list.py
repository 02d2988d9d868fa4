"""``catalog agents``: who can search and answer, and as whom."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer

from catalog.interfaces.cli.options import HomeOption, JsonOption, PresetOption, settings_for
from catalog.interfaces.cli.output import print_json, say

if TYPE_CHECKING:
    from catalog.core.settings import Settings


def agents(
    context: typer.Context,
    json: JsonOption = False,
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """List the agents that --agent can name, and what each says."""
    settings = settings_for(context, home, preset).settings
    rows = list(_read_agents(settings))
    if json:
        print_json(rows)
        return
    for row in rows:
        place = row["file"] or ("settings" if row["name"] in settings.agents else "as it comes")
        say(f"{row['name']}  [{place}]", *_agent_lines(row["agent"]))
    if len(rows) == 1:
        say("[agents.NAME] in the settings makes another: see docs/answers.md.")


def _read_agents(settings: Settings) -> Iterator[dict[str, Any]]:
    from catalog.core.agent_calls import agent_places, read_agent

    for name, path in agent_places(settings).items():
        agent = read_agent(settings, name)
        told = agent.model_dump(mode="json", exclude_defaults=True)
        yield {"name": name, "file": None if path is None else str(path), "agent": told}


def _agent_lines(agent: dict[str, Any]) -> Iterator[str]:
    for name, value in agent.items():
        if isinstance(value, dict):
            yield from (f"    {name}.{key} = {inner}" for key, inner in value.items())
        else:
            yield f"    {name} = {value}"
