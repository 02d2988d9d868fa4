"""``catalog eval answers``: what ``ask`` answers, measured on labelled questions."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from catalog.interfaces.cli.options import (
    DatasetOption,
    HomeOption,
    JsonOption,
    PresetOption,
    known_name,
    open_library,
    require_folder_of,
)
from catalog.interfaces.cli.output import TerminalProgress, complain, print_json, say

if TYPE_CHECKING:
    from catalog.core.params import AskParams
    from catalog.evaluation.golden import GoldenSet
    from catalog.store.eval_runs import EvalRun


def eval_answers(
    context: typer.Context,
    golden: Annotated[Path, typer.Option("--golden", help="Labelled queries, JSON Lines.")],
    dataset: DatasetOption = None,
    agent: Annotated[str | None, typer.Option(help="Who answers, as for 'ask'.")] = None,
    model: Annotated[
        str | None,
        typer.Option(help="openai, llama_cpp, module:function, or none: who writes, as for 'ask'."),
    ] = None,
    judge: Annotated[
        str | None, typer.Option(help="A model, as --model, that says which nuggets are there.")
    ] = None,
    mode: Annotated[str, typer.Option(help="lexical, vector or hybrid.")] = "hybrid",
    sentences: Annotated[
        Path | None,
        typer.Option(help="File to write, of the sentences to label for 'golden bound'."),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(help="A preset to ask with first, and to compare with; or a run's id."),
    ] = None,
    report: Annotated[Path | None, typer.Option(help="HTML file to write.")] = None,
    json: JsonOption = False,
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """Measure answers: what they cite, what supports them, and when there is none.

    The run is recorded, as those of searches are: 'catalog runs diff' compares two.
    """
    from catalog.core.errors import InputError
    from catalog.core.params import MODES, AskParams
    from catalog.evaluation.answer_report import write_answer_report
    from catalog.evaluation.answer_summary import answer_run_dict, answer_run_lines
    from catalog.evaluation.golden_files import read_golden
    from catalog.evaluation.run_records import diff_runs
    from catalog.evaluation.summary import diff_dict, diff_lines

    known_mode = known_name("--mode", mode, MODES)
    if sentences is not None and sentences.exists():
        raise InputError(f"{sentences} is there, and may hold labels: name another file")
    require_folder_of(report)
    require_folder_of(sentences)
    params = AskParams("", dataset=dataset, agent=agent, model=model, mode=known_mode)
    queries = read_golden(golden)
    before = None
    if against is not None:
        before = _earlier(context, home, against) or _measure(
            context, home, against, queries, params, judge
        )
    run = _measure(context, home, preset, queries, params, judge)
    if sentences is not None:
        count = _write_sentences(sentences, run, queries)
        complain(
            f"{sentences}: {count} sentences; fill in 'supported', then 'catalog golden bound'"
        )
    if report is not None:
        write_answer_report(run, queries, report)
    difference = None if before is None else diff_runs(before, run)
    if json:
        told = {} if difference is None else {"against": diff_dict(difference)}
        print_json(answer_run_dict(run) | told)
        return
    say(*answer_run_lines(run))
    if difference is not None:
        say("", *diff_lines(difference))


def _measure(
    context: typer.Context,
    home: Path | None,
    preset: str | None,
    queries: GoldenSet,
    params: AskParams,
    judge: str | None,
) -> EvalRun:
    from catalog.evaluation.answer_runs import make_job, run_answers
    from catalog.evaluation.golden import find_label_warnings
    from catalog.retrieval.searcher import Searcher

    with open_library(context, home, preset) as library:
        assert not isinstance(params.dataset, list)
        name = library.chosen_dataset(params.dataset)
        library.require_dataset(name)
        for warning in find_label_warnings(queries, library.database, name):
            complain(warning)
        job = make_job(Searcher(library), queries, name, params, judge)
        with TerminalProgress() as progress:
            return run_answers(job, progress=progress, now=time.time)


def _write_sentences(path: Path, run: EvalRun, queries: GoldenSet) -> int:
    """Write the sentences that are shown as supported, and return how many there are."""
    from catalog.core.errors import InputError
    from catalog.evaluation.sentence_labels import sentences_to_label, write_sentences

    if run.identity["bound"] is not None:
        raise InputError(
            f"run {run.id} was held to a bound, so its sentences cannot make another: "
            "'catalog golden bound --undo' first"
        )
    rows = sentences_to_label(run, queries)
    write_sentences(path, rows)
    return len(rows)


def _earlier(context: typer.Context, home: Path | None, against: str) -> EvalRun | None:
    """Return the recorded run whose id starts so; ``None`` if it is a preset's name."""
    from catalog.core.settings import find_presets
    from catalog.evaluation.recorded_backend import require_run

    if against in find_presets():
        return None
    with open_library(context, home, None) as library:
        run = require_run(library.database, against)
    complain(f"against run {run.id}")
    return run
