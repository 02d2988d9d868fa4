"""``catalog index``: build, update, rebuild and remove datasets, and try another model."""

from __future__ import annotations

import re
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from catalog.core.text import counted
from catalog.interfaces.cli.options import (
    DatasetOption,
    JsonOption,
    RayOption,
    open_library,
)
from catalog.interfaces.cli.output import (
    TerminalProgress,
    complain,
    print_json,
    print_stats,
    say,
)
from catalog.interfaces.terminal import count_passages

if TYPE_CHECKING:
    from catalog.ingest.changes import SyncPreview
    from catalog.ingest.sync_report import SyncReport


VectorsOption = Annotated[
    bool, typer.Option("--vectors", help="Only the vector indexes, from the store.")
]
LexicalOption = Annotated[
    bool,
    typer.Option(
        "--lexical", help="Only the keyword indexes, and the database's own, from the store."
    ),
]
BothOption = Annotated[bool, typer.Option("--all", help="Both kinds of indexes, from the store.")]


def rebuild_derived(
    context: typer.Context,
    vectors: bool,
    lexical: bool,
    json: bool,
) -> None:
    """Rebuild the indexes of every dataset, and print a report."""
    from catalog.library.indexing import rebuild_indexes

    with open_library(context) as library, TerminalProgress() as progress:
        done = rebuild_indexes(library, vectors=vectors, lexical=lexical, progress=progress)
    if json:
        print_json(done)
        return
    for name, made in done.items():
        points = f"vector index of {made['vectors']:,} points" if "vectors" in made else ""
        words = "keyword index" if "lexical" in made else ""
        say(f"{name}: {' and '.join(filter(None, (words, points)))} rebuilt")


SHOWN_FAILURES = 20
app = typer.Typer(help="Build and maintain datasets.", no_args_is_help=True)
ApplyOption = Annotated[
    bool,
    typer.Option(
        "--apply-settings",
        help="If the dataset was made with other settings, cut all documents again with the "
        "settings of this call, and keep these.",
    ),
]
RereadOption = Annotated[
    bool, typer.Option("--reread", help="Read every document again, changed or not.")
]
DeletionsOption = Annotated[
    bool,
    typer.Option(
        "--allow-deletions", help="Remove documents even if most files, or their drive, are gone."
    ),
]


@app.command("build")
def build(
    context: typer.Context,
    folder: Annotated[
        Path | None,
        typer.Argument(help="A folder or file. Default: the dataset's folder, read again."),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            "--dataset", "-d", help="Name of the dataset. Default: the name of the folder."
        ),
    ] = None,
    include: Annotated[
        list[str] | None,
        typer.Option("--include", help="Only files matching this glob; '' drops the stored ones."),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option("--exclude", help="Not files matching this glob; '' drops the stored ones."),
    ] = None,
    reread: RereadOption = False,
    apply_settings: ApplyOption = False,
    allow_deletions: DeletionsOption = False,
    ray: RayOption = None,
    json: JsonOption = False,
) -> None:
    """Index a folder as a dataset. Safe to interrupt: run it again to continue.

    An existing dataset keeps the settings it was made with, and its --include and --exclude unless
    new ones are given. Without a folder, every document of the dataset is read and cut again;
    unchanged texts keep their vectors.

    Examples:
        catalog index build ~/notes
        catalog index build ~/papers -d papers --include "*.pdf" --exclude "drafts/*"
    """
    if folder is not None and dataset is None:
        dataset = _name_of(folder)
        if not json:
            say(f"dataset: {dataset}")
    if folder is None and (include or exclude):
        raise typer.BadParameter("these need a folder", param_hint="--include/--exclude")
    library = open_library(
        context,
        make_store=folder is not None,
        embeds=True,
        ingest={"ray": ray},
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
                include=tuple(filter(None, include)) if include else None,
                exclude=tuple(filter(None, exclude)) if exclude else None,
                reread=reread,
                apply_settings=apply_settings,
                allow_deletions=allow_deletions,
                progress=progress,
            )
    _print_report(report, json=json)
    _exit_if_failed(report)
    if report.documents == 0:
        raise typer.Exit(1)


def _name_of(folder: Path) -> str:
    """Return a dataset's name for a folder or file."""
    path = folder.expanduser().resolve()
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem if path.is_file() else path.name)
    if not (name := name.strip("-._")[:100]):
        raise typer.BadParameter("name the dataset with --dataset", param_hint="--dataset")
    return name


