"""``catalog get``."""

from __future__ import annotations

from typing import Annotated

import typer

from catalog.interfaces.cli.options import (
    DatasetOption,
    HomeOption,
    JsonOption,
    PresetOption,
    open_workspace,
)
from catalog.interfaces.cli.output import print_json, say


def get(
    context: typer.Context,
    reference: Annotated[
        str,
        typer.Argument(help="dataset:path, path or #docid; :12-20 after it picks lines."),
    ],
    dataset: DatasetOption = None,
    numbers: Annotated[
        bool, typer.Option("--line-numbers", "-n", help="Number the lines.")
    ] = False,
    json: JsonOption = False,
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """Print a document, or a range of its lines, as it was indexed."""
    from catalog.search_v2.references import find_document

    with open_workspace(context, home, preset) as workspace:
        found = find_document(workspace.database, reference, dataset=dataset)
    if json:
        print_json(found.to_dict())
        return
    for number, line in enumerate(found.lines, start=found.line_start):
        say(f"{number:6}  {line}" if numbers else line)
