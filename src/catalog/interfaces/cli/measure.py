"""``catalog compare`` and ``eval``: searches and answers measured on labelled queries."""

from __future__ import annotations

import sys
import time
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from catalog.interfaces.cli.options import (
    DatasetOption,
    JsonOption,
    StoreOptions,
    known_name,
    open_library,
    require_folder_of,
    store_options,
)
from catalog.interfaces.cli.output import TerminalProgress, complain, print_json, say

if TYPE_CHECKING:
    from catalog.core.params import AskParams
    from catalog.evaluation.golden import GoldenQuery, GoldenSet
    from catalog.evaluation.metrics import RunScores
    from catalog.evaluation.runs import BackendRun
    from catalog.library.library import Library
    from catalog.store.eval_runs import EvalRun


GATE_FAILED = 3  # exit code when --fail-if holds
BACKENDS = (
    "v1, v2, lexical, vector, v2:setting=value,…, collection[:NAME], module:function or a "
    "TREC run file"
)
_GOLDEN = typer.Option("--golden", help="Labelled queries, JSON Lines.")
_BEIR = typer.Option("--beir", help="A collection in BEIR layout; indexed if needed.")
GoldenOption = Annotated[Path, _GOLDEN]
AnyGoldenOption = Annotated[Path | None, _GOLDEN]
BeirOption = Annotated[Path | None, _BEIR]
SplitOption = Annotated[str, typer.Option(help="Of that collection.")]
TopKOption = Annotated[int, typer.Option("--top-k", "-k", min=1, max=1000, help="How deep.")]
RepeatsOption = Annotated[
    int,
    typer.Option(
        min=0, max=100, help="Number of additional times that each query is asked, for the times."
    ),
]
RunsOption = Annotated[Path | None, typer.Option("--runs", help="Folder for TREC run files.")]
eval_app = typer.Typer(invoke_without_command=True)
_FAILURES_SHOWN = 5


def eval_answers(
    context: typer.Context,
    golden: Annotated[Path, typer.Option("--golden", help="Labelled queries, JSON Lines.")],
    dataset: DatasetOption = None,
    agent: Annotated[str | None, typer.Option(help="Model that answers, as for 'ask'.")] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="openai, ollama, module:function, or none: where the model runs, as for 'ask'."
        ),
    ] = None,
    judge: Annotated[
        str | None, typer.Option(help="Model that checks which nuggets are in the answer.")
    ] = None,
    mode: Annotated[str, typer.Option(help="lexical, vector or hybrid.")] = "hybrid",
    against: Annotated[
        str | None,
        typer.Option(
            help="Compare with another preset, which is asked first, or with a run, by its id."
        ),
    ] = None,
    report: Annotated[Path | None, typer.Option(help="HTML file to write.")] = None,
    json: JsonOption = False,
) -> None:
    """Measure answers: their citations, their support, and abstentions.

    The run is recorded; 'catalog runs diff' compares two.

    Examples:
        catalog eval answers --golden notes.jsonl -d notes
        catalog eval answers --golden notes.jsonl --report answers.html
    """
    from catalog.core.params import MODES, AskParams
    from catalog.evaluation.answer_runs import (
        answer_run_dict,
        answer_run_lines,
        write_answer_report,
    )
    from catalog.evaluation.golden_files import read_golden
    from catalog.evaluation.run_records import diff_runs
    from catalog.evaluation.summary import diff_dict, diff_lines

    known_mode = known_name("--mode", mode, MODES)
    require_folder_of(report)
    params = AskParams("", dataset=dataset, agent=agent, model=model, mode=known_mode)
    queries = read_golden(golden)
    before = None
    if against is not None:
        other = store_options(context)._replace(preset=against)
        before = _earlier(context, against) or _measure(context, queries, params, judge, other)
    run = _measure(context, queries, params, judge)
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
    queries: GoldenSet,
    params: AskParams,
    judge: str | None,
    store: StoreOptions | None = None,
) -> EvalRun:
    from catalog.evaluation.answer_runs import make_job, run_answers
    from catalog.evaluation.golden import find_label_warnings
    from catalog.retrieval.search import Searcher

    with open_library(context, store) as library:
        assert not isinstance(params.dataset, list)
        name = library.chosen_dataset(params.dataset)
        library.require_dataset(name)
        for warning in find_label_warnings(queries, library.database, name):
            complain(warning)
        job = make_job(Searcher(library), queries, name, params, judge)
        with TerminalProgress() as progress:
            return run_answers(job, progress=progress, now=time.time)


