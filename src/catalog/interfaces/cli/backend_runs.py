"""Putting labelled queries to backends, and recording what they return."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import typer

from catalog.interfaces.cli.options import open_library
from catalog.interfaces.cli.output import TerminalProgress, complain

if TYPE_CHECKING:
    from catalog.evaluation.golden import GoldenSet
    from catalog.evaluation.metrics import RunScores
    from catalog.evaluation.runs import Allowed, BackendRun
    from catalog.library.library import Library
    from catalog.store.eval_runs import EvalRun

_FAILURES_SHOWN = 5


def read_queries(golden: Path | None, beir: Path | None, split: str) -> GoldenSet:
    """Return the labelled queries of a file or of a BEIR collection, whichever is given."""
    from catalog.evaluation.golden_files import read_beir, read_golden

    if (golden is None) == (beir is None):
        raise typer.BadParameter("give either --golden or --beir")
    return read_golden(golden) if golden is not None else read_beir(cast(Path, beir), split)


@contextmanager
def open_dataset(
    context: typer.Context,
    home: Path | None,
    preset: str | None,
    beir: Path | None,
    dataset: str | None,
) -> Iterator[tuple[Library, str]]:
    """Open the store that queries are put to, and give it with their dataset's name.

    A BEIR collection is indexed if needed, in a store that is made if there is none, under its
    folder's name if no dataset is given.
    """
    with open_library(context, home, preset, make_store=beir is not None) as library:
        if beir is None:
            yield library, library.chosen_dataset(dataset)
            return
        name = dataset or beir.resolve().name
        _index_collection(library, beir, name)
        yield library, name


def _index_collection(library: Library, folder: Path, dataset: str) -> None:
    from catalog.core.errors import InputError
    from catalog.evaluation.golden_files import CORPUS
    from catalog.library.indexing import Indexer
    from catalog.store.chunks import list_datasets

    corpus = (folder / CORPUS).resolve()
    with library.database.read() as connection:
        roots = {stored.name: stored.root for stored in list_datasets(connection)}
    if roots.get(dataset) and Path(roots[dataset]) != corpus:
        raise InputError(f"dataset {dataset!r} is of {roots[dataset]}: give another --dataset")
    with TerminalProgress() as progress:
        report = Indexer(library).build(corpus, dataset, progress=progress)
    for note in report.notes:
        complain(note)
    for failure in report.failed[:_FAILURES_SHOWN]:
        complain(f"{failure.outcome}: {failure.path}: {failure.reason}")


def run_specs(
    library: Library,
    queries: GoldenSet,
    dataset: str,
    specs: list[str],
    top_k: int,
    repeats: int,
) -> list[BackendRun]:
    """Put every query to the backends of these specs; return their runs, in order."""
    from catalog.core.errors import StoreBusyError
    from catalog.evaluation.backends import Backends
    from catalog.evaluation.run_records import corpus_digest
    from catalog.evaluation.runs import run_backends

    library.require_dataset(dataset)
    corpus = corpus_digest(library.database, dataset)
    with (
        Backends(library, tell=complain) as backends,
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
            allowed=allowed_documents(library, dataset),
        )
    if corpus_digest(library.database, dataset) != corpus:
        raise StoreBusyError(f"{dataset!r} changed while it was asked: measure again after updates")
    return runs


def measure_specs(
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
    """Return a record for each spec, in order; run those that have none to reuse."""
    from catalog.evaluation.metrics import score_run

    records: dict[str, EvalRun] = {}
    if reuse:
        records = _earlier_runs(library, queries, dataset, specs, top_k)
    missing = [spec for spec in specs if spec not in records]
    runs = run_specs(library, queries, dataset, missing, top_k, repeats) if missing else []
    for spec, run in zip(missing, runs, strict=True):
        scores = score_run(run, queries, allowed_documents(library, dataset))
        records[spec] = record_run_and_file(library, run, scores, queries, folder)
    return [records[spec] for spec in specs]


def _earlier_runs(
    library: Library, queries: GoldenSet, dataset: str, specs: list[str], top_k: int
) -> dict[str, EvalRun]:
    from catalog.evaluation.backends import Backends
    from catalog.evaluation.run_records import find_recorded_run

    records = {}
    with Backends(library) as backends:
        for spec in specs:
            identity = backends.load(spec).identity
            if "pipeline" not in identity:  # another's search may change unseen
                continue
            record = find_recorded_run(library.database, identity, queries, dataset, top_k)
            if record is not None:
                complain(f"{spec}: reusing run {record.id}")
                records[spec] = record
    return records


def record_run_and_file(
    library: Library, run: BackendRun, scores: RunScores, queries: GoldenSet, folder: Path | None
) -> EvalRun:
    """Record a run in the store, and write its TREC file if there is a folder for it."""
    from catalog.evaluation.backends import write_run
    from catalog.evaluation.run_records import record_run

    record = record_run(library.database, run, scores, queries, now=time.time())
    if folder is not None:
        write_run(folder, record.backend, record.lists)
    return record


def allowed_documents(library: Library, dataset: str) -> Allowed:
    """Return the function that tells which documents a query's filters allow."""
    from catalog.evaluation.golden import find_allowed_documents

    return partial(find_allowed_documents, library.database, dataset)
