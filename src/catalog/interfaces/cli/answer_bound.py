"""``catalog golden bound``: at most how many sentences of answers are unsupported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from catalog.interfaces.cli.options import DatasetOption, HomeOption, PresetOption, open_library
from catalog.interfaces.cli.output import say

if TYPE_CHECKING:
    from catalog.answers.risk import RiskBound
    from catalog.store.eval_runs import EvalRun


def make_bound(
    context: typer.Context,
    sentences: Annotated[
        Path | None,
        typer.Argument(help="Labelled sentences, as 'eval answers --sentences' wrote them."),
    ] = None,
    at_most: Annotated[
        float, typer.Option(help="Share of the sentences shown that may be unsupported.")
    ] = 0.05,
    confidence: Annotated[
        float, typer.Option(help="Share of all calibrations that are to keep it.")
    ] = 0.95,
    on_average: Annotated[
        bool,
        typer.Option("--on-average", help="Of all sentences, shown or not, on average."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Keep nothing.")] = False,
    undo: Annotated[
        bool, typer.Option("--undo", help="Forget the dataset's bound; needs no sentences.")
    ] = False,
    dataset: DatasetOption = None,
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """Find the score from which on sentences of answers may be shown, and keep it.

    'ask' marks or drops those below, until the model, the index or a setting is another.
    """
    from catalog.answers.risk import save_bound
    from catalog.evaluation.backends import require_run
    from catalog.evaluation.golden_files import read_rows
    from catalog.evaluation.sentence_labels import SentenceLabel, bound_from_labels

    if (sentences is None) != undo:
        raise typer.BadParameter("give the labelled sentences, or --undo", param_hint="SENTENCES")
    with open_library(context, home, preset) as library:
        if sentences is None:
            name = library.chosen_dataset(dataset)
            save_bound(library.database, name, None)
            say(f"no bound holds for the answers of {name}")
            return
        rows = read_rows(sentences, SentenceLabel, "sentence")
        run = require_run(library.database, rows[0].run)
        bound = bound_from_labels(
            rows, run, most=at_most, confidence=None if on_average else confidence
        )
        if not dry_run:
            save_bound(library.database, run.dataset, bound)
    say(*_bound_lines(bound, run, is_kept=not dry_run))


def _bound_lines(bound: RiskBound, run: EvalRun, *, is_kept: bool) -> Iterator[str]:
    from catalog.evaluation.sentence_labels import share_answered

    before, still = share_answered(run, bound.threshold)
    yield bound.describe()
    yield f"of the {run.queries} questions of {run.golden}, {still:.0%} still get an answer"
    yield f"  ({before:.0%} without it), by {run.backend} on {run.dataset}"
    yield "'catalog golden bound --undo' takes it back" if is_kept else "kept nothing"
