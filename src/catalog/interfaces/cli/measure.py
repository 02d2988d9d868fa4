"""``catalog compare``, ``eval`` and ``ablate``."""

from __future__ import annotations

import sys
import time
from contextlib import redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from catalog.interfaces.cli.options import (
    DatasetOption,
    HomeOption,
    JsonOption,
    PresetOption,
    open_library,
)
from catalog.interfaces.cli.output import complain, print_json, say

if TYPE_CHECKING:
    from catalog.evaluation.golden import GoldenSet
    from catalog.evaluation.metrics import Allowed, RunScores
    from catalog.evaluation.runs import BackendRun
    from catalog.library.library import Library
    from catalog.store.eval_runs import EvalRun


GATE_FAILED = 3  # exit code when --fail-if holds
GoldenOption = Annotated[Path, typer.Option("--golden", help="Labelled queries, JSON Lines.")]
TopKOption = Annotated[int, typer.Option("--top-k", "-k", min=1, max=1000, help="How deep.")]
RepeatsOption = Annotated[
    int, typer.Option(min=0, max=100, help="Times each query is asked again for the clock.")
]
RunsOption = Annotated[
    Path | None, typer.Option("--runs", help="Folder to write TREC run files into.")
]
BACKENDS = "v1, v2, lexical, vector, v2:setting=value,…, module:function or a TREC run file"


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
            help="Exit with 3 if so, as 'ndcg@10 < -0.01': candidate minus baseline.",
        ),
    ] = None,
    json: JsonOption = False,
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """Put labelled queries to two searches: which is better, how surely, where, at what cost."""
    from catalog.core.errors import InputError
    from catalog.evaluation.comparison import compare_runs
    from catalog.evaluation.gates import parse_gate
    from catalog.evaluation.golden_files import read_golden
    from catalog.evaluation.report import write_report
    from catalog.evaluation.summary import comparison_dict, comparison_lines

    gates = [parse_gate(text) for text in fail_if or ()]
    if report is not None and (report.is_dir() or not report.absolute().parent.is_dir()):
        raise InputError(f"cannot write the report {report}: its folder is not there, or it is one")
    queries = read_golden(golden)
    with open_library(context, home, preset) as library:
        name = library.chosen_dataset(dataset)
        asked = ask_backends(library, queries, name, [baseline, candidate], top_k, repeats)
        compared = compare_runs(asked[0], asked[1], queries, allowed_by_filters(library, name))
        for run, scores in zip(
            asked, (compared.baseline_scores, compared.candidate_scores), strict=True
        ):
            _keep(library, run, scores, queries, runs)
    if not json:
        for line in comparison_lines(compared):
            say(line)
    tripped = [gate.text for gate in gates if gate.trips(compared)]
    if json:
        print_json(comparison_dict(compared) | {"failed_gates": tripped})
    if report is not None:
        write_report(compared, report, created=datetime.now(UTC))
        if not json:
            say(f"Report: {report}")
    if tripped:
        complain(f"failed: {'; '.join(tripped)}")
        raise typer.Exit(GATE_FAILED)


