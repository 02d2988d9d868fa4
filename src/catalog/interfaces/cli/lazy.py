"""Commands that are made when they are called: to run one, the others need not be imported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

COMMANDS = {
    "index": "index:app",
    "search": "search:search",
    "get": "documents:get",
    "browse": "documents:browse",
    "mcp": "mcp:mcp",
    "serve": "serve:serve",
    "status": "health:status",
    "doctor": "health:doctor",
    "config": "config:config",
    "ablate": "ablate:ablate",
    "compare": "evaluation:compare",
    "eval": "evaluation:evaluate",
    "golden": "golden:app",
    "runs": "runs:app",
    "cache": "cache:app",
}
"""By name, in the order of the help: the module in this package and what in it."""


class Commands(TyperGroup):
    """The group of all commands."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Made(COMMANDS)

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names, none of them made."""
        del ctx
        return list(COMMANDS)


class _Made(MutableMapping[str, Any]):
    """Commands by name, each made at its first use."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = dict(places)
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = _command(name, self._places[name])
        return self._made[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._places[name] = ""
        self._made[name] = command

    def __delitem__(self, name: str) -> None:
        del self._places[name]
        self._made.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def _command(name: str, place: str) -> Any:
    """Made by a group of its own, so that it is as if all were registered there."""
    module, _, attribute = place.partition(":")
    found = getattr(import_module(f"catalog.interfaces.cli.{module}"), attribute)
    group = typer.Typer(add_completion=False, rich_markup_mode=None)
    group.callback()(lambda: None)  # else a single command is no group
    if isinstance(found, typer.Typer):
        group.add_typer(found, name=name)
    else:
        group.command(name)(found)
    return typer.main.get_group(group).commands[name]
