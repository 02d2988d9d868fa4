"""``catalog backup``, ``restore`` and ``migrate-store``: a copy of the store, and where it goes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from catalog.interfaces.cli.options import HomeOption, JsonOption, PresetOption, settings_for
from catalog.interfaces.cli.output import heeding_termination, note, print_json, say


def backup(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="Where to write the copy.")],
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    json: JsonOption = False,
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """Copy the store to a file, while others search and write.

    Indexes are not in it: they are made anew from the store, with no model.
    """
    from catalog.store.backup import back_up
    from catalog.store.database import find_store

    store = find_store(settings_for(context, home, preset).settings)
    with heeding_termination():
        size = back_up(store, file, force=force, progress=_Percent())
    if json:
        print_json({"file": str(file), "bytes": size})
    else:
        say(f"{file}: {size:,} bytes")


def restore(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A copy that catalog backup made.")],
    force: Annotated[
        bool, typer.Option("--force", help="Drop the store kept from an earlier restore.")
    ] = False,
    json: JsonOption = False,
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """Put a copy in the store's place; the replaced store is kept."""
    from catalog.core.private_files import new_folder
    from catalog.store.backup import restore as put_back
    from catalog.store.database import find_store

    settings = settings_for(context, home, preset).settings
    with heeding_termination(), new_folder(settings.home):
        kept = put_back(file, find_store(settings), locks=settings.home / "locks", force=force)
    if json:
        print_json({"restored": str(file), "kept": None if kept is None else str(kept)})
        return
    say(f"The store is that of {file} again.")
    if kept is not None:
        say(f"The one before is kept as {kept}: delete it when you need it no more.")


def migrate_store(
    context: typer.Context,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="url",
            help="Where: postgresql://user@host/database, or sqlite:////folder/catalog.db.",
        ),
    ],
    json: JsonOption = False,
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """Copy the store into an empty database: Postgres or a file.

    The store stays where it is, too; set IDX_DATABASE_URL to use the copy.
    """
    from catalog.interfaces.cli.options import open_library
    from catalog.store.backup import copy_store
    from catalog.store.database import Database

    with open_library(context, home, preset) as library:
        target = Database(to, library.settings.home)
        try:
            counts = copy_store(library.database, target, _tell_rows)
        finally:
            target.close()
    if json:
        print_json({"rows": counts})
        return
    told = ", ".join(f"{counts[name]:,} {name}" for name in ("documents", "chunks", "embeddings"))
    say(f"Copied and compared: {told}, and all else.", "To use it, set IDX_DATABASE_URL to it.")


def _tell_rows(table: str, count: int) -> None:
    if count % 50_000 == 0:
        note(f"{table}: {count:,} rows\n")


class _Percent:
    """Say on standard error how far a copy is, at each tenth."""

    def __init__(self) -> None:
        self._tenths = 0

    def __call__(self, done: int, total: int) -> None:
        tenth = 10 * done // max(total, 1)
        if tenth > self._tenths and done < total:
            self._tenths = tenth
            note(f"{tenth}0 %\n")
