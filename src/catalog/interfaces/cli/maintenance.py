"""A store's settings, models, health, caches and copies, and moving datasets out and in.

These are ``config``, ``doctor``, ``models``, ``cache``, ``backup``, ``restore``, ``export`` and
``import``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from typer import Argument, Option

from catalog.core.text import counted
from catalog.interfaces.cli.options import (
    JsonOption,
    Printed,
    command,
    open_library,
    settings_for,
    variable_of,
)
from catalog.interfaces.cli.output import TerminalProgress, heeding_termination, note, table_lines
from catalog.interfaces.plain_text import json_text, safe

if TYPE_CHECKING:
    from catalog.models.inventory import ModelEntry

SECRET = "********"  # noqa: S105 - what is shown in place of one
models = typer.Typer(
    help="Show where the files of models are, and check them.", no_args_is_help=True
)
_COLUMNS = ("", "model", "kind", "runs with", "from", "size", "hashes", "dim")
cache = typer.Typer(help="Clear the cached answers of models.", no_args_is_help=True)
_Datasets = Annotated[
    list[str] | None,
    Option("--dataset", "--project", "-d", help="Only this dataset; may be repeated."),
]


@command
def config(context: typer.Context) -> Printed:
    """Show every setting, its value, and where the value came from.

    Examples:
        catalog config
        catalog config --preset vault
    """
    from catalog.core.settings.loading import find_field, flatten, needs_rebuild

    loaded = settings_for(context)
    values = dict(flatten(loaded.settings.model_dump(mode="json", exclude={"agents"})))
    rows, lines = list[dict[str, Any]](), list[str]()
    for name, value in values.items():
        field, variable, origin = find_field(name), variable_of(name), loaded.origins.get(name)
        is_hidden = name == "answers.roles" and loaded.settings.answers.role is not None
        if value and (is_hidden or not field.repr):  # of roles, their names and levels
            value = SECRET
        elif isinstance(value, str) and ("://" in value or name.endswith("url")):
            value = _public(value)
        row = {"name": name, "value": value, "origin": origin or "default", "variable": variable}
        row |= {"description": field.description, "rebuild": needs_rebuild(name)}
        rows.append(row)
        mark = "a change needs catalog index rebuild"
        if name.startswith("rag_v2."):
            mark = "a dataset keeps its value, unless --apply-settings is given"
        mark = f"  ({mark})" if row["rebuild"] else ""
        lines.append(f"{variable} = {value}  [{row['origin']}]{mark}")
    return Printed(rows, lines)


def _public(value: str) -> str:
    """Return a value without user and password, and a web address without its query."""
    from catalog.core.text import strip_userinfo

    address = strip_userinfo(value)
    if "://" not in address:  # as of an address whose scheme was forgotten
        return re.sub(r"^[^\s/@][^\s/@:]*+:.*@", "", address, flags=re.DOTALL)
    if not address.casefold().startswith(("http://", "https://")):
        return address
    return re.sub(r"[?#].*", "?***", address, flags=re.DOTALL)


@command
def doctor(context: typer.Context) -> Printed:
    """Check the store, indexes and model; on a fault, exit 1 and print the fix.

    Examples:
        catalog doctor
        catalog doctor --json
    """
    from catalog.library.health import check, diagnose
    from catalog.retrieval.query_words import read_synonyms

    with open_library(context) as library:
        home, checks = library.settings.home, diagnose(library)
        count = lambda: counted(len(read_synonyms(home)), "synonym")  # noqa: E731
        checks.append(check("synonyms", count, "search again", home))
    lines = [
        f"{'ok  ' if check.ok else 'FAIL'}  {check.name}: {check.detail}"
        + (f"\n      fix: {check.fix}" if check.fix else "")
        for check in checks
    ]
    is_bad = not all(check.ok for check in checks)
    return Printed([*map(asdict, checks)], lines, code=int(is_bad))


@models.command("list")
@command
def list_models_here(context: typer.Context) -> Printed:
    """List the models of the settings and those that packages of this release carry.

    A star marks models that searches and answers use now, a circle models that are switched off.

    Examples:
        catalog models list
        catalog models list --json
    """
    from catalog.models.inventory import list_models

    return _models_printed(list_models(settings_for(context).settings))


@models.command("check")
@command
def check(
    context: typer.Context,
    name: str | None = Argument(None, help="A model that 'list' shows, or a folder. Default: all."),
) -> Printed:
    """Compare files with their hashes; exit with 1 if one is wrong or missing.

    Missing files count for models that are in use, or named here.

    Examples:
        catalog models check
        catalog models check BAAI/bge-small-en-v1.5
    """
    from catalog.models.inventory import check_model, list_models, named_models

    settings = settings_for(context).settings
    entries = list_models(settings) if name is None else named_models(settings, name)
    with TerminalProgress() as progress:
        progress.start(sum(entry.bytes or 0 for entry in entries), "comparing hashes")
        checked = [
            check_model(entry, partial(progress.advance, label=entry.name)) for entry in entries
        ]
    is_wrong = any(entry.is_failure or (name and entry.problem) for entry in checked)
    return _models_printed(checked)._replace(code=int(is_wrong))


@models.command("path")
def path(
    context: typer.Context,
    name: str = Argument(help="A model that 'list' shows, or one of the hub."),
    fetch: bool = Option(False, "--fetch", help="Fetch missing files from the model hub."),
    json: JsonOption = False,
) -> None:
    """Print the folder of a model; exit with 1 if it is not here.

    Examples:
        catalog models path BAAI/bge-small-en-v1.5
        catalog models path BAAI/bge-base-en-v1.5 --fetch
    """
    from catalog.core.errors import ModelUnavailableError
    from catalog.models.inventory import find_files
    from catalog.models.model_files import fetch_command

    files = find_files(settings_for(context).settings, name)
    if not files.found:
        if not fetch:
            files.require()
            raise ModelUnavailableError(f"{name} has no files here: {fetch_command(name)}")
        note(f"fetching {name}\n")
        files.fetch(is_patient=True)
    if json:
        shown = {"name": name, "kind": files.kind, "provider": files.provider}
        print(json_text({**shown, "path": files.folder}))
    else:
        print(safe(str(files.folder)))  # a path is not wrapped


def _models_printed(entries: Sequence[ModelEntry]) -> Printed:
    rows, problems = list[Sequence[str]](), list[str]()
    for entry in entries:
        mark = "*" if entry.is_on else "o" if entry.used else ""
        size = "" if entry.bytes is None else f"{entry.bytes / 1e6:,.1f} MB"
        hashes = entry.hashes if entry.origin not in (None, "elsewhere") else ""
        place, dim = entry.source or entry.origin or "missing", str(entry.dim or "")
        rows.append((mark, entry.name, entry.kind, entry.provider, place, size, hashes, dim))
        if entry.problem:
            known = entry.name in entry.problem[: len(entry.name) + 12]  # else in a path
            problems.append(entry.problem if known else f"{entry.name}: {entry.problem}")
        elif entry.sha256:
            told = f"no hash is known; the weights have SHA-256 {entry.sha256}"
            problems.append(f"{entry.name}: {told}")
    table = table_lines(_COLUMNS, rows, right=("size", "dim"))
    return Printed([*map(asdict, entries)], [*table, *problems])


@cache.command("clear")
@command
def clear_cache(context: typer.Context) -> Printed:
    """Clear the cache; documents and their vectors stay.

    Examples:
        catalog cache clear
        catalog cache clear --json
    """
    from catalog.store import llm_cache
    from catalog.store.database import has_store

    dropped = dict.fromkeys(get_args(llm_cache.Kind), 0)
    if has_store(settings_for(context).settings):
        with open_library(context) as library, library.database.write() as connection:
            dropped = {kind: llm_cache.clear(connection, kind) for kind in dropped}
    return Printed(
        {"dropped": dropped}, [f"{kind:12}{count:,} dropped" for kind, count in dropped.items()]
    )


@command
def backup(
    context: typer.Context,
    file: Path = Argument(help="File for the copy."),
    force: bool = Option(False, "--force", help="Replace an existing file."),
) -> Printed:
    """Copy the store to a file while other processes search and write.

    The copy has no indexes: they are rebuilt from the store, with no model.

    Examples:
        catalog backup catalog.backup
        catalog backup catalog.backup --force
    """
    from catalog.store.backup import back_up
    from catalog.store.database import find_store

    store = find_store(settings_for(context).settings)
    with heeding_termination(), TerminalProgress(kept="") as progress:
        size = back_up(store, file, force=force, progress=partial(progress.reach, doing="copying"))
    return Printed({"file": str(file), "bytes": size}, [f"{file}: {size:,} bytes"])


@command
def restore(
    context: typer.Context,
    file: Path = Argument(help="A copy made by catalog backup."),
    force: bool = Option(False, "--force", help="Drop the store kept from an earlier restore."),
) -> Printed:
    """Put a copy in the store's place; the replaced store is kept.

    Examples:
        catalog restore catalog.backup
        catalog restore catalog.backup --force
    """
    from catalog.core.files import new_folder
    from catalog.store.backup import restore as put_back
    from catalog.store.database import find_store

    settings = settings_for(context).settings
    with heeding_termination(), new_folder(settings.home):
        kept = put_back(file, find_store(settings), locks=settings.home / "locks", force=force)
    lines = [f"The store is now the copy {file}."]
    if kept is not None:
        lines.append(f"The replaced store is kept as {kept}: delete it when no longer needed.")
    return Printed({"restored": str(file), "kept": None if kept is None else str(kept)}, lines)


@command
def export(
    context: typer.Context,
    file: Path = Argument(help="File to write, or a folder (no extension) for chunks.jsonl."),
    dataset: _Datasets = None,
    vectors: bool = Option(
        False, "--vectors", help="With vectors, so that nothing is embedded again."
    ),
    force: bool = Option(False, "--force", help="Replace an existing file."),
) -> Printed:
    """Write datasets as lines of JSON, to be read or imported.

    Examples:
        catalog export chunks.jsonl
        catalog export notes.jsonl -d notes --vectors
    """
    from catalog.store.portable import export_chunks

    with heeding_termination(), open_library(context) as library, TerminalProgress() as progress:

        def tell(done: int, total: int, path: str) -> None:
            progress.reach(done, total, "exporting", path, f"{done:,} of {total:,} documents")

        report = export_chunks(
            library.database,
            file,
            datasets=tuple(dataset or ()),
            vectors=vectors,
            force=force,
            on_document=tell,
        )
    counts = f"{counted(report.documents, 'document')}, {counted(report.chunks, 'passage')}"
    return Printed(asdict(report), [f"{report.file}: {counts}, {report.bytes:,} bytes"])


@command
def import_(
    context: typer.Context,
    file: Path = Argument(help="File written by export, or its folder."),
    dataset: _Datasets = None,
    root: Path | None = Option(None, help="Folder from which the datasets will be updated."),
) -> Printed:
    """Take in what export wrote, ids unchanged. Safe to interrupt: run it again to continue.

    Documents in the file replace those with the same ids; all other documents stay. Passages
    without a vector are embedded. Take files only from people you trust: vectors are not checked.

    Examples:
        catalog import chunks.jsonl
        catalog import notes.jsonl -d notes --root ~/notes
    """
    from catalog.core.errors import SourceError
    from catalog.library.importing import import_chunks
    from catalog.store.portable import portable_file

    if not portable_file(file).is_file():
        raise SourceError(f"there is no file {file}: create one with 'catalog export'")
    with open_library(context, make_store=True) as library, TerminalProgress() as progress:
        report = import_chunks(
            library, file, datasets=tuple(dataset or ()), root=root, progress=progress
        )
    waiting = f"{report.waiting:,} of them wait for vectors" if report.waiting else "all embedded"
    line = (
        f"{', '.join(report.datasets)}: {counted(report.added, 'document')} added, "
        f"{report.replaced:,} replaced, {report.unchanged:,} unchanged; {report.chunks:,} "
        f"passages, {waiting}"
    )
    failed = [f"{failure.path}: {failure.reason}" for failure in report.failed]
    return Printed(asdict(report), [line], [*report.notes, *failed], code=int(bool(failed)))
