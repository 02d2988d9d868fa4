"""``catalog compare`` and ``eval``: searches and answers measured on labelled queries."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer import Option

from catalog.core.params import MODES, Mode
from catalog.interfaces.cli.options import (
    DatasetOption,
    Printed,
    command,
    open_library,
    reading_options,
    require_folder_of,
)
from catalog.interfaces.cli.output import NO_RUN, TerminalProgress, complain

if TYPE_CHECKING:
    from catalog.evaluation.comparison import PipelineComparison, SystemsComparison
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
_GOLDEN = Option("--golden", help="Labelled queries, JSON Lines.")
TopKOption = Annotated[int, Option("--top-k", "-k", min=1, max=1000, help="How deep.")]
RepeatsOption = Annotated[
    int,
    Option(
        min=0, max=100, help="Number of additional times that each query is asked, for the times."
    ),
]
RunsOption = Annotated[Path | None, Option("--runs", help="Folder for TREC run files.")]
eval_app = typer.Typer(invoke_without_command=True)


@eval_app.command("answers")
@command
def eval_answers(
    context: typer.Context,
    golden: Annotated[Path, _GOLDEN],
    dataset: DatasetOption = None,
    agent: str | None = Option(None, help="Model that answers, as for 'ask'."),
    model: str | None = Option(
        None, help="openai, ollama, module:function, or none: where the model runs, as for 'ask'."
    ),
    judge: str | None = Option(None, help="Model that checks which nuggets are in the answer."),
    mode: Mode = Option("hybrid", help="lexical, vector or hybrid."),
    report: Path | None = Option(None, help="HTML file to write."),
) -> Printed:
    """Measure answers: their citations, their support, and abstentions.

    The run is recorded; 'catalog runs diff' compares two.

    Examples:
        catalog eval answers --golden notes.jsonl -d notes
        catalog eval answers --golden notes.jsonl --report answers.html
    """
    from catalog.core.params import AskParams
    from catalog.evaluation import answer_runs
    from catalog.evaluation.golden import find_label_warnings
    from catalog.evaluation.golden_files import read_golden
    from catalog.retrieval.search import Searcher

    require_folder_of(report)
    queries = read_golden(golden)
    with open_library(context) as library:
        name = library.chosen_dataset(dataset)
        for warning in find_label_warnings(queries, library.database, name):
            complain(warning)
        params = AskParams("", dataset=dataset, agent=agent, model=model, mode=mode)
        job = answer_runs.make_job(Searcher(library), queries, name, params, judge)
        with TerminalProgress() as progress:
            run = answer_runs.run_answers(job, progress=progress, now=time.time)
    if report is not None:
        answer_runs.write_answer_report(run, queries, report)
    return Printed(answer_runs.answer_run_dict(run), answer_runs.answer_run_lines(run))


@command
def compare(
    context: typer.Context,
    golden: Annotated[Path, _GOLDEN],
    dataset: DatasetOption = None,
    baseline: str = Option("v1", help=f"One of {BACKENDS}."),
    candidate: list[str] = Option(["v2"], help="As --baseline; may be repeated."),
    top_k: TopKOption = 100,
    repeats: RepeatsOption = 2,
    report: Path | None = Option(None, help="HTML file to write."),
    runs: RunsOption = None,
    fail_if: list[str] | None = Option(
        None,
        "--fail-if",
        help="Exit with 3 if this is so: 'ndcg@10 worse', 'ndcg@10 not as good within 0.02', "
        "'p95_ms > 50'; may be repeated.",
    ),
    aa: bool = Option(
        False,
        "--aa",
        help="Show how often these gates, or the default ones, would fire without a difference.",
    ),
    metric: list[str] | None = Option(
        None, "--metric", help="Another metric to show, such as RR@10; may be repeated."
    ),
) -> Iterator[Printed]:
    """Compare two searches on labelled queries, or more: which is better?

    Of several candidates each pair is tested; gates compare each candidate with the baseline.

    Examples:
        catalog compare --golden notes.jsonl --baseline lexical --fail-if "ndcg@10 worse"
        catalog compare --golden notes.jsonl --candidate v2 --candidate vector
    """
    from catalog.core.errors import BackendError
    from catalog.evaluation import gates, summary
    from catalog.evaluation.golden_files import read_golden
    from catalog.evaluation.metrics import require_metric
    from catalog.evaluation.report import write_report, write_systems_report

    with reading_options():
        wanted = [gates.parse_gate(text) for text in fail_if or ()]
        more = [*map(require_metric, metric or ())]
    require_folder_of(report)
    queries = read_golden(golden)
    several: tuple[PipelineComparison, ...]
    with open_library(context) as library:
        name = library.chosen_dataset(dataset)
        job = Measurement(library, name, queries, top_k, repeats, runs)
        with reading_options(BackendError), redirect_stdout(sys.stderr):  # no output of searches
            if len(candidate) == 1:
                systems, several = None, (job.compare(baseline, candidate[0], *more),)
                told = summary.comparison_dict(several[0])
                lines = [*summary.comparison_lines(several[0])]
            else:
                systems = job.compare_all([baseline, *candidate], *more)
                told, several = summary.systems_dict(systems), systems.comparisons
                lines = [*summary.systems_lines(systems)]
    told |= {"gates": [], "failed_gates": []}
    now, results = datetime.now(UTC), []
    for one in several:
        name, results = one.candidate.name, [gate.decide(one) for gate in wanted]
        of = {} if systems is None else {"candidate": name}
        prefix = "" if systems is None else f"{name}: "
        told["gates"] += [gates.gate_dict(result) | of for result in results]
        failed = [f"{prefix}{result.gate.text}" for result in results if result.failed]
        told["failed_gates"] += failed
        lines += (f"{prefix if line else ''}{line}" for line in gates.gate_lines(results))
        if aa:
            alarms = gates.count_false_alarms(one, wanted)
            told["aa"] = alarms if systems is None else [*told.get("aa", ()), alarms | of]
            lines += (f"{prefix if line else ''}{line}" for line in gates.false_alarm_lines(alarms))
    if report is not None:
        if systems is None:
            write_report(several[0], report, created=now, gates=results)
        else:
            write_systems_report(systems, report, created=now)
        lines.append(f"Report: {report}")
    yield Printed(told, lines)
    failed = told["failed_gates"]
    if failed:
        complain(f"failed: {'; '.join(failed)}")
        raise typer.Exit(GATE_FAILED)


@eval_app.callback()
@command
def evaluate(
    context: typer.Context,
    golden: Annotated[Path | None, _GOLDEN] = None,
    dataset: DatasetOption = None,
    mode: list[str] | None = Option(
        None, "--mode", help="lexical, vector or hybrid; may be repeated; all by default."
    ),
    backend: list[str] | None = Option(None, "--backend", help=f"{BACKENDS}; may be repeated."),
    each_stage: bool = Option(
        False, "--each-stage", help="Change one stage of the search at a time, instead."
    ),
    top_k: TopKOption = 100,
    repeats: RepeatsOption = 1,
    reuse: bool = Option(False, "--reuse", help="Use a recorded run if nothing has changed since."),
    runs: RunsOption = None,
) -> Iterator[Printed]:
    """Measure searches on labelled queries: a table with intervals.

    'eval answers' measures answers.

    Examples:
        catalog eval --golden notes.jsonl --mode hybrid --backend v2:rerank_enabled=true
        catalog eval --golden notes.jsonl --each-stage
    """
    from catalog.evaluation.golden import find_label_warnings
    from catalog.evaluation.golden_files import read_golden
    from catalog.evaluation.metrics import score_run
    from catalog.evaluation.summary import table_dict, table_lines

    if context.invoked_subcommand is not None:
        if any(context.params[name] for name in ("golden", "dataset", "json")):
            raise typer.BadParameter("give them after 'answers'", param_hint="options of 'answers'")
        return
    if each_stage and (mode or backend):
        raise typer.BadParameter("it names the searches itself", param_hint="--each-stage")
    specs = _specs(mode, backend)
    if golden is None:
        raise typer.BadParameter("give labelled queries", param_hint="--golden")
    queries = read_golden(golden)
    with open_library(context) as library:
        name = library.chosen_dataset(dataset)
        specs = _stage_specs(library) if each_stage else specs
        job = Measurement(library, name, queries, top_k, repeats, runs)
        records = job.earlier(specs) if reuse else {}
        missing = [spec for spec in specs if spec not in records]
        with redirect_stdout(sys.stderr):
            done = job.ask(missing) if missing else ()
        for spec, run in zip(missing, done, strict=True):
            records[spec] = job.record(run, score_run(run, job.with_words(), job.allowed))
        warnings = find_label_warnings(queries, library.database, name)
    found = [records[spec] for spec in specs]
    yield Printed(table_dict(found, warnings), table_lines(found, warnings))


def _specs(modes: list[str] | None, backends: list[str] | None) -> list[str]:
    """Return the backends to measure, modes first; all modes if nothing is named."""
    for mode in {*(modes or ())}.difference(MODES):
        raise typer.BadParameter(f"{mode!r}; one of {', '.join(MODES)}", param_hint="--mode")
    named = modes or (() if backends else MODES)
    specs = ["v2" if mode == "hybrid" else mode for mode in named]
    return list(dict.fromkeys([*specs, *(backends or ())]))


def _stage_specs(library: Library) -> list[str]:
    """Return the search with one stage changed at a time, and last as it is set."""
    from catalog.core.errors import CatalogError
    from catalog.retrieval.parts import SearchParts

    rag, llm = library.settings.rag_v2, library.settings.llm
    choices = {"fusion_mode": ("rrf", "relative_score"), "chunk_selection": ("fused", "keyword")}
    changes = [
        f"{name}={value}"
        for name, values in choices.items()
        for value in values
        if value != getattr(rag, name)
    ]
    switches = ["router_enabled", "expansion_enabled"][: 1 + (llm.provider != "none")]
    try:
        _ = SearchParts(library).reranker
        switches.insert(1, "rerank_enabled")
    except CatalogError as error:
        complain(f"reranking is left out: {error}")
    changes += [f"{name}={not getattr(rag, name)}" for name in switches]
    return ["lexical", "vector", *(f"v2:{change}".lower() for change in changes), "v2"]


class Measurement(NamedTuple):
    """Queries to ask of a dataset, how deep, and how often again; ``folder`` is for TREC files."""

    library: Library
    dataset: str
    queries: GoldenSet
    top_k: int
    repeats: int
    folder: Path | None = None
    is_shown: bool = True

    def documents(self) -> tuple[list[str], list[str]]:
        """Return the names of the dataset's documents, and what may stand before one."""
        from catalog.library.names import Names

        with self.library.database.read() as connection:
            names = Names(connection, self.dataset)
            return [*names.paths], names.folders

    def allowed(self, query: GoldenQuery) -> frozenset[str] | None:
        """Return the documents that a query's filters allow, ``None`` for all."""
        from catalog.evaluation.golden import find_allowed_documents

        return find_allowed_documents(self.library.database, self.dataset, query)

    def with_words(self) -> GoldenSet:
        """Return the queries with the words of spans that name lines or characters."""
        from catalog.evaluation import golden

        return golden.with_words(self.queries, self.library.database, self.dataset)

    def compare(self, baseline: Any, candidate: Any, *more: str) -> PipelineComparison:
        """Ask both backends, test the differences, also in ``more`` metrics; record both runs."""
        from catalog.evaluation.comparison import compare_runs

        (before, after), how = self._asked_for_comparison([baseline, candidate], more)
        compared = compare_runs(before, after, self.with_words(), self.allowed, **how)
        self.record(before, compared.baseline_scores)
        self.record(after, compared.candidate_scores)
        return compared

    def compare_all(self, specs: Sequence[Any], *more: str) -> SystemsComparison:
        """Do the same with three or more backends, the baseline first."""
        from catalog.evaluation.comparison import compare_systems

        runs, how = self._asked_for_comparison(specs, more)
        compared = compare_systems(runs, self.with_words(), self.allowed, **how)
        for run in runs:
            self.record(run, compared.scores[run.name])
        return compared

    def _asked_for_comparison(
        self, specs: Sequence[Any], more: Sequence[str]
    ) -> tuple[list[BackendRun], dict[str, Any]]:
        """Return the runs of these backends, and which metrics and warnings go with them."""
        from catalog.evaluation import comparison, golden, metrics

        runs, queries = self.ask(specs), self.queries
        for run in runs:
            comparison.require_known_names(run, queries, self.documents()[0])
        warnings = golden.find_label_warnings(queries, self.library.database, self.dataset)
        return runs, {"metrics": (*metrics.SHOWN_METRICS, *more), "warnings": warnings}

    def ask(self, specs: Sequence[Any], other: Library | None = None) -> list[BackendRun]:
        """Put every query to the backends of these specs; return their runs, in order.

        The last spec is one of the ``other`` library, if there is one.
        """
        from catalog.core.errors import StoreBusyError
        from catalog.evaluation.backends import Backends
        from catalog.evaluation.run_records import corpus_digest
        from catalog.evaluation.runs import run_backends

        database, dataset = self.library.database, self.dataset
        self.library.require_dataset(dataset)
        corpus = corpus_digest(database, dataset)
        documents, folders = self.documents()
        shown = TerminalProgress(NO_RUN) if self.is_shown else nullcontext()
        tell = complain if self.is_shown else logging.getLogger(__name__).info
        second = Backends(other or self.library, dataset, tell=tell)
        with Backends(self.library, dataset, tell=tell) as backends, second, shown as progress:
            *most, last = specs
            runs = run_backends(
                [*map(backends.load, most), (second if other else backends).load(last)],
                self.queries,
                dataset=dataset,
                top_k=self.top_k,
                repeats=self.repeats,
                progress=progress,
                allowed=self.allowed,
                documents=documents,
                folders=folders,
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

        records, of = {}, (self.queries, self.dataset, self.top_k)
        with Backends(self.library, self.dataset) as backends:
            for spec in specs:
                identity = backends.load(spec).identity
                if "pipeline" not in identity:  # another's search may change unseen
                    continue
                if (record := find_recorded_run(self.library.database, identity, *of)) is not None:
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
