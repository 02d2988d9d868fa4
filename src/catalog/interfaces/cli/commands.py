"""All commands: the options before them, and the group that imports each when it is used."""

from __future__ import annotations

from collections import UserDict
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from catalog import __version__
from catalog.interfaces.cli.options import HomeOption, PresetOption, StoreOptions

COMMANDS = {
    "index": "index:app",
    "search": "verbs:search",
    "ask": "verbs:ask",
    "generate": "verbs:generate",
    "agents": "verbs:agents",
    "get": "verbs:get",
    "browse": "verbs:browse",
    "mcp": "serve:mcp",
    "serve": "serve:serve",
    "status": "verbs:status",
    "export": "maintenance:export",
    "import": "maintenance:import_",
    "doctor": "maintenance:doctor",
    "backup": "maintenance:backup",
    "restore": "maintenance:restore",
    "models": "models:app",
    "migrate-store": "maintenance:migrate_store",
    "config": "maintenance:config",
    "ablate": "measure:ablate",
    "compare": "measure:compare",
    "eval": "measure:eval_app",
    "golden": "golden_sets:app",
    "validate": "golden_sets:validate",
    "runs": "measure:runs_app",
    "collection": "collection_commands:app",
    "cache": "maintenance:cache",
    "logs": "logs:app",
}
"""By name, in the order of the help: the module in this package and what in it."""


class Commands(TyperGroup):
    """Hold all commands."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _LazyCommands(COMMANDS)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names, without importing a command."""
        del ctx
        return list(COMMANDS)


class _LazyCommands(UserDict[str, Any]):
    """Map names to commands; each is imported at its first use."""

    def __getitem__(self, name: str) -> Any:
        command = self.data[name]
        if isinstance(command, str):
            command = self.data[name] = _import_command(name, command)
        return command


def _import_command(name: str, place: str) -> Any:
    """Return the command, made by a group of its own as if all were registered there."""
    module, _, attribute = place.partition(":")
    target = getattr(import_module(f"catalog.interfaces.cli.{module}"), attribute)
    group = typer.Typer(add_completion=False, rich_markup_mode=None)
    group.callback()(lambda: None)  # else a single command is no group
    if isinstance(target, typer.Typer):
        group.add_typer(target, name=name)
    else:
        group.command(name)(target)
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


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"catalog {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    context: typer.Context,
    home: HomeOption = None,
    preset: PresetOption = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Find passages in your own documents, with exact citations."""
    del version
    context.obj = StoreOptions(home, preset)