@app.command("update")
def update(
    context: typer.Context,
    dataset: DatasetOption = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Keep running and follow the folder's changes.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")
    ] = False,
    reread: RereadOption = False,
    apply_settings: ApplyOption = False,
    allow_deletions: DeletionsOption = False,
    ray: RayOption = None,
    json: JsonOption = False,
) -> None:
    """Index the changes in a dataset's folder since the last run.

    Documents are cut with the settings that the dataset was made with, not those of this call. To
    change its --include or --exclude, use 'catalog index build FOLDER'.

    Ends with code 1 if a file, folder or drive could not be read, or a text could not be embedded.
    Documents of such files do not change, and the output names them.

    Examples:
        catalog index update
        catalog index update -d notes --dry-run
    """
    if dry_run and watch:
        raise typer.BadParameter("a dry run cannot watch", param_hint="--dry-run/--watch")
    told: dict[str, Any] = {
        "allow_deletions": allow_deletions,
        "reread": reread,
        "apply_settings": apply_settings,
    }
    library = open_library(context, embeds=True, ingest={"ray": ray})
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
        bool, typer.Option("--keep-settings", help="Keep the settings of each dataset.")
    ] = False,
    vectors: VectorsOption = False,
    lexical: LexicalOption = False,
    both: BothOption = False,
    ray: RayOption = None,
    json: JsonOption = False,
) -> None:
    """Read and embed every dataset again, for example with another model.

    Documents are cut with the settings of this call, or with --keep-settings as before. With
    --vectors, --lexical or --all only indexes are rebuilt from the store, without reading documents
    or asking a model.

    Examples:
        catalog index rebuild --keep-settings
        catalog index rebuild --vectors
    """
    if vectors or lexical or both:
        if keep_settings:
            raise typer.BadParameter("no document is cut", param_hint="--keep-settings")
        rebuild_derived(context, vectors or both, lexical or both, json)
        return
    library = open_library(context, embeds=True, ingest={"ray": ray})
    from catalog.library.indexing import Indexer

    with library, TerminalProgress() as progress:
        reports = Indexer(library).rebuild(keep_settings=keep_settings, progress=progress)
    if not reports and not json:
        say("no dataset to rebuild: create one with 'catalog index build FOLDER'")
    if json:
        print_json({name: _as_dict(report) for name, report in reports.items()})
    for name, report in reports.items():
        if not json:
            say(f"{name}:")
            _print_report(report, json=False)
    _exit_if_failed(*reports.values())


@app.command("remove")
def remove(
    context: typer.Context,
    dataset: Annotated[str, typer.Argument(help="Name of the dataset, see 'catalog status'.")],
    doc: Annotated[
        str | None, typer.Option("--doc", help="Only this document: its path, or #docid.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: JsonOption = False,
) -> None:
    """Remove a dataset, or one document of it. The files that it was built from stay.

    Examples:
        catalog index remove notes
        catalog index remove notes --doc drafts/plan.md --yes
    """
    from catalog.library.indexing import Indexer

    with open_library(context) as library:
        indexer = Indexer(library)
        indexer.require_removable(dataset)
        if not yes:
            what = dataset if doc is None else f"{doc} of {dataset}"
            typer.confirm(f"Remove {what} from the store?", abort=True, err=True)
        one = None if doc is None else partial(indexer.remove_document, dataset, doc)
        with TerminalProgress() as progress:
            removal = (one or partial(indexer.remove, dataset))(progress=progress)
    if json:
        print_json(asdict(removal))
        return
    say(*(f"note: {note}" for note in removal.notes))
    files = f"; the files stay in {removal.root}" if removal.root else ""
    say(
        f"removed {counted(removal.documents, 'document')}, "
        f"{counted(removal.chunks, 'passage')}{files}"
    )


@app.command("stats")
def stats(
    context: typer.Context,
    dataset: DatasetOption = None,
    json: JsonOption = False,
) -> None:
    """Show the numbers of a dataset: files, passages and their sizes.

    Examples:
        catalog index stats
        catalog index stats -d notes --json
    """
    from catalog.library.indexing import Indexer

    with open_library(context) as library:
        counts = Indexer(library).stats(library.chosen_dataset(dataset))
    if json:
        print_json(asdict(counts))
    else:
        print_stats(counts)


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
    waiting = f", {report.incomplete} only partly embedded" if report.incomplete else ""
    return (
        f"{report.files} file{'s' * (report.files != 1)}{left_out}: {report.documents} "
        f"document{'s' * (report.documents != 1)}{of_texts}{waiting}, "
        f"{count_passages(report.chunks, report.embedded_chunks)}; {report.added} added, "
        f"{report.updated} updated, {report.removed} removed, {report.unchanged} unchanged; "
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
    say(f"{counts}, {preview.unchanged} unchanged; nothing was read or written")
    for note in preview.notes:
        say(f"note: {note}")
    if preview.stopped is not None:
        say(f"the update would stop: {preview.stopped}")


def _as_dict(report: SyncReport) -> dict[str, Any]:
    return {**asdict(report), "seconds": round(report.seconds, 3)}
