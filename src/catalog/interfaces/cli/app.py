"""The command line: what stands before a command, and the group that makes them."""

from __future__ import annotations

from typing import Annotated

import typer

from catalog import __version__
from catalog.interfaces.cli.lazy import Commands
from catalog.interfaces.cli.options import Chosen, HomeOption, PresetOption

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
