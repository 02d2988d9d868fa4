"""One thing examined for ``catalog doctor``; and what is examined around the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote

from catalog.core.errors import (
    CatalogError,
    ConfigError,
    EngineBlockedError,
    EngineLockedError,
    EngineUnreachableError,
    StoreError,
)
from catalog.core.files import errno_of, find_open_to_others, remedy
from catalog.library.library import Library
from catalog.store.backup import KEPT, find_stale_drafts
from catalog.store.statistics import count_orphans, find_damage
from catalog.store.tried_models import count_tried, list_tried

RESTORE = "catalog restore FILE, with a copy made by catalog backup"
_REINDEX = "catalog index rebuild --lexical"
_START_SERVER = "start the server, or correct IDX_RAG_V2__QDRANT_URL"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing examined; ``fix`` is the command to run, or what else to do, when not ``ok``."""

    name: str
    ok: bool
    detail: str
    fix: str = ""


def run_check(name: str, examine: Callable[[], str], fix: str, place: Path) -> Check:
    """Run a check; ``fix`` is for a defect, since for want of rights or room it would fail, too."""
    try:
        return Check(name, ok=True, detail=examine())
    except EngineLockedError as error:  # who holds it, a server say, looks after it
        return Check(name, ok=True, detail=f"not looked into: {error}")
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what was looked for
        if isinstance(error, ConfigError | EngineBlockedError):
            fix = f"see to what it says, then {fix.removesuffix(' --reread')}"
        if isinstance(error, EngineUnreachableError):
            fix = _START_SERVER
        fix = remedy(errno_of(error), place) or fix
        return Check(name, ok=False, detail=describe_error(error), fix=fix)


def describe_error(error: Exception) -> str:
    return str(error) if isinstance(error, CatalogError) else f"{type(error).__name__}: {error}"


def check_database(library: Library) -> Check:
    """Check the database; damage in its indexes alone needs no copy to be put back."""
    are_rows_sound = False

    def examine() -> str:
        nonlocal are_rows_sound
        with library.database.read() as connection:
            if (damage := find_damage(connection)) is not None:
                problem, are_rows_sound = damage
                raise CatalogError(problem)
            orphans = count_orphans(connection)
        if broken := {name: count for name, count in orphans.items() if count}:
            raise CatalogError(f"rows without an owner: {broken}")
        return "sound"

    check = run_check("database", examine, RESTORE, library.database.file)
    return replace(check, fix=_REINDEX) if are_rows_sound else check


def trial_checks(library: Library) -> Iterator[Check]:
    """Tell of each model that is tried how much it has; none of them is a defect."""
    with suppress(StoreError), library.database.read() as connection:
        for tried in list_tried(connection):
            counts = count_tried(connection, tried)
            detail = (
                f"{counts.embedded} of {counts.passages} passages, {counts.bytes / 1e6:.1f} MB; "
                "waits for 'catalog index adopt' or 'drop'"
            )
            yield Check(f"tried model {tried.name}", ok=True, detail=detail)


def permission_checks(library: Library) -> Iterator[Check]:
    """Tell whether other users of this machine may read the store, or only see that it is there."""
    home, store = library.settings.home, library.database.file
    files = find_open_to_others(*(Path(f"{store}{ending}") for ending in ("", "-wal", "-shm")))
    folders = find_open_to_others(home, home / "indexes")
    commands = [f"chmod 700 {' '.join(map(quote, map(str, folders)))}"] if folders else []
    if files:
        commands.append(f"chmod 600 {' '.join(map(quote, map(str, files)))}")
    detail = "only you may read the store"
    if files or folders:
        names = ", ".join(path.name for path in (*files, *folders))
        detail = f"other users of this machine may read or enter: {names}"
    yield Check("permissions", not files, detail, "; ".join(commands))


def draft_checks(library: Library) -> Iterator[Check]:
    """Name the copies of documents that killed commands left in the folder of the store."""
    folders = {library.settings.home, library.database.file.parent}
    drafts = [draft for folder in sorted(folders) for draft in find_stale_drafts(folder)]
    kept = library.database.file.with_name(library.database.file.name + KEPT)
    detail = f"none; {kept.name} is kept of a restore" if kept.exists() else "none"
    if drafts:
        names = ", ".join(draft.name for draft in drafts)
        detail = f"a command that was killed left unfinished copies of documents: {names}"
    fix = f"rm -f {' '.join(f'{quote(str(draft))}*' for draft in drafts)}" if drafts else ""
    yield Check("drafts", not drafts, detail, fix)


def server_checks(library: Library) -> Iterator[Check]:
    """Tell whether the Qdrant server answers, if one is set."""
    rag = library.settings.rag_v2
    url = rag.qdrant_url
    if url is None or "qdrant" not in (rag.vector_engine, rag.lexical_engine):
        return
    from catalog.store.vectors.qdrant_server import describe_server

    seconds = rag.qdrant.timeout_seconds
    yield run_check(
        "Qdrant server",
        lambda: describe_server(url, rag.qdrant_api_key, seconds),
        "correct IDX_RAG_V2__QDRANT_API_KEY",
        library.settings.home,
    )
