"""``catalog ablate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from catalog.interfaces.cli.evaluation import (
    RepeatsOption,
    TopKOption,
    allowed_by_filters,
    ask_backends,
    questions,
)
from catalog.interfaces.cli.options import (
    DatasetOption,
    HomeOption,
    JsonOption,
    PresetOption,
    open_workspace,
)
from catalog.interfaces.cli.output import complain, print_json, say


def ablate(
    context: typer.Context,
    golden: Annotated[
        Path | None, typer.Option("--golden", help="Labelled queries, JSON Lines.")
    ] = None,
    beir: Annotated[
        Path | None, typer.Option("--beir", help="A collection in BEIR layout; indexed if needed.")
    ] = None,
    split: Annotated[str, typer.Option(help="Of that collection.")] = "test",
    dataset: DatasetOption = None,
    top_k: TopKOption = 30,
    repeats: RepeatsOption = 1,
    json: JsonOption = False,
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """Measure what each stage is worth: hybrid search with one stage more or other at a time."""
    from catalog.evaluation.ablation import (
        ablation,
        ablation_dict,
        ablation_lines,
        possible,
        variants,
    )

    with open_workspace(context, home, preset) as workspace:
        queries, name = questions(workspace, golden, beir, split, dataset)
        chosen, left_out = possible(workspace, variants(workspace.settings))
        for variant, why in left_out.items():
            complain(f"{variant} is left out: {why}")
        specs = [one.spec for one in chosen]
        runs = ask_backends(workspace, queries, name, specs, top_k, repeats)
        rows = ablation(chosen, runs, queries, allowed_by_filters(workspace, name))
    if json:
        print_json({"golden": queries.name, "dataset": name} | ablation_dict(rows))
        return
    say(f"{queries.name} on {name}: {len(queries)} queries, {top_k} deep")
    for line in ablation_lines(rows):
        say(line)