def evaluate(
    context: typer.Context,
    golden: Annotated[
        Path | None, typer.Option("--golden", help="Labelled queries, JSON Lines.")
    ] = None,
    beir: Annotated[
        Path | None, typer.Option("--beir", help="A collection in BEIR layout; indexed if needed.")
    ] = None,
    split: Annotated[str, typer.Option(help="Of that collection.")] = "test",
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
    """Measure searches on labelled queries: a table with intervals."""
    from catalog.evaluation.summary import table_dict, table_lines

    specs = _specs(mode, backend)
    with open_library(context, home, preset) as library:
        queries, name = questions(library, golden, beir, split, dataset)
        records = _measured(library, queries, name, specs, top_k, repeats, runs, reuse=reuse)
    if json:
        print_json(table_dict(records))
    else:
        for line in table_lines(records):
            say(line)


def questions(
    library: Library,
    golden: Path | None,
    beir: Path | None,
    split: str,
    dataset: str | None,
) -> tuple[GoldenSet, str]:
    """The labelled queries of a file or a collection, and the dataset they are asked of."""
    from catalog.evaluation.golden_files import read_beir, read_golden

    if (golden is None) == (beir is None):
        raise typer.BadParameter("give either --golden or --beir")
    if golden is not None:
        return read_golden(golden), library.chosen_dataset(dataset)
    assert beir is not None
    queries = read_beir(beir, split)
    name = dataset or beir.resolve().name
    _index(library, beir, name)
    return queries, name


def _specs(modes: list[str] | None, backends: list[str] | None) -> list[str]:
    from catalog.core.errors import UnknownModeError
    from catalog.core.params import MODES

    unknown = [mode for mode in modes or () if mode not in MODES]
    if unknown:
        raise UnknownModeError(f"no mode {unknown[0]!r}; modes: {', '.join(MODES)}")
    chosen = modes if modes else ([] if backends else list(MODES))
    named = ["v2" if mode == "hybrid" else mode for mode in chosen]
    return list(dict.fromkeys([*named, *(backends or ())]))


def ask_backends(
    library: Library,
    queries: GoldenSet,
    dataset: str,
    specs: list[str],
    top_k: int,
    repeats: int,
) -> list[BackendRun]:
    """What the backends of these specs answer to every query, in order."""
    from catalog.core.errors import StoreBusyError
    from catalog.evaluation.backends import Backends
    from catalog.evaluation.run_records import corpus_digest
    from catalog.evaluation.runs import run_backends
    from catalog.interfaces.cli.output import TerminalProgress

    library.require_dataset(dataset)
    corpus = corpus_digest(library.database, dataset)
    with (
        Backends(library) as backends,
        TerminalProgress() as progress,
        redirect_stdout(sys.stderr),  # what a search prints is not our answer
    ):
        runs = run_backends(
            [backends.load(spec) for spec in specs],
            queries,
            dataset=dataset,
            top_k=top_k,
            repeats=repeats,
            progress=progress,
        )
    if corpus_digest(library.database, dataset) != corpus:
        raise StoreBusyError(f"{dataset!r} changed while it was asked: measure again after updates")
    return runs


def _measured(
    library: Library,
    queries: GoldenSet,
    dataset: str,
    specs: list[str],
    top_k: int,
    repeats: int,
    folder: Path | None,
    *,
    reuse: bool,
) -> list[EvalRun]:
    """A record of each, in order; those that may be reused are not asked again."""
    from catalog.evaluation.backends import Backends
    from catalog.evaluation.metrics import score_run
    from catalog.evaluation.run_records import find_recorded_run

    found: dict[str, EvalRun] = {}
    if reuse:
        with Backends(library) as backends:
            for spec in specs:
                identity = backends.load(spec).identity
                if "pipeline" not in identity:  # another's search may change unseen
                    continue
                earlier = find_recorded_run(library.database, identity, queries, dataset, top_k)
                if earlier is not None:
                    complain(f"{spec}: reusing run {earlier.id}")
                    found[spec] = earlier
    missing = [spec for spec in specs if spec not in found]
    asked = ask_backends(library, queries, dataset, missing, top_k, repeats) if missing else []
    for spec, run in zip(missing, asked, strict=True):
        scores = score_run(run, queries, allowed_by_filters(library, dataset))
        found[spec] = _keep(library, run, scores, queries, folder)
    return [found[spec] for spec in specs]


def _keep(
    library: Library,
    run: BackendRun,
    scores: RunScores,
    queries: GoldenSet,
    folder: Path | None,
) -> EvalRun:
    """Record a run, and write its TREC file if there is a folder for it."""
    from catalog.evaluation.recorded_backend import write_run
    from catalog.evaluation.run_records import record_run

    record = record_run(library.database, run, scores, queries, now=time.time())
    if folder is not None:
        write_run(folder, record.backend, record.lists)
    return record


def allowed_by_filters(library: Library, dataset: str) -> Allowed:
    """Which documents a query's filters allow."""
    from functools import partial

    from catalog.evaluation.golden import find_allowed_documents

    return partial(find_allowed_documents, library.database, dataset)


def _index(library: Library, folder: Path, dataset: str) -> None:
    from catalog.core.errors import InputError
    from catalog.evaluation.golden_files import CORPUS
    from catalog.interfaces.cli.output import TerminalProgress
    from catalog.library.indexing import Indexer
    from catalog.store.chunks import list_datasets

    corpus = (folder / CORPUS).resolve()
    with library.database.read() as connection:
        known = {one.name: one.root for one in list_datasets(connection)}
    if known.get(dataset) and Path(known[dataset]) != corpus:
        raise InputError(f"dataset {dataset!r} is of {known[dataset]}: give another --dataset")
    with TerminalProgress() as progress:
        done = Indexer(library).build(corpus, dataset, progress=progress)
    for failure in done.failed[:5]:
        complain(f"not indexed: {failure.path}: {failure.reason}")


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
        ablation_dict,
        ablation_lines,
        available_variants,
        build_variants,
        score_variants,
    )

    with open_library(context, home, preset) as library:
        queries, name = questions(library, golden, beir, split, dataset)
        chosen, left_out = available_variants(library, build_variants(library.settings))
        for variant, why in left_out.items():
            complain(f"{variant} is left out: {why}")
        specs = list(chosen.values())
        runs = ask_backends(library, queries, name, specs, top_k, repeats)
        rows = score_variants(list(chosen), runs, queries, allowed_by_filters(library, name))
    if json:
        print_json({"golden": queries.name, "dataset": name} | ablation_dict(rows))
        return
    say(f"{queries.name} on {name}: {len(queries)} queries, {top_k} deep")
    for line in ablation_lines(rows):
        say(line)