def _earlier(context: typer.Context, against: str) -> EvalRun | None:
    """Return the recorded run whose id starts so; ``None`` if it is a preset's name."""
    from catalog.core.settings.loading import find_presets
    from catalog.evaluation.backends import require_run

    if against in find_presets():
        return None
    with open_library(context) as library:
        run = require_run(library.database, against)
    complain(f"against run {run.id}")
    return run


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
            help="Exit with 3 if this is so: 'ndcg@10 worse', 'ndcg@10 not as good within 0.02', "
            "'p95_ms > 50'; may be repeated.",
        ),
    ] = None,
    aa: Annotated[
        bool,
        typer.Option(
            "--aa",
            help="Show how often these gates, or the default ones, would fire without a "
            "difference.",
        ),
    ] = False,
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", help="Another metric to show, such as RR@10; may be repeated."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Compare two searches on labelled queries: which is better?

    Examples:
        catalog compare --golden notes.jsonl --report report.html
        catalog compare --golden notes.jsonl --baseline lexical --fail-if "ndcg@10 worse"
    """
    from catalog.evaluation.comparison import compare_runs, require_known_names
    from catalog.evaluation.gates import (
        count_false_alarms,
        false_alarm_lines,
        gate_dict,
        gate_lines,
        parse_gate,
    )
    from catalog.evaluation.golden import find_label_warnings
    from catalog.evaluation.golden_files import read_golden
    from catalog.evaluation.metrics import SHOWN_METRICS, require_metric
    from catalog.evaluation.report import write_report
    from catalog.evaluation.summary import comparison_dict, comparison_lines

    gates = [parse_gate(text) for text in fail_if or ()]
    metrics = [*SHOWN_METRICS, *map(require_metric, metric or ())]
    require_folder_of(report)
    queries = read_golden(golden)
    with open_library(context) as library:
        job = _Job(library, library.chosen_dataset(dataset), queries, top_k, repeats, runs)
        before, after = job.ask([baseline, candidate])
        for run in (before, after):
            require_known_names(run, queries, job.documents())
        warnings = find_label_warnings(queries, library.database, job.dataset)
        comparison = compare_runs(
            before, after, queries, job.allowed, metrics=metrics, warnings=warnings
        )
        job.record(before, comparison.baseline_scores)
        job.record(after, comparison.candidate_scores)
    if not json:
        say(*comparison_lines(comparison))
    results = [gate.decide(comparison) for gate in gates]
    alarms = count_false_alarms(comparison, gates) if aa else None
    failed_gates = [result.gate.text for result in results if result.failed]
    if json:
        told = {"gates": [gate_dict(one) for one in results], "failed_gates": failed_gates}
        told |= {} if alarms is None else {"aa": alarms}
        print_json(comparison_dict(comparison) | told)
    else:
        say(*gate_lines(results), *(() if alarms is None else false_alarm_lines(alarms)))
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
    each_stage: Annotated[
        bool,
        typer.Option("--each-stage", help="Change one stage of the search at a time, instead."),
    ] = False,
    top_k: TopKOption = 100,
    repeats: RepeatsOption = 1,
    reuse: Annotated[
        bool, typer.Option("--reuse", help="Use a recorded run if nothing has changed since.")
    ] = False,
    runs: RunsOption = None,
    json: JsonOption = False,
) -> None:
    """Measure searches on labelled queries: a table with intervals.

    'eval answers' measures answers.

    Examples:
        catalog eval --golden notes.jsonl --mode hybrid --backend v2:rerank_enabled=true
        catalog eval --golden notes.jsonl --each-stage
    """
    from catalog.evaluation.golden import find_label_warnings
    from catalog.evaluation.golden_files import read_beir, read_golden
    from catalog.evaluation.metrics import score_run
    from catalog.evaluation.summary import table_dict, table_lines

    if context.invoked_subcommand is not None:
        if any(value not in (None, False) for value in (golden, beir, dataset, json)):
            raise typer.BadParameter("give them after 'answers'", param_hint="options of 'answers'")
        return
    if each_stage and (mode or backend):
        raise typer.BadParameter("it names the searches itself", param_hint="--each-stage")
    specs = _specs(mode, backend)
    if (golden is None) == (beir is None):
        raise typer.BadParameter("give either --golden or --beir")
    queries = read_golden(golden) if golden is not None else read_beir(cast(Path, beir), split)
    with open_library(context, make_store=beir is not None) as library:
        if beir is None:
            name = library.chosen_dataset(dataset)
        else:
            _index_collection(library, beir, name := dataset or beir.resolve().name)
        specs = _stage_specs(library) if each_stage else specs
        job = _Job(library, name, queries, top_k, repeats, runs)
        records = job.earlier(specs) if reuse else {}
        missing = [spec for spec in specs if spec not in records]
        for spec, run in zip(missing, job.ask(missing) if missing else (), strict=True):
            records[spec] = job.record(run, score_run(run, queries, job.allowed))
        warnings = find_label_warnings(queries, library.database, name)
    found = [records[spec] for spec in specs]
    if json:
        print_json(table_dict(found, warnings))
    else:
        say(*table_lines(found, warnings))


eval_app.callback()(evaluate)
eval_app.command("answers")(eval_answers)


def _specs(modes: list[str] | None, backends: list[str] | None) -> list[str]:
    """Return the backends to measure, modes first; all modes if nothing is named."""
    from catalog.core.errors import InputError
    from catalog.core.params import MODES

    unknown = [mode for mode in modes or () if mode not in MODES]
    if unknown:
        raise InputError(f"no mode {unknown[0]!r}; modes: {', '.join(MODES)}")
    if not modes and not backends:
        modes = list(MODES)
    specs = ["v2" if mode == "hybrid" else mode for mode in modes or ()]
    return list(dict.fromkeys([*specs, *(backends or ())]))


def _stage_specs(library: Library) -> list[str]:
    """Return the search with one stage changed at a time, and last as it is set."""
    from catalog.core.errors import CatalogError
    from catalog.retrieval.parts import SearchParts

    rag, llm = library.settings.rag_v2, library.settings.llm
    changes = [f"fusion_mode={mode}" for mode in ("rrf", "relative_score")]
    changes += [f"chunk_selection={choice}" for choice in ("fused", "keyword")]
    changes.append(f"router_enabled={not rag.router_enabled}")
    try:
        _ = SearchParts(library).reranker
        changes.append(f"rerank_enabled={not rag.rerank_enabled}")
    except CatalogError as error:
        complain(f"reranking is left out: {error}")
    if llm.provider != "none":
        changes.append(f"expansion_enabled={not rag.expansion_enabled}")
    set_now = {f"fusion_mode={rag.fusion_mode}", f"chunk_selection={rag.chunk_selection}"}
    changed = [f"v2:{one}".lower() for one in changes if one not in set_now]
    return ["lexical", "vector", *changed, "v2"]


def _index_collection(library: Library, folder: Path, dataset: str) -> None:
    from catalog.core.errors import InputError
    from catalog.evaluation.golden_files import CORPUS
    from catalog.library.indexing import Indexer
    from catalog.store.chunks import list_datasets

    corpus = (folder / CORPUS).resolve()
    with library.database.read() as connection:
        roots = {stored.name: stored.root for stored in list_datasets(connection)}
    if roots.get(dataset) and Path(roots[dataset]) != corpus:
        raise InputError(
            f"dataset {dataset!r} was made from {roots[dataset]}: use another --dataset"
        )
    with TerminalProgress() as progress:
        report = Indexer(library).build(corpus, dataset, progress=progress)
    for note in report.notes:
        complain(note)
    for failure in report.failed[:_FAILURES_SHOWN]:
        complain(f"{failure.outcome}: {failure.path}: {failure.reason}")


@dataclass(frozen=True, slots=True)
class _Job:
    """Queries to ask of a dataset, how deep, and how often again; ``folder`` is for TREC files."""

    library: Library
    dataset: str
    queries: GoldenSet
    top_k: int
    repeats: int
    folder: Path | None

    def documents(self) -> list[str]:
        """Return the names of the dataset's documents."""
        from catalog.store.chunks import list_paths

        with self.library.database.read() as connection:
            return list_paths(connection, self.dataset)

    def allowed(self, query: GoldenQuery) -> frozenset[str] | None:
        """Return the documents that a query's filters allow, ``None`` for all."""
        from catalog.evaluation.golden import find_allowed_documents

        return find_allowed_documents(self.library.database, self.dataset, query)

    def ask(self, specs: list[str]) -> list[BackendRun]:
        """Put every query to the backends of these specs; return their runs, in order."""
        from catalog.core.errors import StoreBusyError
        from catalog.evaluation.backends import Backends
        from catalog.evaluation.run_records import corpus_digest
        from catalog.evaluation.runs import run_backends

        database, dataset = self.library.database, self.dataset
        self.library.require_dataset(dataset)
        corpus = corpus_digest(database, dataset)
        with (
            Backends(self.library, dataset, tell=complain) as backends,
            redirect_stdout(sys.stderr),  # output of a search is not our answer
            TerminalProgress() as progress,  # ended first: its bar puts back the stream it found
        ):
            runs = run_backends(
                [backends.load(spec) for spec in specs],
                self.queries,
                dataset=dataset,
                top_k=self.top_k,
                repeats=self.repeats,
                progress=progress,
                allowed=self.allowed,
                documents=self.documents(),
            )
        if corpus_digest(database, dataset) != corpus:
            raise StoreBusyError(
                f"{dataset!r} changed during the measurement: measure again after updates"
            )
        return runs

    def earlier(self, specs: list[str]) -> dict[str, EvalRun]:
        """Return the recorded runs of specs under which nothing has changed since."""
        from catalog.evaluation.backends import Backends
        from catalog.evaluation.run_records import find_recorded_run

        records, database = {}, self.library.database
        with Backends(self.library, self.dataset) as backends:
            for spec in specs:
                identity = backends.load(spec).identity
                if "pipeline" not in identity:  # another's search may change unseen
                    continue
                of = self.queries, self.dataset, self.top_k
                if (record := find_recorded_run(database, identity, *of)) is not None:
                    complain(f"{spec}: reusing run {record.id}")
                    records[spec] = record
        return records

    def record(self, run: BackendRun, scores: RunScores) -> EvalRun:
        """Record a run in the store, and write its TREC file if there is a folder for it."""
        from catalog.evaluation.backends import write_run
        from catalog.evaluation.run_records import record_run

        record = record_run(self.library.database, run, scores, self.queries, now=time.time())
        if self.folder is not None:
            write_run(self.folder, record.backend, record.lists)
        return record
