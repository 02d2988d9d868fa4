"""``catalog models``: the model files on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

import typer
from typer import Argument, Option

from catalog.interfaces.cli.options import JsonOption, Printed, command, settings_for
from catalog.interfaces.cli.output import TerminalProgress, note, print_json, table_lines
from catalog.interfaces.plain_text import safe

if TYPE_CHECKING:
    from catalog.models.inventory import ModelEntry

app = typer.Typer(help="Show where the files of models are, and check them.", no_args_is_help=True)
_HEADINGS = ("", "model", "kind", "runs with", "from", "size", "hashes", "dim")


@app.command("list")
@command
def list_all(context: typer.Context) -> Printed:
    """List the models of the settings and those that packages of this release carry.

    A star marks models that searches and answers use now, a circle models that are switched off.

    Examples:
        catalog models list
        catalog models list --json
    """
    from catalog.models.inventory import list_models

    return _printed(list_models(settings_for(context).settings))


@app.command("check")
@command
def check(
    context: typer.Context,
    name: str | None = Argument(None, help="A model that 'list' shows, or a folder. Default: all."),
) -> Printed:
    """Compare files with their hashes; exit with 1 if one is wrong or missing.

    Missing files count for models that are in use, or named here.

    Examples:
        catalog models check
        catalog models check BAAI/bge-small-en-v1.5
    """
    from catalog.models.inventory import check_model, list_models, named_models

    settings = settings_for(context).settings
    entries = list_models(settings) if name is None else named_models(settings, name)
    with TerminalProgress() as progress:
        progress.start(sum(entry.bytes or 0 for entry in entries), "comparing hashes")
        checked = [
            check_model(entry, partial(progress.advance, label=entry.name)) for entry in entries
        ]
    is_wrong = any(entry.is_failure or (name and entry.problem) for entry in checked)
    return _printed(checked)._replace(code=int(is_wrong))


@app.command("path")
def path(
    context: typer.Context,
    name: str = Argument(help="A model that 'list' shows, or one of the hub."),
    fetch: bool = Option(False, "--fetch", help="Fetch missing files from the model hub."),
    json: JsonOption = False,
) -> None:
    """Print the folder of a model; exit with 1 if it is not here.

    Examples:
        catalog models path BAAI/bge-small-en-v1.5
        catalog models path BAAI/bge-base-en-v1.5 --fetch
    """
    from catalog.core.errors import ModelUnavailableError
    from catalog.models.inventory import find_files
    from catalog.models.model_files import fetch_command

    files = find_files(settings_for(context).settings, name)
    if not files.found:
        if not fetch:
            files.require()
            raise ModelUnavailableError(f"{name} has no files here: {fetch_command(name)}")
        note(f"fetching {name}\n")
        files.fetch(is_patient=True)
    if json:
        shown = {"name": name, "kind": files.kind, "provider": files.provider}
        print_json({**shown, "path": files.folder})
    else:
        print(safe(str(files.folder)))  # a path is not wrapped


def _printed(entries: Sequence[ModelEntry]) -> Printed:
    rows, problems = list[Sequence[str]](), list[str]()
    for entry in entries:
        mark = "*" if entry.is_on else "o" if entry.used else ""
        size = "" if entry.bytes is None else f"{entry.bytes / 1e6:,.1f} MB"
        hashes = entry.hashes if entry.origin not in (None, "elsewhere") else ""
        place, dim = entry.source or entry.origin or "missing", str(entry.dim or "")
        rows.append((mark, entry.name, entry.kind, entry.provider, place, size, hashes, dim))
        if entry.problem:
            problems.append(f"{entry.name}: {entry.problem}")
        elif entry.sha256:
            told = f"no hash is known; the weights have SHA-256 {entry.sha256}"
            problems.append(f"{entry.name}: {told}")
    table = table_lines(_HEADINGS, rows, right=("size", "dim"))
    return Printed([*map(asdict, entries)], [*table, *problems])
