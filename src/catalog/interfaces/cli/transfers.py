"""``catalog export`` and ``import``: datasets as ``chunks.jsonl``, and back."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from catalog.interfaces.cli.options import (
    HomeOption,
    JsonOption,
    PresetOption,
    open_library,
)
from catalog.interfaces.cli.output import (
    TerminalProgress,
    complain,
    heeding_termination,
    print_json,
    say,
)
from catalog.interfaces.plain_text import safe

_Datasets = Annotated[
    list[str] | None,
    typer.Option("--dataset", "--project", "-d", help="Only this dataset; may be repeated."),
]


def export(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="Where to write; in a folder, chunks.jsonl.")],
    dataset: _Datasets = None,
    vectors: Annotated[
        bool, typer.Option("--vectors", help="With vectors, so that nothing is embedded again.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    json: JsonOption = False,
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """Write datasets as lines of JSON, to be read or imported."""
    from catalog.library.exporting import export_chunks

    with (
        heeding_termination(),
        open_library(context, home, preset) as library,
        TerminalProgress() as progress,
    ):
        report = export_chunks(
            library.database,
            file,
            datasets=tuple(dataset or ()),
            vectors=vectors,
            force=force,
            progress=progress,
        )
    if json:
        print_json(asdict(report))
    else:
        counts = f"{report.documents:,} documents, {report.chunks:,} passages"
        say(f"{report.file}: {counts}, {report.bytes:,} bytes")


def import_(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="What export wrote, or the folder it is in.")],
    dataset: _Datasets = None,
    root: Annotated[
        Path | None,
        typer.Option(help="The folder to update the datasets from."),
    ] = None,
    json: JsonOption = False,
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """Take in what export wrote, ids unchanged. Safe to interrupt: run it again to continue.

    Documents in the file are as it says afterwards, others stay. What has no vector is embedded.
    Take files from whom you trust: vectors are believed.
    """
    from catalog.library.exporting import require_portable
    from catalog.library.importing import import_chunks

    require_portable(file)
    with (
        open_library(context, home, preset, make_store=True) as library,
        TerminalProgress() as progress,
    ):
        report = import_chunks(
            library, file, datasets=tuple(dataset or ()), root=root, progress=progress
        )
    if json:
        print_json(asdict(report))
    else:
        waiting = (
            f"{report.waiting:,} of them wait for vectors" if report.waiting else "all embedded"
        )
        say(
            f"{', '.join(report.datasets)}: {report.added:,} documents added, "
            f"{report.replaced:,} replaced, {report.unchanged:,} unchanged; "
            f"{report.chunks:,} passages, {waiting}"
        )
        for note in report.notes:
            complain(safe(note))
    for failure in report.failed:
        complain(safe(f"{failure.path}: {failure.reason}"))
    if report.failed:
        raise typer.Exit(1)
