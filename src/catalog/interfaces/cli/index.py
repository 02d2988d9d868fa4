"""``catalog index``: build, update, rebuild, remove, stats, and another model beside the old."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from catalog.interfaces.cli.dataset_counts import stats
from catalog.interfaces.cli.derived import (
    BothOption,
    LexicalOption,
    VectorsOption,
    rebuild_derived,
)
from catalog.interfaces.cli.options import (
    DatasetOption,
    HomeOption,
    JsonOption,
    PresetOption,
    RayOption,
    WorkersOption,
    open_library,
)
from catalog.interfaces.cli.output import TerminalProgress, complain, print_json, say
from catalog.interfaces.cli.try_model import add_commands
from catalog.interfaces.terminal import count_passages

if TYPE_CHECKING:
    from catalog.ingest.changes import SyncPreview
    from catalog.ingest.sync_report import SyncReport

SHOWN_FAILURES = 20
app = typer.Typer(help="Build and maintain datasets.", no_args_is_help=True)
ApplyOption = Annotated[
    bool,
    typer.Option(
        "--apply-settings",
        help="Cut all documents anew by the settings of this call, if the dataset was made with "
        "others, and keep to these from now on.",
    ),
]
RereadOption = Annotated[
    bool, typer.Option("--reread", help="Do every document anew, changed or not.")
]
DeletionsOption = Annotated[
    bool,
    typer.Option(
        "--allow-deletions", help="Forget documents even if most files, or their drive, are gone."
    ),
]


@app.command("build")
def build(
    context: typer.Context,
    folder: Annotated[
        Path | None,
        typer.Argument(help="A folder of documents, or one file; none: the dataset's own, anew."),
    ] = None,
    dataset: Annotated[
        str | None, typer.Option("--dataset", "-d", help="Name to index it under.")
    ] = None,
    include: Annotated[
        list[str] | None, typer.Option("--include", help="Only files matching this glob.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option("--exclude", help="Leave out files matching this glob.")
    ] = None,
    reread: RereadOption = False,
    apply_settings: ApplyOption = False,
    allow_deletions: DeletionsOption = False,
    workers: WorkersOption = None,
    ray: RayOption = None,
    json: JsonOption = False,
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """Index a folder as a dataset. Safe to interrupt: run it again to continue.

    A dataset that is there is cut as it was made, whatever the settings of this call are.
    Without a folder, a full rebuild: every document of the dataset is read and cut anew from the
    folder it was built from; texts whose vectors are kept are not embedded again.
    """
    if folder is not None and dataset is None:
        raise typer.BadParameter("name the dataset with --dataset", param_hint="--dataset")
    if folder is None and (include or exclude):
        raise typer.BadParameter("these need a folder", param_hint="--include/--exclude")
    library = open_library(
        context,
        home,
        preset,
        make_store=folder is not None,
        embeds=True,
        ingest={"workers": workers, "ray": ray},
    )
    from catalog.library.indexing import Indexer

    with library, TerminalProgress() as progress:
        if folder is None or dataset is None:
            name = library.chosen_dataset(dataset)
            report = Indexer(library).update(
                name,
                allow_deletions=allow_deletions,
                reread=True,
                apply_settings=apply_settings,
                progress=progress,
            )
        else:
            report = Indexer(library).build(
                folder,
                dataset,
                include=tuple(include or ()),
                exclude=tuple(exclude or ()),
                reread=reread,
                apply_settings=apply_settings,
                allow_deletions=allow_deletions,
                progress=progress,
            )
    _print_report(report, json=json)
    _exit_if_failed(report)


@app.command("update")
def update(
    context: typer.Context,
    dataset: DatasetOption = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Keep running and follow the folder's changes.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what would be done, and do nothing.")
    ] = False,
    reread: RereadOption = False,
    apply_settings: ApplyOption = False,
    allow_deletions: DeletionsOption = False,
    workers: WorkersOption = None,
    ray: RayOption = None,
    json: JsonOption = False,
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """Index what changed since the last run, in the folder the dataset was built from.

    The documents are cut as the dataset was made, whatever the settings of this call are.

    Ends with code 1 if documents were kept as they were because their file, folder or drive could
    not be read, or if a text could not be embedded; what is kept is named.
    """
    if dry_run and watch:
        raise typer.BadParameter("a dry run watches nothing", param_hint="--dry-run/--watch")
    told: dict[str, Any] = {
        "allow_deletions": allow_deletions,
        "reread": reread,
        "apply_settings": apply_settings,
    }
    library = open_library(
        context, home, preset, embeds=True, ingest={"workers": workers, "ray": ray}
    )
    from catalog.library.indexing import Indexer

    with library:
        indexer, name = Indexer(library), library.chosen_dataset(dataset)
        if dry_run:
            _print_preview(indexer.preview(name, **told), json=json)
            return
        if watch:
            from catalog.interfaces.cli.folder_watch import follow

            for report in follow(indexer, name, told):
                _print_report(report, json=json)
        with TerminalProgress() as progress:
            report = indexer.update(name, **told, progress=progress)
    _print_report(report, json=json)
    _exit_if_failed(report)


@app.command("rebuild")
def rebuild(
    context: typer.Context,
    keep_settings: Annotated[
        bool, typer.Option("--keep-settings", help="Cut each dataset as it was made.")
    ] = False,
    vectors: VectorsOption = False,
    lexical: LexicalOption = False,
    both: BothOption = False,
    workers: WorkersOption = None,
    ray: RayOption = None,
    json: JsonOption = False,
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """Re-read and re-embed every dataset; the way to change the embedding model.

    All are cut by the settings of this call, unless told to keep those that each was made with.
    With --vectors, --lexical or --all no document is read and no model asked: what is derived from
    the store is made anew.
    """
    if vectors or lexical or both:
        if keep_settings:
            raise typer.BadParameter("no document is cut", param_hint="--keep-settings")
        rebuild_derived(context, home, preset, vectors or both, lexical or both, json)
        return
    library = open_library(
        context, home, preset, embeds=True, ingest={"workers": workers, "ray": ray}
    )
    from catalog.library.indexing import Indexer

    with library, TerminalProgress() as progress:
        reports = Indexer(library).rebuild(keep_settings=keep_settings, progress=progress)
    if not reports and not json:
        say("there is no dataset to rebuild; 'catalog index build FOLDER --dataset NAME' makes one")
    if json:
        print_json({name: _as_dict(report) for name, report in reports.items()})
    for name, report in reports.items():
        if not json:
            say(f"{name}:")
            _print_report(report, json=False)
    _exit_if_failed(*reports.values())


add_commands(app)


@app.command("remove")
def remove(
    context: typer.Context,
    dataset: Annotated[str, typer.Argument(help="Its name, as 'catalog status' lists it.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: JsonOption = False,
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """Remove a dataset, its vectors and indexes. The files that it was built from stay."""
    from catalog.library.indexing import Indexer

    with open_library(context, home, preset) as library:
        indexer = Indexer(library)
        indexer.require_removable(dataset)
        if not yes:
            typer.confirm(f"Remove {dataset} from the store?", abort=True, err=True)
        with TerminalProgress() as progress:
            removal = indexer.remove(dataset, progress=progress)
    if json:
        print_json(asdict(removal))
        return
    say(*(f"note: {note}" for note in removal.notes))
    files = f"; the files stay in {removal.root}" if removal.root else ""
    say(f"removed {removal.documents:,} documents, {removal.chunks:,} passages{files}")


app.command("stats")(stats)


def _exit_if_failed(*reports: SyncReport) -> None:
    """End with code 1 if text could not be indexed, or documents were kept unread.

    A file that is not text, and never was, is only named.
    """
    failed = any(
        report.incomplete
        or report.unfinished
        or report.kept
        or (report.failed and report.documents == 0)
        for report in reports
    )
    if failed:
        raise typer.Exit(1)


def _print_report(report: SyncReport, *, json: bool) -> None:
    if json:
        print_json(_as_dict(report))
        return
    for failure in report.failed[:SHOWN_FAILURES]:
        complain(f"{failure.outcome}: {failure.path}: {failure.reason}")
    if len(report.failed) > SHOWN_FAILURES:
        complain(f"… and {len(report.failed) - SHOWN_FAILURES} more (--json lists all)")
    if ids := report.failed_chunks:
        more = f", and {len(ids) - SHOWN_FAILURES} more" if ids[SHOWN_FAILURES:] else ""
        complain(f"failed chunk ids: {', '.join(ids[:SHOWN_FAILURES])}{more}")
    for note in report.notes:
        say(f"note: {note}")
    if report.usage is not None and report.usage.requests:
        say(f"embedding server: {report.usage}")
    say(_summary(report))


def _summary(report: SyncReport) -> str:
    """Return the whole outcome as one line: the last that a run prints."""
    texts = report.added + report.updated + report.unchanged + report.kept
    of_texts = f" ({texts} texts; those of one recording are one document)"
    of_texts = of_texts if texts > report.documents else ""
    left_out = f", {report.left_out} left out" if report.left_out else ""
    waiting = f", {report.incomplete} not wholly embedded" if report.incomplete else ""
    return (
        f"{report.files} file{'s' * (report.files != 1)}{left_out}: "
        f"{report.documents} document{'s' * (report.documents != 1)}{of_texts}{waiting}, "
        f"{count_passages(report.chunks, report.embedded_chunks)}; "
        f"{report.added} added, {report.updated} updated, {report.removed} removed, "
        f"{report.unchanged} unchanged; "
        f"{report.seconds:.1f} s, found by words after {report.words_seconds:.1f} s"
    )


def _print_preview(preview: SyncPreview, *, json: bool) -> None:
    """Print what would be done, file by file, and the counts."""
    if json:
        print_json(asdict(preview))
        return
    parts: dict[str, list[str]] = {
        "added": list(preview.added),
        "changed": [f"{file.path}: {file.reason}" for file in preview.changed],
        "removed": list(preview.removed),
        "kept": [f"{file.path}: {file.reason}" for file in preview.kept],
    }
    for outcome in ("indexed", "not indexed"):
        told = [file for file in preview.remarks if file.outcome == outcome]
        parts[f"{outcome}:"] = [f"{file.path}: {file.reason}" for file in told]
    for name, files in parts.items():
        say(*(f"{name:13}{file}" for file in files[:SHOWN_FAILURES]))
        if len(files) > SHOWN_FAILURES:
            say(f"{name:13}… and {len(files) - SHOWN_FAILURES} more (--json lists all)")
    told_of = {"indexed:": "indexed with remarks", "not indexed:": "not indexed"}
    counts = ", ".join(f"{len(files)} {told_of.get(name, name)}" for name, files in parts.items())
    say(f"{counts}, {preview.unchanged} unchanged; no document was read, nothing written")
    for note in preview.notes:
        say(f"note: {note}")
    if preview.stopped is not None:
        say(f"the update would stop: {preview.stopped}")


def _as_dict(report: SyncReport) -> dict[str, Any]:
    return {**asdict(report), "seconds": round(report.seconds, 3)}
