"""The command line: what stands before a command, and the group that makes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from catalog import __version__
from catalog.interfaces.cli.options import Chosen, HomeOption, PresetOption

COMMANDS = {
    "index": "index:app",
    "search": "verbs:search",
    "get": "verbs:get",
    "browse": "verbs:browse",
    "mcp": "serve:mcp",
    "serve": "serve:serve",
    "status": "state:status",
    "doctor": "state:doctor",
    "config": "state:config",
    "ablate": "evaluation:ablate",
    "compare": "evaluation:compare",
    "eval": "evaluation:evaluate",
    "golden": "golden_commands:app",
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


app = typer.Typer(
    name="catalog",
    cls=Commands,
    help="Find passages in your own documents, with exact citations.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"catalog {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    context: typer.Context,
    home: HomeOption = None,
    preset: PresetOption = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Find passages in your own documents, with exact citations."""
    del version
    context.obj = Chosen(home, preset)
