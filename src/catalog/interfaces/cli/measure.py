"""``catalog compare``, ``eval``, ``ablate`` and ``runs``: searches measured on labelled queries."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from catalog.interfaces.cli.backend_runs import (
    allowed_documents,
    measure_specs,
    open_dataset,
    read_queries,
    record_run_and_file,
    run_specs,
)
from catalog.interfaces.cli.eval_answers import eval_answers
from catalog.interfaces.cli.options import (
    DatasetOption,
    HomeOption,
    JsonOption,
    PresetOption,
    open_library,
    require_folder_of,
)
from catalog.interfaces.cli.output import complain, print_json, say

GATE_FAILED = 3  # exit code when --fail-if holds
BACKENDS = (
    "v1, v2, lexical, vector, v2:setting=value,…, collection[:NAME], module:function "
    "or a TREC run file"
)
_GOLDEN = typer.Option("--golden", help="Labelled queries, JSON Lines.")
_BEIR = typer.Option("--beir", help="A collection in BEIR layout; indexed if needed.")
GoldenOption = Annotated[Path, _GOLDEN]
AnyGoldenOption = Annotated[Path | None, _GOLDEN]
BeirOption = Annotated[Path | None, _BEIR]
SplitOption = Annotated[str, typer.Option(help="Of that collection.")]
TopKOption = Annotated[int, typer.Option("--top-k", "-k", min=1, max=1000, help="How deep.")]
RepeatsOption = Annotated[
    int, typer.Option(min=0, max=100, help="Times each query is asked again for the clock.")
]
RunsOption = Annotated[
    Path | None, typer.Option("--runs", help="Folder to write TREC run files into.")
]


def compare(
    context: typer.Context,
    golden: GoldenOption,
    dataset: DatasetOption = None,
    baseline: Annotated[str, typer.Option(help=f"One of {BACKENDS}.")] = "v1",
    candidate: Annotated[str, typer.Option(help="As --baseline.")] = "v2",
    top_k: TopKOption = 100,
    repeats: RepeatsOption = 2,
    report: Annotated[Path | None, typer.Option(help="HTML file to write.")] = None,
    runs: RunsOption = None,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-if",
            help="Exit with 3 if so: 'ndcg@10 worse', 'ndcg@10 not as good within 0.02', "
            "'p95_ms > 50'; may be repeated.",
        ),
    ] = None,
    aa: Annotated[
        bool,
        typer.Option(
            "--aa", help="Tell how often these gates, or the usual ones, would fire for nothing."
        ),
    ] = False,
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", help="One more to show, as RR@10; may be repeated."),
    ] = None,
    json: JsonOption = False,
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """Compare two searches on labelled queries: which is better?"""
    from catalog.evaluation.comparison import compare_runs
    from catalog.evaluation.false_alarms import (
        count_false_alarms,
        false_alarm_dict,
        false_alarm_lines,
    )
    from catalog.evaluation.gates import gate_dict, gate_lines, parse_gate
    from catalog.evaluation.golden import find_label_warnings
    from catalog.evaluation.golden_files import read_golden
    from catalog.evaluation.metrics import SHOWN_METRICS, require_metric
    from catalog.evaluation.report import write_report
    from catalog.evaluation.summary import comparison_dict, comparison_lines

    gates = [parse_gate(text) for text in fail_if or ()]
    metrics = [*SHOWN_METRICS, *map(require_metric, metric or ())]
    require_folder_of(report)
    queries = read_golden(golden)
    with open_library(context, home, preset) as library:
        name = library.chosen_dataset(dataset)
        pair = run_specs(library, queries, name, [baseline, candidate], top_k, repeats)
        comparison = compare_runs(
            pair[0],
            pair[1],
            queries,
            allowed_documents(library, name),
            metrics=metrics,
            warnings=find_label_warnings(queries, library.database, name),
        )
        all_scores = comparison.baseline_scores, comparison.candidate_scores
        for run, scores in zip(pair, all_scores, strict=True):
            record_run_and_file(library, run, scores, queries, runs)
    if not json:
        say(*comparison_lines(comparison))
    results = [gate.decide(comparison) for gate in gates]
    alarms = count_false_alarms(comparison, gates) if aa else []
    failed_gates = [result.gate.text for result in results if result.failed]
    if json:
        told = {"gates": [gate_dict(one) for one in results], "failed_gates": failed_gates}
        told |= {"aa": false_alarm_dict(comparison, alarms)} if aa else {}
        print_json(comparison_dict(comparison) | told)
    else:
        say(*gate_lines(results), *(false_alarm_lines(comparison, alarms) if aa else ()))
    if report is not None:
        write_report(comparison, report, created=datetime.now(UTC), gates=results)
        if not json:
            say(f"Report: {report}")
    if failed_gates:
        complain(f"failed: {'; '.join(failed_gates)}")
        raise typer.Exit(GATE_FAILED)


def evaluate(
    context: typer.Context,
    golden: AnyGoldenOption = None,
    beir: BeirOption = None,
    split: SplitOption = "test",
    dataset: DatasetOption = None,
    mode: Annotated[
        list[str] | None,
        typer.Option("--mode", help="lexical, vector or hybrid; may be repeated; all by default."),
    ] = None,
    backend: Annotated[
        list[str] | None, typer.Option("--backend", help=f"{BACKENDS}; may be repeated.")
    ] = None,
    top_k: TopKOption = 100,
    repeats: RepeatsOption = 1,
    reuse: Annotated[
        bool, typer.Option("--reuse", help="Take a recorded run if nothing has changed since.")
    ] = False,
    runs: RunsOption = None,
    json: JsonOption = False,
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """Measure searches on labelled queries: a table with intervals.

    'eval answers' measures answers.
    """
    from catalog.evaluation.golden import find_label_warnings
    from catalog.evaluation.summary import table_dict, table_lines

    if context.invoked_subcommand is not None:
        if any(value not in (None, False) for value in (golden, beir, dataset, home, preset, json)):
            raise typer.BadParameter("give them after 'answers'", param_hint="options of 'answers'")
        return
    specs = _specs(mode, backend)
    queries = read_queries(golden, beir, split)
    with open_dataset(context, home, preset, beir, dataset) as (library, name):
        records = measure_specs(library, queries, name, specs, top_k, repeats, runs, reuse=reuse)
        warnings = find_label_warnings(queries, library.database, name)
    if json:
        print_json(table_dict(records, warnings))
    else:
        say(*table_lines(records, warnings))


eval_app = typer.Typer(invoke_without_command=True)
eval_app.callback()(evaluate)
eval_app.command("answers")(eval_answers)


def _specs(modes: list[str] | None, backends: list[str] | None) -> list[str]:
    """Return the backends to measure, modes first; all modes if nothing is named."""
    from catalog.core.errors import UnknownModeError
    from catalog.core.params import MODES

    unknown = [mode for mode in modes or () if mode not in MODES]
    if unknown:
        raise UnknownModeError(f"no mode {unknown[0]!r}; modes: {', '.join(MODES)}")
    if not modes and not backends:
        modes = list(MODES)
    specs = ["v2" if mode == "hybrid" else mode for mode in modes or ()]
    return list(dict.fromkeys([*specs, *(backends or ())]))


def ablate(
    context: typer.Context,
    golden: AnyGoldenOption = None,
    beir: BeirOption = None,
    split: SplitOption = "test",
    dataset: DatasetOption = None,
    top_k: TopKOption = 30,
    repeats: RepeatsOption = 1,
    json: JsonOption = False,
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """Measure what each stage of a search is worth.

    Hybrid search is asked with one stage more, or another one, at a time.
    """
    from catalog.evaluation.ablation import (
        ablation_dict,
        ablation_lines,
        available_variants,
        build_variants,
        score_variants,
    )
    from catalog.evaluation.golden import find_label_warnings

    queries = read_queries(golden, beir, split)
    with open_dataset(context, home, preset, beir, dataset) as (library, name):
        variants, left_out = available_variants(library, build_variants(library.settings))
        for variant, reason in left_out.items():
            complain(f"{variant} is left out: {reason}")
        for warning in find_label_warnings(queries, library.database, name):
            complain(warning)
        specs = list(variants.values())
        runs = run_specs(library, queries, name, specs, top_k, repeats)
        rows = score_variants(list(variants), runs, queries, allowed_documents(library, name))
    if json:
        print_json({"golden": queries.name, "dataset": name} | ablation_dict(rows))
        return
    say(f"{queries.name} on {name}: {len(queries)} queries, {top_k} deep")
    say(*ablation_lines(rows))


runs_app = typer.Typer(help="Show and compare recorded evaluation runs.", no_args_is_help=True)
RunArgument = Annotated[str, typer.Argument(help="A run's id, or how it starts.")]


@runs_app.command("list")
def list_recorded(
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
        say(*run_lines(runs))


@runs_app.command("show")
def show_recorded(
    context: typer.Context,
    run: RunArgument,
    json: JsonOption = False,
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """Show one run: its scores, and exactly what was run."""
    from catalog.evaluation.answer_summary import answer_run_dict, answer_run_lines
    from catalog.evaluation.recorded_backend import require_run
    from catalog.evaluation.summary import run_detail_lines, run_dict

    with open_library(context, home, preset) as library:
        record = require_run(library.database, run)
    if record.answers and json:
        print_json(answer_run_dict(record) | {"identity": record.identity})
    elif record.answers:
        say(*answer_run_lines(record))
    elif json:
        print_json(run_dict(record) | {"identity": record.identity, "scores": record.scores})
    else:
        say(*run_detail_lines(record))


@runs_app.command("diff")
def diff_recorded(
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
        say(*diff_lines(difference))
