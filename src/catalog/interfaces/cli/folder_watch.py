"""Following a folder: an update after each change, until the user stops it.

Nothing that happens to the folder ends the watch. While it is away, or most of its files are, what
is indexed stays, and the next update that can be done catches up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

from catalog.core.errors import MassDeletionError, SourceError, StoreBusyError
from catalog.ingest.discovery import IGNORE_FILES, is_passed_over
from catalog.ingest.sidecars import is_metadata
from catalog.ingest.sync_report import SyncReport
from catalog.interfaces.cli.output import TerminalProgress, complain

if TYPE_CHECKING:
    from catalog.library.indexing import Indexer

TICK_SECONDS = 0.2  # between two looks at whether the folder is still the one that is watched
RETRY_SECONDS = 10.0  # until an update that could not be done is tried again, at the latest
LOOK_SECONDS = 300.0  # until an update finds changes that the system did not report, at the latest
_PASSING = (SourceError, MassDeletionError, StoreBusyError)


def follow(indexer: Indexer, dataset: str, told: dict[str, bool]) -> Iterator[SyncReport]:
    """Update with the options ``told``, then after each change, forever; yield reports with news.

    A report has only the failures and notes that the one before it did not have. A change during
    the embedding pauses it: the changed file is found by its words at once. An update that fails
    for now prints one warning and is tried again.
    """
    root = Path(indexer.stats(dataset).root)
    with FolderWatch(root) as folder:
        complain(f"watching {root}; stop with Ctrl-C")
        failed: type[Exception] | None = None
        last: SyncReport | None = None
        while True:
            try:
                with TerminalProgress() as progress:
                    report = indexer.update(
                        dataset, **told, progress=progress, pause=folder.has_changed
                    )
            except _PASSING as error:
                if type(error) is not failed:
                    complain(f"warning: {error}; the index stays, and watching continues")
                failed = type(error)
                folder.wait(RETRY_SECONDS)
                continue
            known = last or SyncReport((), 0.0)
            news = replace(
                report,
                failed=tuple(one for one in report.failed if one not in known.failed),
                notes=tuple(note for note in report.notes if note not in known.notes),
            )
            changes = report.added + report.updated + report.removed + report.embedded
            is_other = (report.incomplete, report.kept) != (known.incomplete, known.kept)
            if last is None or failed or changes or is_other or news.failed or news.notes:
                yield news
            failed, last, told = None, report, {}  # these options apply once
            folder.wait(LOOK_SECONDS)


class FolderWatch:
    """Watch a folder or file in a thread, from entering the ``with`` block to leaving it.

    When another folder takes the place of the watched one, the thread watches the new one.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._changed, self._stop, self._is_watching = Event(), Event(), Event()
        self._thread = Thread(target=self._watch, daemon=True)
        self.has_changed = self._changed.is_set  # since the last wait

    def wait(self, seconds: float) -> None:
        """Wait for a change since the last call, at most ``seconds``."""
        self._changed.wait(seconds)
        self._changed.clear()

    def _watch(self) -> None:
        told = ""
        while not self._stop.is_set():
            place, pause = self._find_place(), TICK_SECONDS
            try:
                if place is not None:
                    self._watch_place(place)
            except Exception as error:  # noqa: BLE001 - told, and tried again
                if self._find_place() == place:
                    pause = RETRY_SECONDS
                    if str(error) != told:
                        told = str(error)
                        complain(
                            f"warning: changes are not reported ({told}), so the folder is listed "
                            f"every {RETRY_SECONDS:g} s instead"
                        )
            if place is not None:
                self._changed.set()
            self._is_watching.set()
            self._stop.wait(pause)

    def _watch_place(self, place: tuple[Path, int, int]) -> None:
        """Note changes until another folder is in this place, or the watch is stopped."""
        from watchfiles import watch

        folder, is_new = place[0], self._is_watching.is_set()
        for changes in watch(
            folder,
            watch_filter=None,
            stop_event=self._stop,
            rust_timeout=int(TICK_SECONDS * 1000),
            yield_on_timeout=True,
            raise_interrupt=False,
            recursive=folder == self._root,
            ignore_permission_denied=True,
        ):
            self._is_watching.set()
            paths = [Path(path) for _, path in changes]
            if is_new or any(self._concerns(path, folder) for path in paths):
                self._changed.set()
            is_new = False
            # A system may give the number of a deleted folder to the next one.
            if folder in paths or self._find_place() != place:
                return

    def _find_place(self) -> tuple[Path, int, int] | None:
        """Return the folder to watch, and its numbers: where the root is a file, the one above."""
        try:
            folder = self._root if self._root.is_dir() else self._root.parent
            info = folder.stat()
        except OSError:
            return None
        return folder, info.st_dev, info.st_ino

    def _concerns(self, path: Path, folder: Path) -> bool:
        """Return whether an update may read a path in the watched folder."""
        *within, name = path.parts[len(folder.parts) :] or ("",)
        if any(is_passed_over(one, is_folder=True) for one in within):
            return False
        if name in IGNORE_FILES or is_metadata(name):  # these are about other files
            return True
        is_all = folder == self._root
        return not is_passed_over(name, is_folder=True) if is_all else name == self._root.name

    def __enter__(self) -> FolderWatch:
        """Return when changes are recorded, or if they cannot be."""
        self._thread.start()
        self._is_watching.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
