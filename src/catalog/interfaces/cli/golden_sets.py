"""``catalog golden`` and ``validate``: labelled queries, and whether a dataset is ready."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from catalog.core.text import counted
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
    from collections.abc import Iterator

    from catalog.core.params import Mode
    from catalog.evaluation.golden import GoldenSet
    from catalog.ingest.sync_report import Progress
    from catalog.library.library import Library
    from catalog.retrieval.parts import SearchParts
    from catalog.retrieval.search import Searcher


app = typer.Typer(
    help="Check labelled queries (golden queries), and fit searches to them.", no_args_is_help=True
)
NOT_READY = 1  # exit code
EXAMPLE = "book"  # dataset and preset of the example


@app.command("check")
def check(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="Labelled queries, JSON Lines.")],
    dataset: DatasetOption = None,
) -> None:
    """Check a set: its form and, with --dataset, its labels and filters.

    Examples:
        catalog golden check notes.jsonl
        catalog golden check notes.jsonl -d notes
    """
    from catalog.evaluation.golden import find_dataset_problems, find_duplicate_queries
    from catalog.evaluation.golden_files import read_golden
    from catalog.evaluation.summary import golden_lines

    golden = read_golden(file)
    problems = [f"asked twice: {text!r}" for text in find_duplicate_queries(golden)]
    if dataset is not None:
        with open_library(context) as library:
            library.require_dataset(dataset)
            problems += find_dataset_problems(golden, library.database, dataset)
    say(*golden_lines(golden))
    for problem in problems:
        say(f"  {problem}")
    if problems:
        complain(f"{file}: {counted(len(problems), 'problem')}")
        raise typer.Exit(1)


@app.command("calibrate")
def calibrate(
    context: typer.Context,
    golden: Annotated[
        Path | None, typer.Option("--golden", help="Labelled queries, JSON Lines.")
    ] = None,
    dataset: DatasetOption = None,
    mode: Annotated[str, typer.Option(help="lexical, vector or hybrid.")] = "hybrid",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show how good it would be, and keep nothing.")
    ] = False,
    undo: Annotated[
        bool, typer.Option("--undo", help="Forget what was kept; needs no labelled queries.")
    ] = False,
) -> None:
    """Fit relevance, and when to answer, to labelled queries.

    Relevance decides on thresholds and low confidence. When 'ask' answers needs 10 queries with an
    answer and 10 without. Each fit is kept if it wins on queries left out of it.

    Examples:
        catalog golden calibrate --golden notes.jsonl
        catalog golden calibrate --golden notes.jsonl --dry-run
    """
    from catalog.core.params import MODES
    from catalog.evaluation.golden import find_label_warnings
    from catalog.evaluation.golden_files import read_golden
    from catalog.retrieval.search import Searcher

    known_mode = known_name("--mode", mode, MODES)
    if (golden is None) != undo:
        raise typer.BadParameter("give the labelled queries, or --undo", param_hint="--golden")
    queries = None if golden is None else read_golden(golden)
    with open_library(context) as library:
        name = library.chosen_dataset(dataset)
        library.require_dataset(name)
        service = Searcher(library)
        if queries is None:
            _undo(service.parts, name, known_mode)
            return
        for warning in find_label_warnings(queries, library.database, name):
            complain(warning)
        with TerminalProgress() as progress:
            relevance = _fit_relevance(
                service, queries, name, known_mode, progress, keep=not dry_run
            )
            as_fitted = Searcher(library)  # with what was kept
            answers = _fit_answers(as_fitted, queries, name, progress, keep=not dry_run)
    say(*relevance, f"  {answers}")
    say("kept nothing" if dry_run else "'catalog golden calibrate --undo' takes it back")


def _fit_relevance(
    service: Searcher,
    queries: GoldenSet,
    dataset: str,
    mode: Mode,
    progress: Progress,
    *,
    keep: bool,
) -> list[str]:
    """Fit the store's relevance, keep the fit if it wins, and return a report, line by line."""
    from catalog.evaluation.calibration import collect_candidates, fit_own
    from catalog.retrieval.relevance import packaged_calibration, save_calibration

    observations = collect_candidates(service, queries, dataset, mode=mode, progress=progress)
    group = [query for query in observations.values() if query]
    about = f"{queries.name} on {dataset}, {counted(len(group), 'query')}"
    embedding = _embedding_of(service.parts, mode)
    packaged = packaged_calibration(embedding)
    fit = fit_own(group, packaged, has_cosines=mode != "lexical", about=about)
    if keep:
        calibration = fit.calibration if fit.wins else None
        save_calibration(service.parts.database, embedding, calibration)
    beside = "the share of relevant passages" if packaged is None else "the packaged calibration"
    found = f"{fit.gain:+.3f} (standard error {fit.error:.3f}) to {beside}"
    now = "that of searches by words" if packaged is None else "the packaged calibration's"
    return [
        f"{about}: {counted(fit.quality.n, 'passage')}, left out of the fit in turn:",
        (
            "  a relevant passage has a higher estimate than an irrelevant one in "
            f"{fit.quality.auc:.1%} of pairs"
        ),
        f"  estimate and truth differ by {fit.quality.error:.3f} on average",
        f"  relevance is fitted to them: its squared error falls by {found}"
        if fit.wins
        else f"  relevance stays {now}: the fit does not win, {found}",
    ]


