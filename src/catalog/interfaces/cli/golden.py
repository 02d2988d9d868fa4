"""``catalog golden``, ``judge`` and ``validate``: labelled queries, and is a dataset ready?"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from catalog.core.errors import InputError
from catalog.core.text import counted
from catalog.interfaces.cli.measure import searching
from catalog.interfaces.cli.options import (
    DatasetOption,
    Printed,
    StoreOptions,
    command,
    open_library,
    require_folder_of,
    settings_for,
    store_options,
)
from catalog.interfaces.cli.output import RESUMABLE, TerminalProgress, complain, note, say

if TYPE_CHECKING:
    from catalog.evaluation.golden import GoldenSet
    from catalog.evaluation.judging import PreferenceTest
    from catalog.ingest.sync_report import Progress
    from catalog.library.library import Library
    from catalog.retrieval.search import Searcher

app = typer.Typer(
    help="Check labelled queries (golden queries), and fit searches to them.", no_args_is_help=True
)
judge_app = typer.Typer(help="Show the judgements of people.", no_args_is_help=True)
GoldenFile = Annotated[Path, Argument(help="Labelled queries, JSON Lines.")]
ForeignFile = Annotated[Path, Argument(help="Labels as another tool has them.")]
TopicsOption = Annotated[
    Path | None, Option(help="TREC only: the queries' texts, tab-separated or JSON Lines.")
]
_MOST = 3  # grade of a document that is about exactly what was asked
EXAMPLE = "book"  # dataset and preset of the example


@app.command("check")
def check(
    context: typer.Context,
    file: GoldenFile,
    dataset: DatasetOption = None,
    write: bool = Option(
        False, "--write", help="With --dataset: let labels follow words that moved or changed."
    ),
) -> None:
    """Check a set: its form and, with --dataset, its labels and filters.

    Labels whose words moved or changed are listed; --write changes the file as the list says.

    Examples:
        catalog golden check notes.jsonl -d notes
        catalog golden check notes.jsonl -d notes --write
    """
    from catalog.evaluation import golden as labels
    from catalog.evaluation.golden_files import changing_golden, read_golden
    from catalog.evaluation.summary import golden_lines

    settings_for(context)  # refuses a bound process
    golden = read_golden(file)
    high = [(one.id, it) for one in golden for it in one.expected if it.grade > _MOST]
    for query, label in high:
        note(f"note: {query}: grade {label.grade} of {label.path!r}; the scale is 0 to {_MOST}\n")
    drift = []
    if dataset is not None:
        with open_library(context) as library:
            library.require_dataset(dataset)
            of = library.database, dataset
            golden = labels.with_own_names(golden, *of)
            drift = labels.find_drift(golden, *of)
            if write:
                with changing_golden(file) as queries:
                    named = labels.with_own_names(replace(golden, queries=(*queries,)), *of)
                    queries[:] = labels.follow_drift(named.queries, drift)
                golden = read_golden(file)
            problems = labels.find_dataset_problems(golden, library.database, dataset)
    elif write:
        raise typer.BadParameter("it needs --dataset", param_hint="--write")
    else:
        problems = []
    problems += [f"asked twice: {text!r}" for text in labels.find_duplicate_queries(golden)]
    say(*golden_lines(golden), *(f"  {problem}" for problem in problems))
    if drift:
        who = "the file follows" if write else "--write follows"
        say(f"Labels whose words moved or changed; {who} each arrow:")
        say(*(f"  {one}" for one in drift))
    if problems:
        complain(f"{file}: {counted(len(problems), 'problem')}")
        raise typer.Exit(1)


@app.command("import")
def import_(
    context: typer.Context, file: ForeignFile, to: GoldenFile, queries: TopicsOption = None
) -> None:
    """Make a set of Quepid's CSV, of OpenSearch's judgement list, or of TREC's qrels.

    Examples:
        catalog golden import quepid.csv notes.jsonl
        catalog golden import qrels.txt notes.jsonl --queries topics.tsv
    """
    from catalog.evaluation import golden_files, label_files

    settings_for(context)  # refuses a bound process
    if to.exists():
        raise InputError(f"{to} exists: give another name")
    golden, left_out = label_files.read_labels(file, queries)
    golden_files.save_golden(to, golden.queries)
    say(f"{to}: {counted(len(golden), 'query')}; {left_out} without a label left out")


@app.command("export")
def export(
    context: typer.Context, file: GoldenFile, to: ForeignFile, queries: TopicsOption = None
) -> None:
    """Write the labels of a set as Quepid's CSV or, with --queries, as TREC's qrels.

    Examples:
        catalog golden export notes.jsonl quepid.csv
        catalog golden export notes.jsonl qrels.txt --queries topics.tsv
    """
    from catalog.evaluation import golden_files, label_files

    settings_for(context)  # refuses a bound process
    for path in (to, queries):
        if path is not None and (path.exists() or to == queries):
            raise InputError(f"{path} exists, or is named twice: give another name")
    label_files.write_labels(golden := golden_files.read_golden(file), to, queries)
    filtered = sum(query.filters is not None for query in golden)
    quoted = sum(label.span is not None for query in golden for label in query.expected)
    left_out = f"the filters of {filtered} and {counted(quoted, 'span')} have no place there"
    say(f"{to}: {counted(len(golden), 'query')}; {left_out}")


@app.command("power")
@command
def power(
    context: typer.Context,
    file: GoldenFile,
    dataset: DatasetOption = None,
    baseline: str = Option("v1", help="As that of 'compare', such as run:ID of a recorded run."),
    candidate: str = Option("v2", help="As --baseline."),
) -> Printed:
    """Say how many questions show a difference, and what this set can show.

    Two searches that differ like those that you want to compare give the variance. 80 % power, in
    the two-sided test at 5 % that 'compare' uses.

    Examples:
        catalog golden power notes.jsonl -d notes
        catalog golden power notes.jsonl --baseline run:3fa9 --candidate run:81bc
    """
    from catalog.evaluation import summary
    from catalog.evaluation.golden_files import read_golden
    from catalog.evaluation.measurement import Measurement
    from catalog.evaluation.metrics import PRIMARY
    from catalog.evaluation.significance import power_of

    queries = read_golden(file)
    with searching(context) as (library, progress):
        of = (library, library.chosen_dataset(dataset), queries)
        job = Measurement(*of, progress=progress, tell=complain)
        comparison = job.compare(baseline, candidate, explains=False)
    found = power_of(comparison.differences(PRIMARY))
    about = {"golden": queries.name, "baseline": baseline, "candidate": candidate}
    return Printed(about | asdict(found), summary.power_lines(found))


@app.command("calibrate")
def calibrate(
    context: typer.Context,
    golden: Path | None = Option(None, "--golden", help="Labelled queries, JSON Lines."),
    dataset: DatasetOption = None,
    undo: bool = Option(False, "--undo", help="Forget what was kept; needs no labelled queries."),
) -> None:
    """Fit relevance, and when to answer, to labelled queries.

    Relevance decides on thresholds and low confidence. When 'ask' answers needs 20 queries with an
    answer, or 10 and 10 without. Each fit is kept if it holds for queries left out of it.

    Examples:
        catalog golden calibrate --golden notes.jsonl
        catalog golden calibrate --undo
    """
    from catalog.answers.answerable import save_answer_shift
    from catalog.evaluation.golden import find_label_warnings, with_own_names
    from catalog.evaluation.golden_files import read_golden
    from catalog.retrieval.relevance import save_calibration
    from catalog.retrieval.search import Searcher

    if (golden is None) != undo:
        raise typer.BadParameter("give the labelled queries, or --undo", param_hint="--golden")
    queries = None if golden is None else read_golden(golden)
    with searching(context, RESUMABLE) as (library, progress):
        name = library.chosen_dataset(dataset)
        if queries is None:
            save_answer_shift(Searcher(library).parts, name, None, "undone")
            save_calibration(library.database, library.wanted_model.fingerprint, None)
            told = [f"'ask' decides as usual again when to answer from {name}"]
            told += ["relevance is the packaged calibration's again"]
        else:
            queries = with_own_names(queries, library.database, name)
            for warning in find_label_warnings(queries, library.database, name):
                complain(warning)
            told = [*_fit_relevance(Searcher(library), queries, name, progress)]
            told += _fit_answers(Searcher(library), queries, name, progress)  # with what was kept
            told += ["'catalog golden calibrate --undo' takes it back"]
    say(*told)


def _fit_relevance(
    service: Searcher, queries: GoldenSet, dataset: str, progress: Progress
) -> Iterator[str]:
    """Shift the packaged relevance, keep the shift if it wins, and report it."""
    from catalog.evaluation.calibration import collect_passages, fit_relevance
    from catalog.retrieval.relevance import WORDS_ONLY, packaged_calibration, save_calibration

    embedding = service.library.wanted_model.fingerprint
    packaged = packaged_calibration(embedding) or packaged_calibration(WORDS_ONLY)
    assert packaged is not None
    found = collect_passages(service, queries, dataset, packaged, progress=progress)
    fit = fit_relevance(list(found.values()))
    about = f"{queries.name} on {dataset}, {counted(fit.queries, 'query')}"
    shifted = replace(packaged, constant=packaged.constant + fit.shift, about=about)
    save_calibration(service.parts.database, embedding, shifted if fit.wins else None)
    passages = counted(sum(one.estimates.size for one in found.values()), "passage")
    gain = f"{fit.gain:+.3f} (standard error {fit.error:.3f})"
    yield f"{about}: {passages}, left out of the fit in turn:"
    if fit.wins:
        yield f"  relevance is fitted to them: its log-likelihood rises by {gain}"
    else:
        yield f"  relevance stays the packaged calibration's: the fit does not win, {gain}"


def _fit_answers(
    service: Searcher, queries: GoldenSet, dataset: str, progress: Progress
) -> Iterator[str]:
    """Fit when to answer from the dataset, keep it if it wins, and report it."""
    from catalog.answers.answerable import save_answer_shift
    from catalog.evaluation import calibration as fits

    counts, least = (len(queries.answerable), len(queries.unanswerable)), fits.LEAST_OF_A_KIND
    if min(counts) < least and counts[0] < (alone := fits.LEAST_ANSWERABLE):
        needs = f"{alone} queries with an answer, or {least} with and {least} without"
        yield f"  when to answer takes {needs}; there are {counts[0]} and {counts[1]}"
        return
    decisions = fits.measure_answers(service, queries, dataset, progress=progress)
    about = f"{queries.name} on {dataset}, {counted(len(queries), 'query')}"
    if counts[1] < least:
        shift, wrongly = decisions.fit_answerable()
        kept = shift if wrongly <= fits.MOST_REFUSED else None
        save_answer_shift(service.parts, dataset, kept, about)
        told = "decides as before, for a fit to them refuses" if kept is None else "refuses"
        yield f"  'ask' {told} {wrongly:.0%} of those with an answer, each fifth left out in turn"
        return
    fit = decisions.fit()
    save_answer_shift(service.parts, dataset, fit.shift if fit.wins else None, about)
    said = "{:.0%} of those with an answer and {:.0%} of those without".format
    then, now = (said(*decisions.refused(shift)) for shift in (fit.shift, 0.0))
    if fit.wins:
        gain = f"{fit.gain:+.3f} rightly decided (standard error {fit.error:.3f})"
        yield f"  'ask' refuses {then}; before, {now}: {gain} on queries left out"
    else:
        yield f"  'ask' decides as before, and refuses {now}: no shift wins on queries left out"


@judge_app.command("stats")
@command
def stats(context: typer.Context, file: GoldenFile) -> Printed:
    """Show which search people prefer, whether that is decided, and how far people agree.

    You may look after every choice: the chance of a wrong decision is at most 5 % in all.

    Examples:
        catalog judge stats notes.jsonl
        catalog judge stats notes.jsonl --json
    """
    from catalog.evaluation.golden_files import read_golden
    from catalog.evaluation.judging import find_conflicts, measure_agreement, preference_tests

    settings_for(context)  # refuses a bound process
    golden = read_golden(file)
    tests, agreements = preference_tests(golden), measure_agreement(golden.queries)
    conflicts = [(one.query.id, one.path, one.grades) for one in find_conflicts(golden)]
    data = {
        "golden": golden.name,
        "questions": len(golden),
        "preferences": [{**asdict(one), "verdict": one.verdict} for one in tests],
        "agreement": [*map(asdict, agreements)],
        "conflicts": [dict(zip(("query", "path", "grades"), it, strict=True)) for it in conflicts],
    }
    lines = [line for test in tests for line in _test_lines(test, len(golden))]
    lines = lines or [f"no preference in {counted(len(golden), 'question')}"]
    lines += map(str, agreements)
    for query, path, grades in conflicts:
        given = ", ".join(f"{person} {grade}" for person, grade in grades.items())
        lines.append(f"conflict: {query} {path}: {given}")
    return Printed(data, lines)


def _test_lines(one: PreferenceTest, questions: int) -> Iterator[str]:
    test, low, high = one.test, one.test.interval.low, one.test.interval.high
    left = questions - test.wins - test.ties - test.losses
    people, repeated = (
        ", ".join(f"{name} ({count})" for name, count in counts.items())
        for counts in (one.people, one.repeated)
    )
    yield f"{one.candidate} and {one.baseline}, {one.mode}: {one.verdict}"
    yield (
        f"  {one.candidate} won {test.wins}, tied {test.ties} ({one.neither} both bad) and lost "
        f"{test.losses}; {left} of {questions} questions are left"
    )
    sure = f"[{low:.0%}, {high:.0%}], evidence {test.e_value:.3g}"
    yield f"  preferred in {test.share:.0%} of the choices that are not ties {sure}"
    if one.still_needed:
        yield f"  {one.still_needed}"
    if one.by_kind:
        kinds = ", ".join(f"{kind} {counts}" for kind, counts in one.by_kind.items())
        yield f"  won-tied-lost by kind: {kinds}"
    yield f"  by {people}"
    if repeated:
        yield f"  judged before by somebody else, so not counted again: {repeated}"


@command
def validate(
    context: typer.Context,
    suite: Path | None = Option(None, help="Questions, their sources and limits: a TOML file."),
    example: bool = Option(
        False, "--example", help="Validate a small book that comes with catalog, instead."
    ),
    dataset: DatasetOption = None,
    report: Path | None = Option(None, help="Markdown file to write."),
) -> Printed:
    """Say whether a dataset is ready, by a suite of questions; exit with 1 when it is not.

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
    if suite is None:
        suite, dataset = _example_files()[1], EXAMPLE
    with _example_library(context) if example else open_library(context) as library:
        questions, name = read_suite(suite), library.chosen_dataset(dataset)
        with TerminalProgress(kept="") as progress:
            validation = Validation(run_suite(Searcher(library), questions, name, progress))
    text = validation_report(validation)
    lines = [text.rstrip("\n")]
    if report is not None:
        report.write_text(text, encoding="utf-8")
        verdict = "READY" if validation.is_ready else "NOT READY"
        lines = [verdict, *validation.reasons, f"Report: {report}"]
    return Printed(validation_dict(validation), lines, code=int(not validation.is_ready))


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
        with TerminalProgress(kept="") as progress:
            Indexer(library).build(book, EXAMPLE, progress=progress)
        yield library


def _example_files() -> tuple[Path, Path]:
    """Return the folder of the book and the file of its suite, as installed or in a checkout."""
    package = Path(__file__).parents[2] / "examples"
    folder = package if package.is_dir() else Path(__file__).parents[4] / "examples"
    return folder / "book", folder / "book-suite.toml"
