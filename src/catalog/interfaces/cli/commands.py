"""All commands: the options before them, and the group that imports each when it is used."""

from __future__ import annotations

from collections import UserDict
from importlib import import_module
from typing import Any

import typer
from typer import Option
from typer.core import TyperCommand, TyperGroup

from catalog import __version__
from catalog.interfaces.cli.help import HelpContext, dress, explain_misuse
from catalog.interfaces.cli.options import add_store_options

GROUPS = {
    "Everyday": {
        "index": "index:app",
        "search": "verbs:search",
        "ask": "verbs:ask",
        "get": "verbs:get",
        "browse": "verbs:browse",
        "generate": "verbs:generate",
        "status": "verbs:status",
    },
    "Agents and servers": {
        "mcp": "serve:mcp",
        "serve": "serve:serve",
        "agents": "verbs:agents",
        "collection": "collection_commands:app",
        "logs": "logs:app",
    },
    "Measure": {
        "compare": "measure:compare",
        "eval": "measure:eval_app",
        "golden": "golden:app",
        "judge": "golden:judge_app",
        "validate": "golden:validate",
        "runs": "logs:runs_app",
    },
    "Maintain": {
        "doctor": "maintenance:doctor",
        "config": "maintenance:config",
        "models": "models:app",
        "cache": "maintenance:cache",
        "export": "maintenance:export",
        "import": "maintenance:import_",
        "backup": "maintenance:backup",
        "restore": "maintenance:restore",
    },
}
"""In the order of the help, by group and name: the module in this package and what in it."""
COMMANDS = {name: place for group in GROUPS.values() for name, place in group.items()}
_START = (
    "catalog index build FOLDER --dataset notes",
    'catalog search "how to rotate keys"',
    'catalog ask "How often are keys rotated?"',
)


class Commands(TyperGroup):
    """Hold all commands."""

    context_class = HelpContext

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _LazyCommands(COMMANDS)
        add_store_options(self)
        self.parse_args = explain_misuse(self, self.parse_args)  # type: ignore[method-assign]

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names, without importing a command."""
        del ctx
        return list(COMMANDS)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write how to start, the commands by group, and the options before them."""
        with formatter.section("Start"):
            formatter.write_commands(_START)
        for title, group in GROUPS.items():
            with formatter.section(title):
                rows = [(name, self.commands[name].short_help or "") for name in group]
                formatter.write_dl(rows)
        TyperCommand.format_options(self, ctx, formatter)  # type: ignore[arg-type]


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
    command = typer.main.get_group(group).commands[name]
    dress(command)
    return command


app = typer.Typer(
    name="catalog",
    cls=Commands,
    help="Find passages in your own documents, with exact citations.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"catalog {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: bool = Option(
        False,
        "--version",
        callback=_print_version,
        is_eager=True,
        help="Show the version and exit.",
    ),
) -> None:
    """Find passages in your own documents, with exact citations."""
    del version
