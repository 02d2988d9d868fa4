"""The commands, assembled; each one's module is imported here but loads its libraries when run."""

from __future__ import annotations

from typing import Annotated

import typer

from catalog import __version__
from catalog.interfaces.cli import (
    ablate,
    cache,
    config,
    documents,
    evaluation,
    golden,
    health,
    index,
    mcp,
    runs,
    search,
    serve,
)
from catalog.interfaces.cli.options import Chosen, HomeOption, PresetOption

app = typer.Typer(
    name="catalog",
    help="Find passages in your own documents, with exact citations.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(index.app, name="index")
app.command("search")(search.search)
app.command("get")(documents.get)
app.command("browse")(documents.browse)
app.command("mcp")(mcp.mcp)
app.command("serve")(serve.serve)
app.command("status")(health.status)
app.command("doctor")(health.doctor)
app.command("config")(config.config)
app.command("ablate")(ablate.ablate)
app.command("compare")(evaluation.compare)
app.command("eval")(evaluation.evaluate)
app.add_typer(golden.app, name="golden")
app.add_typer(runs.app, name="runs")
app.add_typer(cache.app, name="cache")


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
