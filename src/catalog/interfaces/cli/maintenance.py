"""A store's settings, health, caches and copies, and moving datasets out of it and into it.

These are ``config``, ``doctor``, ``cache``, ``backup``, ``restore``, ``export`` and ``import``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer
from typer import Argument, Option

from catalog.core.text import counted
from catalog.interfaces.cli.options import (
    Printed,
    command,
    known_name,
    open_library,
    settings_for,
    variable_of,
)
from catalog.interfaces.cli.output import TerminalProgress, heeding_termination, note

SECRET = "********"  # noqa: S105 - what is shown in place of one
CacheKind = Literal["expansion", "rerank", "answer"]
CACHE_KINDS: tuple[CacheKind, ...] = get_args(CacheKind)
_DATASETS_OWN = "a dataset keeps its value, unless --apply-settings is given"
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
        if value is not None and not field.repr:
            value = SECRET
        elif isinstance(value, str) and ("://" in value or name.endswith("url")):
            value = _public(value)
        row = {"name": name, "value": value, "origin": origin or "default", "variable": variable}
        row |= {"description": field.description, "rebuild": needs_rebuild(name)}
        rows.append(row)
        is_noted = name.startswith("rag_v2.")
        mark = f"  ({_DATASETS_OWN if is_noted else 'a change needs catalog index rebuild'})"
        lines.append(f"{variable} = {value}  [{row['origin']}]{mark if row['rebuild'] else ''}")
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
    from catalog.library.health import diagnose

    with open_library(context) as library:
        checks = diagnose(library)
    lines = [
        f"{'ok  ' if check.ok else 'FAIL'}  {check.name}: {check.detail}"
        + (f"\n      fix: {check.fix}" if check.fix else "")
        for check in checks
    ]
    is_bad = not all(check.ok for check in checks)
    return Printed([*map(asdict, checks)], lines, code=int(is_bad))


@cache.command("clear")
@command
def clear_cache(
    context: typer.Context,
    kind: str | None = Option(None, help="Only these: expansion, rerank or answer."),
) -> Printed:
    """Clear the cache, or one kind of it; documents and their vectors stay.

    Examples:
        catalog cache clear
        catalog cache clear --kind rerank
    """
    from catalog.store import llm_cache
    from catalog.store.database import has_store

    kinds = CACHE_KINDS if kind is None else (known_name("--kind", kind, CACHE_KINDS),)
    dropped = dict.fromkeys(kinds, 0)
    if has_store(settings_for(context).settings):
        with open_library(context) as library, library.database.write() as connection:
            dropped = {one: llm_cache.clear(connection, one) for one in kinds}
    lines = (f"{name:12}{count:,} dropped" for name, count in dropped.items())
    return Printed({"dropped": dropped}, lines)


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
    with heeding_termination():
        size = back_up(store, file, force=force, progress=_say_tenths())
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


def _say_tenths() -> Callable[[int, int], None]:
    """Return what says on standard error how far a copy is, at each tenth."""
    told = 0

    def tell(done: int, total: int) -> None:
        nonlocal told
        if told < (tenth := 10 * done // max(total, 1)) < 10:
            told = tenth
            note(f"{tenth}0 %\n")

    return tell


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
            if done == 1:
                progress.start(total, "exporting")
            progress.advance(1, path, f"{done:,} of {total:,} documents")

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
