"""``catalog index``: build, update, rebuild and remove datasets, and try another model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from catalog.core.errors import CatalogError
from catalog.core.text import counted
from catalog.interfaces.cli import options
from catalog.interfaces.cli.output import TerminalProgress
from catalog.interfaces.terminal import count_passages, describe_origin

if TYPE_CHECKING:
    from catalog.ingest.changes import SyncPreview
    from catalog.ingest.sync_report import SyncReport
    from catalog.library.health import DatasetStats

SHOWN_FAILURES = 20
_REASONS_SHOWN = 10
app = typer.Typer(help="Build and maintain datasets.", no_args_is_help=True)
ApplyOption = Annotated[
    bool,
    Option(
        "--apply-settings",
        help="If the dataset was made with other settings, cut all documents again with the "
        "settings of this call, and keep these.",
    ),
]
RereadOption = Annotated[
    bool, Option("--reread", help="Read every document again, changed or not.")
]
DeletionsOption = Annotated[
    bool,
    Option(
        "--allow-deletions", help="Remove documents even if most files, or their drive, are gone."
    ),
]


@app.command("build")
@options.command
def build(
    context: typer.Context,
    folders: list[Path] | None = Argument(
        None, metavar="folder", help="Folders or files. Default: the dataset's folder, read again."
    ),
    dataset: str | None = Option(
        None, "--dataset", "-d", help="Name of the dataset. Default: the name of each folder."
    ),
    include: list[str] | None = Option(
        None, "--include", help="Only files matching this glob; '' drops the stored ones."
    ),
    exclude: list[str] | None = Option(
        None, "--exclude", help="Not files matching this glob; '' drops the stored ones."
    ),
    reread: RereadOption = False,
    apply_settings: ApplyOption = False,
    allow_deletions: DeletionsOption = False,
    ray: options.RayOption = None,
) -> options.Printed:
    """Index a folder as a dataset, or several. Safe to interrupt: run it again to continue.

    An existing dataset keeps the settings it was made with, and its --include and --exclude unless
    new ones are given. Without a folder, every document of the dataset is read and cut again;
    unchanged texts keep their vectors.

    Examples:
        catalog index build ~/notes
        catalog index build ~/papers -d papers --include "*.pdf" --exclude "drafts/*"
    """
    if not folders and (include or exclude):
        raise typer.BadParameter("these need a folder", param_hint="--include/--exclude")
    if dataset is not None and len(folders or ()) > 1:
        raise typer.BadParameter("one dataset has one folder", param_hint="--dataset")
    from catalog.library.names import dataset_name

    with options.reading_options():
        named = {dataset or dataset_name(folder): folder for folder in folders or ()}
    if len(named) < len(folders or ()):
        raise typer.BadParameter("two have the same name: build each with --dataset")
    library = options.open_library(context, make_store=bool(named), embeds=True, ray=ray)
    from catalog.library.indexing import Indexer  # after a missing model is told

    with library, TerminalProgress() as progress:
        told: dict[str, Any] = {"apply_settings": apply_settings, "progress": progress}
        told |= {"allow_deletions": allow_deletions, "reread": reread or not named}
        kept, indexer = {"include": include, "exclude": exclude}, Indexer(library)
        masks: dict[str, Any] = {
            k: tuple(filter(None, it)) if it else None for k, it in kept.items()
        }

        def run(name: str) -> options.Printed:
            if name in named:
                report = indexer.build(named[name], name, **told, **masks)
            else:
                report = indexer.update(name, **told)
            shown = _printed(report)
            is_told = dataset is None and len(named) == 1
            lines = [f"dataset: {name}", *shown.lines] if is_told else shown.lines
            return shown._replace(lines=lines, code=int(shown.code or report.documents == 0))

        return _of_each([*named] or [library.chosen_dataset(dataset)], run)


@app.command("update")
@options.command
def update(
    context: typer.Context,
    dataset: options.DatasetsOption = None,
    watch: bool = Option(False, "--watch", help="Keep running and follow the folder's changes."),
    dry_run: bool = Option(False, "--dry-run", help="Show what would be done, and do nothing."),
    reread: RereadOption = False,
    apply_settings: ApplyOption = False,
    allow_deletions: DeletionsOption = False,
    ray: options.RayOption = None,
) -> Iterator[options.Printed]:
    """Index the changes in the folder of a dataset, or of several, since the last run.

    Documents are cut with the settings that the dataset was made with, not those of this call. To
    change its --include or --exclude, use 'catalog index build FOLDER'.

    Ends with code 1 if a file, folder or drive could not be read, or a text could not be embedded.
    Documents of such files do not change, and the output names them.

    Examples:
        catalog index update
        catalog index update -d notes -d papers --dry-run
    """
    if watch and (dry_run or len(dataset or ()) > 1):
        why = "a dry run cannot watch" if dry_run else "it follows one dataset"
        raise typer.BadParameter(why, param_hint="--watch")
    told: dict[str, Any] = {
        "allow_deletions": allow_deletions, "reread": reread, "apply_settings": apply_settings,
    }  # fmt: skip
    library = options.open_library(context, embeds=True, ray=ray)
    from catalog.library.indexing import Indexer

    with library:
        indexer = Indexer(library)
        names = [*dict.fromkeys(map(library.chosen_dataset, dataset or (None,)))]
        if dry_run:
            yield _of_each(names, lambda name: _preview(indexer.preview(name, **told)))
            return
        if watch:
            from catalog.interfaces.cli.folder_watch import follow

            for report in follow(indexer, names[0], told):
                yield _printed(report)._replace(code=0)
        with TerminalProgress() as progress:
            told["progress"] = progress
            shown = _of_each(names, lambda name: _printed(indexer.update(name, **told)))
    yield shown


@app.command("rebuild")
@options.command
def rebuild(
    context: typer.Context,
    keep_settings: bool = Option(
        False, "--keep-settings", help="Keep the settings of each dataset."
    ),
    indexes: bool = Option(False, "--all", help="Only the indexes, from the store."),
    ray: options.RayOption = None,
) -> options.Printed:
    """Read and embed every dataset again, for example with another model.

    Documents are cut with the settings of this call, or with --keep-settings as before. With --all
    only indexes are rebuilt from the store, without reading documents or asking a model.

    Examples:
        catalog index rebuild --keep-settings
        catalog index rebuild --all
    """
    if indexes:
        if keep_settings:
            raise typer.BadParameter("no document is cut", param_hint="--keep-settings")
        from catalog.library.indexing import rebuild_indexes

        with options.open_library(context) as library, TerminalProgress() as progress:
            done = rebuild_indexes(library, progress=progress)
        lines = [f"{name}: indexes rebuilt, {points:,} points" for name, points in done.items()]
        return options.Printed(done, lines)
    library = options.open_library(context, embeds=True, ray=ray)
    from catalog.library.indexing import Indexer

    with library, TerminalProgress() as progress:
        reports = Indexer(library).rebuild(keep_settings=keep_settings, progress=progress)
    shown = _together({name: _printed(report) for name, report in reports.items()})
    none = ["no dataset to rebuild: create one with 'catalog index build FOLDER'"]
    return shown._replace(lines=shown.lines or none)


@app.command("remove")
@options.command
def remove(
    context: typer.Context,
    dataset: str = Argument(help="Name of the dataset, see 'catalog status'."),
    doc: str | None = Option(None, "--doc", help="Only this document: its path, or #docid."),
    yes: bool = Option(False, "--yes", help="Do not ask."),
) -> options.Printed:
    """Remove a dataset, or one document of it. The files that it was built from stay.

    Examples:
        catalog index remove notes
        catalog index remove notes --doc drafts/plan.md --yes
    """
    from catalog.library.indexing import Indexer

    with options.open_library(context) as library:
        indexer = Indexer(library)
        indexer.require_removable(dataset)
        if not yes:
            what = dataset if doc is None else f"{doc} of {dataset}"
            typer.confirm(f"Remove {what} from the store?", abort=True, err=True)
        with TerminalProgress() as progress:
            if doc is None:
                removal = indexer.remove(dataset, progress=progress)
            else:
                removal = indexer.remove_document(dataset, doc, progress=progress)
    files = f"; the files stay in {removal.root}" if removal.root else ""
    what = f"{counted(removal.documents, 'document')}, {counted(removal.chunks, 'passage')}"
    notes = [f"note: {note}" for note in removal.notes]
    return options.Printed(asdict(removal), [*notes, f"removed {what}{files}"])


@app.command("stats")
@options.command
def stats(context: typer.Context, dataset: options.DatasetsOption = None) -> options.Printed:
    """Show the numbers of a dataset, or of several: files, passages, languages and folder.

    Examples:
        catalog index stats
        catalog index stats -d notes --json
    """
    from catalog.library.indexing import Indexer

    with options.open_library(context) as library:
        names = dict.fromkeys(map(library.chosen_dataset, dataset or (None,)))
        return _of_each([*names], lambda name: _stats(Indexer(library).stats(name)))


def _of_each(names: Sequence[str], run: Callable[[str], options.Printed]) -> options.Printed:
    """Run for each dataset; the error of one among several does not keep the others from theirs."""
    if len(names) == 1:
        return run(names[0])
    shown: dict[str, options.Printed] = {}
    for name in names:
        try:
            shown[name] = run(name)
        except CatalogError as error:
            shown[name] = options.Printed({"error": str(error)}, (), [f"{name}: {error}"], code=1)
    return _together(shown)


def _together(shown: Mapping[str, options.Printed]) -> options.Printed:
    """Return the outputs of several datasets as one, by their names."""
    return options.Printed(
        {name: one.data for name, one in shown.items()},
        [line for name, one in shown.items() for line in (f"{name}:", *one.lines)],
        [note for one in shown.values() for note in one.notes],
        code=max((one.code for one in shown.values()), default=0),
    )


def _stats(stats: DatasetStats) -> options.Printed:
    """Print the counts, and why files are missing."""
    files = stats.files
    share = "" if files.coverage is None else f", {files.coverage:.1%} of those with text"
    lines = [f"{'files':15} {files.indexed} of {files.listed} indexed{share}"]
    for reasons, outcome in ((files.reasons, "not"), (files.partly, "not wholly, or not as it is")):
        told = [f"{count} {outcome}: {reason}" for reason, count in reasons.items()]
        lines += (f"{'':15} {line}" for line in _first(told, _REASONS_SHOWN))
    kinds, languages = (
        ", ".join(f"{count} {name}" for name, count in counts.items())
        for counts in (stats.modalities, stats.languages)
    )
    updated = datetime.fromtimestamp(stats.updated_at, tz=UTC)
    for name, value in (
        ("documents", stats.documents),
        ("chunks", f"{stats.chunks} ({kinds})" if kinds else stats.chunks),
        ("languages", languages or "not known yet"),
        ("embedded", f"{stats.embedded} of {counted(stats.chunks, 'passage')}"),
        ("database", f"{stats.database_bytes / 1e6:.1f} MB, all datasets"),
        ("updated", f"{updated:%Y-%m-%d %H:%M:%S} UTC"),
        ("folder", stats.root or "none: filled by a pipeline"),
        ("made with", describe_origin(stats.preset, stats.settings)),
    ):
        lines.append(f"{name:15} {value}")
    return options.Printed(asdict(stats), lines)


def _printed(report: SyncReport) -> options.Printed:
    """Print a run's result. It failed if text could not be indexed, or documents were kept unread.

    A file that is not text, and never was, is only named.
    """
    lines = [f"note: {note}" for note in report.notes]
    if report.usage is not None and report.usage.requests:
        lines.append(f"embedding server: {report.usage}")
    failed = [f"{failure.outcome}: {failure.path}: {failure.reason}" for failure in report.failed]
    notes = [*_first(failed, SHOWN_FAILURES)]
    if report.failed_chunks:
        notes.append(f"failed chunk ids: {', '.join(_first(report.failed_chunks, SHOWN_FAILURES))}")
    is_lost = report.incomplete or report.unfinished or report.kept
    is_bad = is_lost or (report.failed and report.documents == 0)
    data = {**asdict(report), "seconds": round(report.seconds, 3)}
    return options.Printed(data, [*lines, _summary(report)], notes, code=int(bool(is_bad)))


def _first(lines: Sequence[str], most: int) -> Iterator[str]:
    """Yield the first lines, and how many more there are."""
    yield from lines[:most]
    if len(lines) > most:
        yield f"… and {len(lines) - most} more (--json lists all)"


def _summary(report: SyncReport) -> str:
    """Return the whole outcome as one line: the last that a run prints."""
    texts = report.added + report.updated + report.unchanged + report.kept
    of_texts = f" ({texts} texts; those of one recording are one document)"
    of_texts = of_texts if texts > report.documents else ""
    left_out = f", {report.left_out} left out" if report.left_out else ""
    waiting = f", {report.incomplete} only partly embedded" if report.incomplete else ""
    return (
        f"{counted(report.files, 'file')}{left_out}: {counted(report.documents, 'document')}"
        f"{of_texts}{waiting}, {count_passages(report.chunks, report.embedded_chunks)}; "
        f"{report.added} added, {report.updated} updated, {report.removed} removed, "
        f"{report.unchanged} unchanged; {report.seconds:.1f} s, found by words after "
        f"{report.words_seconds:.1f} s"
    )


def _preview(preview: SyncPreview) -> options.Printed:
    """Print what would be done, file by file, and the counts."""
    shown = list[str]()
    parts: dict[str, Sequence[Any]] = {"added": preview.added, "changed": preview.changed}
    parts |= {"removed": preview.removed, "kept": preview.kept}
    for outcome in ("indexed", "not indexed"):
        parts[f"{outcome}:"] = [file for file in preview.remarks if file.outcome == outcome]
    for name, files in parts.items():
        lines = [one if isinstance(one, str) else f"{one.path}: {one.reason}" for one in files]
        shown += (f"{name:13}{line}" for line in _first(lines, SHOWN_FAILURES))
    told_of = {"indexed:": "indexed with remarks", "not indexed:": "not indexed"}
    counts = (f"{len(files)} {told_of.get(name, name)}" for name, files in parts.items())
    shown.append(f"{', '.join(counts)}, {preview.unchanged} unchanged; nothing was read or written")
    shown += (f"note: {note}" for note in preview.notes)
    if preview.stopped is not None:
        shown.append(f"the update would stop: {preview.stopped}")
    return options.Printed(asdict(preview), shown)
