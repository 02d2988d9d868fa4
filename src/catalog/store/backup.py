"""Back up a store, restore it, or copy it into another database.

Back-ups and restores use SQLite's own backup (https://sqlite.org/backup.html), so other processes
may read and write the store meanwhile.

Between databases, also of different kinds, a store is copied row by row in one transaction: a copy
that is interrupted leaves nothing behind and can be started again. Before the transaction ends, the
copied rows are counted and compared with their checksums.
"""

from __future__ import annotations

import os
import re
import secrets
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout
from sqlalchemy import true, update
from sqlalchemy.engine import URL

from catalog.core.errors import InputError, StoreDamagedError, StoreError
from catalog.core.files import describe_os_error
from catalog.store.checksums import seal_rows
from catalog.store.database import BUSY_TIMEOUT_MS, Database, forget_indexes
from catalog.store.locks import RESTORE_LOCK, hold_lock
from catalog.store.schema import chunks, datasets, documents, outbox, query_log
from catalog.store.sqlite_pool import translate_errors

Progress = Callable[[int, int], None]  # pages copied, pages in all
KEPT = ".before-restore"
_MAGIC = b"SQLite format 3\0"
_PAGES = 2_000  # copied between two calls of progress; signals such as Ctrl-C wait for a call
_DRAFT = ".catalog-draft-"
_OF_DRAFT = re.compile(rf"{re.escape(_DRAFT)}[0-9a-f]{{32}}(?!\.lock)")  # not a lock file
_NOT_WRITERS = frozenset({"serve.lock", RESTORE_LOCK})
_NUMBERED = (documents, chunks, outbox, query_log)


def back_up(store: Path, to: Path, *, force: bool = False, progress: Progress | None = None) -> int:
    """Copy the state of the store at one moment to a file; return the file's size in bytes.

    Only the user can read the file (mode 0600), which appears when it is complete. Raises
    :class:`InputError` if it exists already (``force`` replaces it), :class:`StoreDamagedError` if
    the store is damaged, and :class:`StoreError` if the store cannot be read or the file not
    written.
    """
    if to.exists() and store.exists() and to.samefile(store):
        raise InputError(f"{to} is the store itself: choose another name")
    if to.exists() and not force:
        raise InputError(f"{to} exists: choose another name, or --force to replace it")
    if not store.is_file():
        raise InputError(f"there is no store at {store}")
    with draft_beside(to) as draft:
        _copy(store, draft, progress)
        _require_sound(draft)
        draft.replace(to)
    return to.stat().st_size


def restore(copy: Path, store: Path, *, locks: Path, force: bool = False) -> Path | None:
    """Replace the store by a copy; return the file in which the replaced store is kept.

    That file is ``catalog.db.before-restore``; without a store there, ``None`` is returned. All
    indexes are built again before their next use. Processes that have the store open go on with the
    copy. Raises :class:`InputError` if the copy is not a store or if an earlier replaced store is
    still kept (``force`` drops it), :class:`StoreDamagedError`, :class:`StoreVersionError`, and
    :class:`StoreBusyError` while a dataset is being updated; ``locks`` is the folder of the
    datasets' locks.
    """
    if not copy.exists():
        raise InputError(f"{copy} does not exist")
    if not _is_sqlite(copy):
        raise InputError(f"{copy} is not a copy of a store")
    if store.exists() and copy.samefile(store):
        raise InputError(f"{copy} is the store itself, not a copy of it")
    kept = store.with_name(store.name + KEPT)
    if kept.exists() and not force:
        raise InputError(
            f"{kept} is left from an earlier restore: move it away, or --force to delete it"
        )
    with ExitStack() as held, draft_beside(store) as draft:
        _copy(copy, draft)
        _require_sound(draft)
        _prepare(draft)
        busy = "the store is being updated; try again afterwards"
        held.enter_context(hold_lock(locks / RESTORE_LOCK, seconds=0, busy=busy))
        for lock in sorted(locks.glob("*.lock")):
            if lock.name not in _NOT_WRITERS:
                held.enter_context(hold_lock(lock, seconds=0, busy=busy))
        if not store.exists():
            draft.replace(store)
            return None
        try:
            back_up(store, kept, force=True)
            with translate_errors(store):
                _copy(draft, store)
        except StoreDamagedError:
            _move_aside(store, kept)
            draft.replace(store)
    return kept


