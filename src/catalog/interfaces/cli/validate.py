"""``catalog validate``: is a dataset ready, by a suite of questions and its limits?"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from catalog.interfaces.cli.options import (
    DatasetOption,
    HomeOption,
    JsonOption,
    PresetOption,
    open_library,
    require_folder_of,
    store_options,
)
from catalog.interfaces.cli.output import TerminalProgress, complain, print_json, say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from catalog.library.library import Library

NOT_READY = 1  # exit code
EXAMPLE = "book"  # dataset and preset of the example


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
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """Say whether a dataset is ready, by a suite of questions.

    Exits with 1 when it is not ready. docs/validation.md says what a suite holds.
    """
    from catalog.evaluation.validation.run import SuiteRunner
    from catalog.evaluation.validation.suite import read_suite
    from catalog.evaluation.validation.validation_report import validation_lines
    from catalog.evaluation.validation.verdict import Validation, validation_dict
    from catalog.retrieval.searcher import Searcher

    if example == (suite is not None):
        raise typer.BadParameter("give either --suite or --example")
    require_folder_of(report)
    with ExitStack() as stack:
        if suite is None:
            library = stack.enter_context(_example_library(context, preset))
            suite, dataset = _example_files()[1], EXAMPLE
        else:
            library = stack.enter_context(open_library(context, home, preset))
        questions = read_suite(suite)
        name = library.chosen_dataset(dataset)
        runner = SuiteRunner(Searcher(library), questions, name)
        with TerminalProgress(is_resumable=False) as progress:
            validation = Validation.of(runner.run(progress))
    text = "\n".join(validation_lines(validation))
    if report is not None:
        _write(report, f"{text}\n")
    if json:
        print_json(validation_dict(validation))
    elif report is None:
        say(text)
    else:
        say("READY" if validation.is_ready else "NOT READY", *validation.reasons)
        say(f"Report: {report}")
    if not validation.is_ready:
        raise typer.Exit(NOT_READY)


@contextmanager
def _example_library(context: typer.Context, preset: str | None) -> Iterator[Library]:
    """Index the example's book in a folder of its own, which goes again."""
    from catalog.library.indexing import Indexer

    chosen = store_options(context, None, preset).preset or EXAMPLE
    book, _ = _example_files()
    with (
        tempfile.TemporaryDirectory(prefix="catalog-example-") as folder,
        open_library(context, Path(folder), chosen, make_store=True) as library,
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