def _embedding_of(parts: SearchParts, mode: Mode) -> str:
    """Return the fingerprint of the model whose cosines such searches use, if they use any."""
    from catalog.retrieval.relevance import WORDS_ONLY

    return WORDS_ONLY if mode == "lexical" else parts.library.wanted_model.fingerprint


def _undo(parts: SearchParts, dataset: str, mode: Mode) -> None:
    """Forget the store's calibration of such searches, and when to answer."""
    from catalog.answers.answerable import save_answer_shift
    from catalog.retrieval.relevance import save_calibration

    save_answer_shift(parts, dataset, None, "undone")
    say(f"'ask' decides as usual again when to answer from {dataset}")
    save_calibration(parts.database, _embedding_of(parts, mode), None)
    say("relevance is the packaged calibration's again")


def _fit_answers(
    service: Searcher, queries: GoldenSet, dataset: str, progress: Progress, *, keep: bool
) -> str:
    """Fit when to answer from the dataset, keep it if it wins, and return what came of it."""
    from catalog.answers.answerable import save_answer_shift
    from catalog.evaluation.calibration import (
        ANSWER_SHIFTS,
        LEAST_OF_A_KIND,
        fit_shift,
        measure_answers,
    )

    counts = len(queries.answerable), len(queries) - len(queries.answerable)
    if min(counts) < LEAST_OF_A_KIND:
        needs = f"{LEAST_OF_A_KIND} queries with an answer and {LEAST_OF_A_KIND} without"
        return f"when to answer takes {needs} to fit; there are {counts[0]} and {counts[1]}"
    decisions = measure_answers(service, queries, dataset, progress=progress)
    fit = fit_shift(decisions.weighted, ANSWER_SHIFTS)
    (wrongly, rightly), (before, rightly_before) = map(decisions.refused, (fit.shift, 0.0))
    if keep:
        about = f"{queries.name} on {dataset}, {counted(fit.queries, 'query')}"
        save_answer_shift(service.parts, dataset, fit.shift if fit.wins else None, about)
    now = f"{before:.0%} of those with an answer and {rightly_before:.0%} of those without"
    if not fit.wins:
        return f"'ask' decides as before, and refuses {now}: no shift wins on queries left out"
    return (
        f"'ask' refuses {wrongly:.0%} of those with an answer and {rightly:.0%} of those without; "
        f"before, {now}: {fit.gain:+.3f} rightly decided (standard error {fit.error:.3f}) on "
        "queries left out"
    )


def validate(
    context: typer.Context,
    suite: Annotated[
        Path | None, typer.Option(help="Questions, their sources and limits: a TOML file.")
    ] = None,
    example: Annotated[
        bool,
        typer.Option("--example", help="Validate a small book that comes with catalog, instead."),
    ] = False,
    dataset: DatasetOption = None,
    report: Annotated[Path | None, typer.Option(help="Markdown file to write.")] = None,
    json: JsonOption = False,
) -> None:
    """Say whether a dataset is ready, by a suite of questions.

    Exits with 1 when it is not ready. docs/how-to/validate.md says what a suite holds.

    Examples:
        catalog validate --example
        catalog validate --suite suite.toml --report report.md
    """
    from catalog.evaluation.suite_verdict import Validation, validation_dict, validation_report
    from catalog.evaluation.suites import read_suite, run_suite
    from catalog.retrieval.search import Searcher

    if example == (suite is not None):
        raise typer.BadParameter("give either --suite or --example")
    require_folder_of(report)
    with ExitStack() as stack:
        if suite is None:
            library = stack.enter_context(_example_library(context))
            suite, dataset = _example_files()[1], EXAMPLE
        else:
            library = stack.enter_context(open_library(context))
        questions = read_suite(suite)
        name = library.chosen_dataset(dataset)
        with TerminalProgress(is_resumable=False) as progress:
            validation = Validation(run_suite(Searcher(library), questions, name, progress))
    text = validation_report(validation)
    if report is not None:
        _write(report, text)
    if json:
        print_json(validation_dict(validation))
    elif report is None:
        say(text.rstrip("\n"))
    else:
        say("READY" if validation.is_ready else "NOT READY", *validation.reasons)
        say(f"Report: {report}")
    if not validation.is_ready:
        raise typer.Exit(NOT_READY)


@contextmanager
def _example_library(context: typer.Context) -> Iterator[Library]:
    """Index the example's book in a temporary folder."""
    from catalog.library.indexing import Indexer

    chosen = store_options(context).preset or EXAMPLE
    book, _ = _example_files()
    with (
        tempfile.TemporaryDirectory(prefix="catalog-example-") as folder,
        open_library(context, StoreOptions(Path(folder), chosen), make_store=True) as library,
    ):
        complain(f"indexing the example's book, {book}")
        with TerminalProgress(is_resumable=False) as progress:
            Indexer(library).build(book, EXAMPLE, progress=progress)
        yield library


def _example_files() -> tuple[Path, Path]:
    """Return the folder of the book and the file of its suite, as installed or in a checkout."""
    package = Path(__file__).parents[2] / "examples"
    folder = package if package.is_dir() else Path(__file__).parents[4] / "examples"
    return folder / "book", folder / "book-suite.toml"


def _write(file: Path, text: str) -> None:
    from catalog.core.errors import InputError

    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {file}: {error.strerror}") from error