def _is_sqlite(file: Path) -> bool:
    """Return whether a file begins like an SQLite file (https://sqlite.org/fileformat2.html)."""
    if not file.is_file():
        return False
    try:
        with file.open("rb") as opened:
            return opened.read(len(_MAGIC)) == _MAGIC
    except OSError as error:
        raise StoreError(f"cannot read {describe_os_error(file, error)}") from error


def _copy(source: Path, target: Path, progress: Progress | None = None) -> None:
    """Copy one state of a database into another file, or over a database that may be open."""
    tell = (lambda _, left, of: progress(of - left, of)) if progress else (lambda *_: None)
    with translate_errors(source), ExitStack() as opened:
        read = opened.enter_context(closing(_open_to_read(source)))
        write = sqlite3.connect(target, timeout=BUSY_TIMEOUT_MS / 1000)
        opened.enter_context(closing(write))
        read.isolation_level = None
        read.execute("BEGIN")  # one state, however many steps it takes
        read.execute("SELECT count(*) FROM sqlite_master").fetchone()
        read.backup(write, pages=_PAGES, progress=tell)


def _open_to_read(file: Path) -> sqlite3.Connection:
    uri = f"{file.absolute().as_uri()}?mode=ro"
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_MS / 1000)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master")
    except sqlite3.OperationalError:  # WAL mode needs a folder that can be written to
        connection.close()
        return sqlite3.connect(f"{uri}&immutable=1", uri=True)
    return connection


def _require_sound(file: Path) -> None:
    """Raise :class:`StoreDamagedError` for damage, :class:`InputError` for a foreign database."""
    with translate_errors(file), closing(sqlite3.connect(file)) as connection:
        [first] = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if first != "ok":
            raise StoreDamagedError(f"the store is damaged: {first}")
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    if not {"alembic_version", "meta", "datasets"} <= tables:
        raise InputError("the file is a SQLite database, but not a store of catalog")


def _prepare(draft: Path) -> None:
    """Bring a copy to this release's schema, and mark all indexes as not derived from it."""
    database = Database(URL.create("sqlite", database=str(draft)))
    try:
        with database.write() as connection:
            forget_indexes(connection)
            connection.execute(update(datasets).values(state=secrets.token_hex(8)))
            seal_rows(connection, datasets, true())
    finally:
        database.close()


def _move_aside(store: Path, kept: Path) -> None:
    """Rename a store that SQLite cannot open, with its log, so that the rest can be rescued."""
    for ending in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            Path(f"{store}{ending}").replace(f"{kept}{ending}")


@contextmanager
def draft_beside(file: Path) -> Iterator[Path]:
    """Give an empty file in the same folder, readable by this user only; remove it afterwards.

    The draft of a killed process remains; the next draft in that folder removes it.
    """
    remove_stale_drafts(file.parent)
    draft = file.with_name(f"{_DRAFT}{uuid.uuid4().hex}")
    lock = _draft_lock(draft)
    try:
        with suppress(NotImplementedError, OSError):  # a file system without locks
            lock.acquire()
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        yield draft
    except OSError as error:
        raise StoreError(f"cannot write {describe_os_error(file, error)}") from error
    finally:
        _remove_draft(draft, lock)


def remove_stale_drafts(folder: Path) -> None:
    """Remove the drafts that :func:`find_stale_drafts` returns."""
    for draft in find_stale_drafts(folder):
        _remove_draft(draft, _draft_lock(draft))


def find_stale_drafts(folder: Path) -> list[Path]:
    """Return the drafts that killed processes left in the folder, sorted.

    A locked draft belongs to a running process.
    """
    names = {
        found[0] for path in folder.glob(f"{_DRAFT}*") if (found := _OF_DRAFT.match(path.name))
    }
    return [draft for name in sorted(names) if not _is_locked(draft := folder / name)]


def _is_locked(draft: Path) -> bool:
    lock = _draft_lock(draft)
    try:
        if Path(lock.lock_file).exists():
            lock.acquire()
    except (Timeout, NotImplementedError, OSError):
        return True
    lock.release()
    return False


def _draft_lock(draft: Path) -> BaseFileLock:
    return FileLock(f"{draft}.lock", timeout=0, mode=0o600)


def _remove_draft(draft: Path, lock: BaseFileLock) -> None:
    for ending in ("", "-journal", "-wal", "-shm", ".init-lock"):
        Path(f"{draft}{ending}").unlink(missing_ok=True)
    lock.release()  # after the draft: without a lock it would be taken for a stale one
    Path(lock.lock_file).unlink(missing_ok=True)
