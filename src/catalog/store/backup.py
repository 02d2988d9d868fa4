"""Back up a store in a file, and restore it, by SQLite's own API (https://sqlite.org/backup.html).

Other processes may read and write the store meanwhile.
"""

import os
import re
import secrets
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from sqlalchemy import update
from sqlalchemy.engine import URL

from catalog.core.errors import InputError, StoreDamagedError, StoreError
from catalog.core.files import describe_os_error
from catalog.store.database import RESTORE_LOCK, Database, hold_lock, translate_errors
from catalog.store.schema import BUSY_TIMEOUT_MS, datasets

Progress = Callable[[int, int], None]  # pages copied, pages in all
KEPT = ".before-restore"
_MAGIC = b"SQLite format 3\0"
_PAGES = 2_000  # copied between two calls of progress; signals such as Ctrl-C wait for a call
_DRAFT = re.compile(r"\.catalog-draft-([0-9]+)-[0-9a-f]{32}")  # with the number of its process
_drafts: set[Path] = set()  # that this process writes


def back_up(store: Path, to: Path, *, force: bool = False, progress: Progress | None = None) -> int:
    """Copy the state of the store at one moment to a file; return the file's size in bytes.

    Only the user can read the file (mode 0600), which appears when it is complete. Raises
    :class:`InputError` if it exists already (``force`` replaces it), and :class:`StoreError` kinds.
    """
    if to.exists() and store.exists() and to.samefile(store):
        raise InputError(f"{to} is the store itself: choose another name")
    if to.exists() and not force:
        raise InputError(f"{to} exists: choose another name, or --force to replace it")
    if not store.is_file():
        raise InputError(f"there is no store at {store}")
    with draft_beside(to) as draft:
        _copy(store, draft, progress)
        _require_sound(draft, store)
        draft.replace(to)
    return to.stat().st_size


def restore(copy: Path, store: Path, *, locks: Path, force: bool = False) -> Path | None:
    """Replace the store by a copy; return the file in which the replaced store is kept.

    That file is ``catalog.db.before-restore``; without a store there, ``None`` is returned. All
    indexes are built again before their next use. Processes that have the store open go on with the
    copy. ``locks`` is the folder of the datasets' locks. Raises :class:`InputError` if the copy is
    not a store or if an earlier replaced store is still kept (``force`` drops it), and
    :class:`StoreError` kinds: :class:`StoreBusyError` while a dataset is being updated.
    """
    if not copy.is_file():
        raise InputError(f"there is no copy of a store at {copy}")
    if store.exists() and copy.samefile(store):
        raise InputError(f"{copy} is the store itself, not a copy of it")
    try:
        with copy.open("rb") as file:
            is_database = file.read(len(_MAGIC)) == _MAGIC
    except OSError as error:
        raise StoreError(f"cannot read {describe_os_error(copy, error)}") from error
    if not is_database:
        raise InputError(f"{copy} is not a copy of a store")
    kept = store.with_name(store.name + KEPT)
    if kept.exists() and not force:
        raise InputError(
            f"{kept} is left from an earlier restore: move it away, or --force to delete it"
        )
    with ExitStack() as held, draft_beside(store) as draft:
        # without a log next to it nobody writes it, so SQLite need not make one there
        is_still = not any(Path(f"{copy}-{log}").exists() for log in ("wal", "journal"))
        _copy(copy, draft, is_still=is_still)
        _require_sound(draft, copy)
        opened = closing(Database(URL.create("sqlite", database=str(draft))))
        with opened as database, database.write() as connection:  # no index is derived of it
            connection.execute(update(datasets).values(state=secrets.token_hex(8)))
        names = {one.name for one in locks.glob("*.lock")} - {"serve.lock", RESTORE_LOCK}
        for name in (RESTORE_LOCK, *sorted(names)):
            busy = "the store is being updated; try again afterwards"
            held.enter_context(hold_lock(locks / name, seconds=0, busy=busy))
        if not store.exists():
            draft.replace(store)
            return None
        try:
            back_up(store, kept, force=True)
            _copy(draft, store)
        except StoreDamagedError:
            for ending in ("", "-wal", "-shm"):  # so that the rest can be rescued
                with suppress(FileNotFoundError):
                    Path(f"{store}{ending}").replace(f"{kept}{ending}")
            draft.replace(store)
    return kept


def _copy(
    source: Path, target: Path, progress: Progress | None = None, *, is_still: bool = False
) -> None:
    """Copy one state of a database into another file, or over a database that may be open."""
    tell = (lambda _, left, of: progress(of - left, of)) if progress else (lambda *_: None)
    address, seconds = source.absolute().as_uri(), BUSY_TIMEOUT_MS / 1000
    uri = f"{address}?mode=ro&immutable={int(is_still)}"
    with (
        translate_errors(source),
        closing(sqlite3.connect(uri, uri=True, timeout=seconds, isolation_level=None)) as read,
        closing(sqlite3.connect(target, timeout=seconds)) as write,
    ):
        read.execute("BEGIN")  # one state, however many steps it takes
        read.execute("SELECT count(*) FROM sqlite_master").fetchone()
        read.backup(write, pages=_PAGES, progress=tell)


def _require_sound(file: Path, named: Path) -> None:
    """Raise :class:`StoreDamagedError` for damage, :class:`InputError` for a foreign database."""
    with translate_errors(file), closing(sqlite3.connect(file)) as connection:
        [first] = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if first != "ok":
            raise StoreDamagedError(f"the store is damaged: {first}")
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    if not {"meta", "datasets", "chunks"} <= tables:
        raise InputError(f"{named} is a SQLite database, but not a store of catalog")


@contextmanager
def draft_beside(file: Path) -> Iterator[Path]:
    """Give an empty file in the same folder, readable by this user only; remove it afterwards.

    The draft of a killed process remains; the next draft in that folder removes it.
    """
    remove_stale_drafts(file.parent)
    draft = file.with_name(f".catalog-draft-{os.getpid()}-{uuid.uuid4().hex}")
    _drafts.add(draft)
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        yield draft
    except OSError as error:
        raise StoreError(f"cannot write {describe_os_error(file, error)}") from error
    finally:
        _remove(draft)
        _drafts.discard(draft)


def remove_stale_drafts(folder: Path) -> None:
    """Remove the drafts that :func:`find_stale_drafts` returns."""
    for draft in find_stale_drafts(folder):
        _remove(draft)


def find_stale_drafts(folder: Path) -> list[Path]:
    """Return the drafts that killed processes left in the folder, sorted."""
    found = filter(None, (_DRAFT.match(path.name) for path in folder.glob(".catalog-draft-*")))
    drafts = {folder / one[0]: int(one[1]) for one in found}
    own = os.getpid()  # in a container the killed one may have had the same number
    return sorted(
        draft
        for draft, process in drafts.items()
        if draft not in _drafts and (process == own or not _is_running(process))
    )


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        pass
    return True


def _remove(draft: Path) -> None:
    for ending in ("", "-journal", "-wal", "-shm"):
        Path(f"{draft}{ending}").unlink(missing_ok=True)
