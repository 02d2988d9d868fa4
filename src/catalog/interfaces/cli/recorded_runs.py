"""``catalog runs``: list, show, diff."""

from __future__ import annotations

from typing import Annotated

import typer

from catalog.interfaces.cli.options import HomeOption, JsonOption, PresetOption, open_library
from catalog.interfaces.cli.output import print_json, say

app = typer.Typer(help="Recorded evaluation runs.", no_args_is_help=True)
RunArgument = Annotated[str, typer.Argument(help="A run's id, or how it starts.")]


@app.command("list")
def list_(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many, newest first.")] = 20,
    json: JsonOption = False,
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """List the recorded runs, newest first."""
    from catalog.evaluation.summary import run_dict, run_lines
    from catalog.store.eval_runs import list_runs

    with (
        open_library(context, home, preset) as library,
        library.database.read() as connection,
    ):
        runs = list_runs(connection, limit)
    if json:
        print_json([run_dict(run) for run in runs])
    else:
        for line in run_lines(runs):
            say(line)


@app.command("show")
def show(
    context: typer.Context,
    run: RunArgument,
    json: JsonOption = False,
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """Show one run: its scores, and exactly what was run."""
    from catalog.evaluation.recorded_backend import require_run
    from catalog.evaluation.summary import run_detail_lines, run_dict

    with open_library(context, home, preset) as library:
        record = require_run(library.database, run)
    if json:
        print_json(run_dict(record) | {"identity": record.identity, "scores": record.scores})
    else:
        for line in run_detail_lines(record):
            say(line)


@app.command("diff")
def diff(
    context: typer.Context,
    before: RunArgument,
    after: RunArgument,
    json: JsonOption = False,
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """Show what changed from one run to another: settings, and metrics with their tests."""
    from catalog.evaluation.recorded_backend import require_run
    from catalog.evaluation.run_records import diff_runs
    from catalog.evaluation.summary import diff_dict, diff_lines

    with open_library(context, home, preset) as library:
        difference = diff_runs(
            require_run(library.database, before), require_run(library.database, after)
        )
    if json:
        print_json(diff_dict(difference))
    else:
        for line in diff_lines(difference):
            say(line)
