"""``catalog compare``, ``eval``, ``why``, ``tune``, ``replay``: searches on labelled queries."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from catalog.core.errors import BackendError, BlindComparisonError
from catalog.core.params import MODES, Mode
from catalog.interfaces.cli.logs import SinceOption, moment_of
from catalog.interfaces.cli.options import (
    DatasetOption,
    Printed,
    StoreOptions,
    command,
    open_library,
    reading_options,
    require_folder_of,
    settings_for,
)
from catalog.interfaces.cli.output import NO_RUN, RESUMABLE, TerminalProgress, complain

if TYPE_CHECKING:
    from catalog.evaluation.comparison import PipelineComparison
    from catalog.library.library import Library

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
_OF_SHARES = ("baseline", "candidate_dataset", "candidate_filter")
_OF_SEARCH = ("mode", "filters", "rerank", "threshold")
_UNUSED = {  # options of 'why' that the others leave without an effect
    "document": ("candidate", *_OF_SHARES),
    "pipeline": ("candidate", *_OF_SHARES, *_OF_SEARCH, "text"),
    "golden": (*_OF_SHARES, "text", "pipeline"),
    "shares": (*_OF_SEARCH, "top_k", "text", "pipeline"),
}
_NOTHING_KEPT = "nothing was written or changed: the same command begins again"


@contextmanager
def searching(
    context: typer.Context, kept: str = NO_RUN
) -> Iterator[tuple[Library, TerminalProgress]]:
    """Open the library, and keep what searches print out of the output.

    ``kept`` is said after Ctrl-C.
    """
    with (
        open_library(context) as library,
        TerminalProgress(kept) as progress,
        reading_options(BackendError),
        redirect_stdout(sys.stderr),
    ):
        yield library, progress


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
    from catalog.evaluation.golden import find_label_warnings, with_own_names
    from catalog.evaluation.golden_files import read_golden, write_whole
    from catalog.retrieval.search import Searcher

    require_folder_of(report)
    queries = read_golden(golden)
    with searching(context, RESUMABLE) as (library, progress):
        name = library.chosen_dataset(dataset)
        queries = with_own_names(queries, library.database, name)
        for warning in find_label_warnings(queries, library.database, name):
            complain(warning)
        params = AskParams("", dataset=dataset, agent=agent, model=model, mode=mode)
        job = answer_runs.make_job(Searcher(library), queries, name, params, judge)
        run = answer_runs.run_answers(job, progress=progress, now=time.time)
    if report is not None:
        write_whole(report, answer_runs.render_answers(run, queries))
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
    from catalog.evaluation import gates, summary
    from catalog.evaluation.golden_files import read_golden, write_whole
    from catalog.evaluation.measurement import Measurement
    from catalog.evaluation.metrics import require_metric
    from catalog.evaluation.report import render_report, render_systems

    with reading_options():
        wanted = [gates.parse_gate(text) for text in fail_if or ()]
        more = [*map(require_metric, metric or ())]
    require_folder_of(report)
    queries = read_golden(golden)
    several: tuple[PipelineComparison, ...]
    with searching(context) as (library, progress):
        of = (library, library.chosen_dataset(dataset), queries)
        job = Measurement(*of, top_k, repeats, runs, progress, complain)
        if len(candidate) == 1:
            systems, several = None, (job.compare(baseline, candidate[0], *more),)
            told = summary.comparison_dict(several[0])
            lines = [*summary.comparison_lines(several[0])]
        else:
            systems = job.compare_all([baseline, *candidate], *more)
            told, several = summary.systems_dict(systems), systems.comparisons
            lines = [*summary.systems_lines(systems)]
    told |= {"gates": [], "failed_gates": []}
    now, blind = datetime.now(UTC), list[BlindComparisonError]()
    results: list[gates.GateResult] = []
    for one in several:
        name, results = one.candidate.name, []
        for gate in wanted:
            try:
                results.append(gate.decide(one))
            except BlindComparisonError as error:
                blind.append(error)
        about = {} if systems is None else {"candidate": name}
        prefix = "" if systems is None else f"{name}: "
        told["gates"] += [gates.gate_dict(result) | about for result in results]
        failed = [f"{prefix}{result.gate.text}" for result in results if result.failed]
        told["failed_gates"] += failed
        lines += (f"{prefix if line else ''}{line}" for line in gates.gate_lines(results))
        if aa:
            alarms = gates.count_false_alarms(one, [result.gate for result in results])
            told["aa"] = alarms if systems is None else [*told.get("aa", ()), alarms | about]
            lines += (f"{prefix if line else ''}{line}" for line in gates.false_alarm_lines(alarms))
    if report is not None:
        if systems is None:
            write_whole(report, render_report(several[0], created=now, gates=results))
        else:
            write_whole(report, render_systems(systems, created=now))
        lines.append(f"Report: {report}")
    yield Printed(told, lines)
    failed = told["failed_gates"]
    if failed:
        complain(f"failed: {'; '.join(failed)}")
        raise typer.Exit(GATE_FAILED)
    if blind:
        raise blind[0]


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
    from catalog.evaluation.measurement import Measurement
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
    with searching(context) as (library, progress):
        name = library.chosen_dataset(dataset)
        specs = _stage_specs(library) if each_stage else specs
        job = Measurement(library, name, queries, top_k, repeats, runs, progress, complain)
        records = job.earlier(specs) if reuse else {}
        missing = [spec for spec in specs if spec not in records]
        done = job.ask(missing) if missing else ()
        for spec, run in zip(missing, done, strict=True):
            records[spec] = job.record(run, score_run(run, job.with_words, job.allowed))
        warnings = find_label_warnings(job.queries, library.database, name)
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


@command
def why(
    context: typer.Context,
    query: Annotated[str | None, Argument(help="The query that did not find it.")] = None,
    doc: str | None = Option(None, "--doc", help="The document: path, name or #docid."),
    text: str | None = Option(None, help="Words of the document that the result should have."),
    golden: Path | None = Option(None, help="Labelled queries, instead: all that they lose."),
    pipeline: str | None = Option(
        None, help="Another search, module:object; steps of LlamaIndex are observed."
    ),
    candidate: str | None = Option(
        None, help="With --golden: a second search, such as v2:fusion_mode=rrf, to compare."
    ),
    baseline: str = Option("v2", help="The first one: v2, lexical, vector or v2:setting=value,…"),
    candidate_dataset: str | None = Option(None, help="Another index for the second search."),
    candidate_filter: list[str] | None = Option(None, help="A condition of the second search."),
    dataset: DatasetOption = None,
    mode: Mode | None = Option(None, help="lexical, vector or hybrid."),
    top_k: int | None = Option(None, "--top-k", "-k", min=1, max=1000, help="Results."),
    filters: list[str] | None = Option(None, "--filter", help="A condition of the search."),
    rerank: bool | None = Option(None, help="With the reranker."),
    threshold: float | None = Option(None, min=0, max=1, help="Least relevance."),
) -> Printed:
    """Say which step of a search lost a document, and the smallest change that brings it back.

    With --golden for all labelled documents, as shares of the loss; with --candidate which stages
    make the difference between two searches.

    Examples:
        catalog why "rotate keys" --doc guides/keys.md
        catalog why --golden notes.jsonl --candidate v2:rerank_enabled=true
    """
    from catalog.core.params import SearchParams
    from catalog.evaluation import losses, shares
    from catalog.evaluation.golden import Span, find_label_warnings, with_own_names
    from catalog.evaluation.golden_files import read_golden
    from catalog.evaluation.observed import explain_pipeline
    from catalog.evaluation.why import explain_golden, explain_loss
    from catalog.retrieval.search import Searcher

    if (golden is None) == (query is None) or (query is None) == bool(doc):
        raise typer.BadParameter("give either a query and --doc, or --golden")
    asked_of = "document" if golden is None else "golden" if candidate is None else "shares"
    asked_of = "pipeline" if asked_of == "document" and pipeline is not None else asked_of
    sources = ((name, context.get_parameter_source(name)) for name in _UNUSED[asked_of])
    if given := [name for name, source in sources if source and source.name == "COMMANDLINE"]:
        name = "--" + given[0].replace("filters", "filter").replace("_", "-")
        raise typer.BadParameter("it has no place with the other options", param_hint=name)
    queries = None if golden is None else read_golden(golden)
    with searching(context, "") as (library, progress):
        name = library.chosen_dataset(dataset)
        params = SearchParams(
            query or "",
            dataset=name,
            mode=mode,
            top_k=top_k,
            filters=filters or None,
            rerank=rerank,
            similarity_threshold=threshold,
        )
        service = Searcher(library)
        if pipeline is not None and query is not None:
            k = top_k or library.settings.rag_v2.top_k
            loss = explain_pipeline(library.database, name, pipeline, query, str(doc), k)
            return Printed(losses.loss_dict(loss), losses.loss_lines(loss))
        if queries is None:
            span = None if text is None else Span(text=text)
            loss = explain_loss(service.parts, params, str(doc), span)
            return Printed(losses.loss_dict(loss), losses.loss_lines(loss))
        queries = with_own_names(queries, library.database, name)
        for warning in find_label_warnings(queries, library.database, name):
            complain(warning)
        if candidate is None:
            found = explain_golden(service.parts, params, queries, progress)
            return Printed(losses.golden_loss_dict(found), losses.golden_loss_lines(found))
        first = shares.SearchSetup(baseline, name)
        second = shares.SearchSetup(candidate, candidate_dataset or name, candidate_filter)
        told = shares.share_out(service, first, second, queries, progress)
    return Printed(shares.share_dict(told), shares.share_lines(told))


@command
def tune(
    context: typer.Context,
    golden: Annotated[Path, Option(help="Labelled queries, JSON Lines.")],
    dataset: DatasetOption = None,
    write: Path | None = Option(None, help="TOML file for the chosen settings, if adopted."),
    report: Path | None = Option(None, help="HTML file to write."),
    budget_ms: float | None = Option(None, min=0.0, help="Longest p95 of the chosen settings."),
    slower_by: float = Option(
        1.5, min=0.0, help="The same as a multiple of the present one; without --budget-ms."
    ),
    keep: list[str] | None = Option(
        None, "--keep", help="Setting that is not tried, such as max_chunks_per_doc; repeatable."
    ),
) -> Printed:
    """Choose settings of the search by labelled questions, if they are shown to be better.

    Tries fusion, weights, depths, the limit per document and the reranker. The gain is measured on
    questions left out of the choice.

    Examples:
        catalog tune --golden notes.jsonl -d notes --write tuned.toml --report tuned.html
        catalog tune --golden notes.jsonl --budget-ms 200 --keep max_chunks_per_doc
    """
    from catalog.evaluation import tuning
    from catalog.evaluation.golden_files import read_golden, write_whole
    from catalog.retrieval.search import Searcher

    require_folder_of(write)
    require_folder_of(report)
    queries = read_golden(golden)
    with searching(context, f"{_NOTHING_KEPT}, with the reranker's scores") as (library, progress):
        tuned = tuning.tune(
            Searcher(library),
            queries,
            library.chosen_dataset(dataset),
            budget_ms=budget_ms,
            slower_by=slower_by,
            keep=keep or (),
            progress=progress,
        )
        preset = library.settings.preset
    lines = [*tuning.tuning_lines(tuned)]
    if report is not None:
        write_whole(report, tuning.render_tuning(tuned, created=datetime.now(UTC)))
        lines.append(f"Report: {report}")
    if write is not None and tuned.is_adopted:
        write_whole(write, tuning.preset_text(tuned, preset))
        lines.append(f"Settings: {write}; use them with --preset {write}")
        origins = settings_for(context).origins
        for name, _ in tuned.chosen:
            origin = origins.get(f"rag_v2.{name}", "default")
            if not origin.startswith(("default", "preset")):
                lines.append(f"! {origin} sets {name} and goes before a preset: remove it there")
    return Printed(tuning.tuning_dict(tuned), lines)


@command
def replay(
    context: typer.Context,
    save: Path | None = Option(None, help="File for the lists of now, to compare with later."),
    before: Path | None = Option(None, "--from", help="Such a file: ask its questions again."),
    other_home: Path | None = Option(None, help="A second home: ask both in turn, this one first."),
    other_preset: str | None = Option(None, help="The second home's --preset."),
    golden: Path | None = Option(
        None, help="Labelled queries; without them those of the file, or else the log's questions."
    ),
    dataset: DatasetOption = None,
    backend: str = Option("v2", help=f"One of {BACKENDS}."),
    since: SinceOption = None,
    limit: int = Option(200, min=1, help="Number of logged questions, newest first."),
    top_k: int = Option(100, "--top-k", "-k", min=10, max=1000, help="How deep."),
    moved: float = Option(0.1, min=0, max=1, help="How far lists may move without labels."),
    margin: float = Option(0.05, min=0.001, max=1, help="Loss of nDCG@10 that labels rule out."),
) -> Printed:
    """Ask questions again after a change, and say what moved: PASS, FAIL or HOLD.

    Exit code 3 (FAIL): labels show a loss. 4 (HOLD): lists moved further than --moved, and no
    labels decide. Questions of the log are asked if their words were logged.

    Examples:
        catalog replay --save before.json --golden notes.jsonl
        catalog replay --from before.json
    """
    from catalog.evaluation import replay as replays

    if sum(one is not None for one in (save, before, other_home)) != 1:
        raise typer.BadParameter("give one of --save, --from and --other-home")
    require_folder_of(save)
    with searching(context, _NOTHING_KEPT) as (library, progress), ExitStack() as opened:
        other = StoreOptions(other_home, other_preset) if other_home else None
        found = replays.run_replay(
            library,
            save=save,
            before=before,
            other=other and opened.enter_context(open_library(context, other)),
            golden=golden,
            dataset=dataset,
            backend=backend,
            since=moment_of("--since", since),
            limit=limit,
            top_k=top_k,
            moved=moved,
            margin=margin,
            progress=progress,
            tell=complain,
        )
    if isinstance(found, replays.Replay):
        code = replays.EXIT_CODES[found.verdict]
        return Printed(replays.replay_dict(found), replays.replay_lines(found), code=code)
    asked = len(found.golden)
    told = {"file": str(save), "questions": asked, **found.about, "notes": found.notes}
    return Printed(told, [f"{asked} questions, written to {save}"], found.notes)
