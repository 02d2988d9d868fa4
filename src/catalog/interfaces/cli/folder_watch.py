"""Following a folder: an update after each change, until the user stops it.

Nothing that happens to the folder ends the watch. While it is away, or most of its files are, what
is indexed stays, and the next update that can be done catches up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, NamedTuple

from catalog.core.errors import MassDeletionError, SourceError, StoreBusyError
from catalog.ingest.discovery import IGNORE_FILES, is_passed_over
from catalog.ingest.sidecars import is_metadata
from catalog.interfaces.cli.output import TerminalProgress, complain

if TYPE_CHECKING:
    from catalog.ingest.sync_report import SyncReport
    from catalog.library.indexing import Indexer

TICK_SECONDS = 0.2  # between two looks at whether the folder is still the one that is watched
RETRY_SECONDS = 10.0  # until an update that could not be done is tried again, at the latest
LOOK_SECONDS = 300.0  # until an update finds changes that the system did not report, at the latest
_PASSING = (SourceError, MassDeletionError, StoreBusyError)


def follow(indexer: Indexer, dataset: str, told: dict[str, bool]) -> Iterator[SyncReport]:
    """Update with the options ``told``, then after each change, forever; yield reports with news.

    A change during the embedding pauses it: the changed file is found by its words at once. An
    update that fails for now prints one warning and is tried again.
    """
    root = Path(indexer.stats(dataset).root)
    with FolderWatch(root) as folder:
        complain(f"watching {root}; stop with Ctrl-C")
        failed: type[Exception] | None = None
        last: tuple[object, ...] = ()
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
            problems = (report.failed, report.notes, report.incomplete, report.kept)
            changes = report.added + report.updated + report.removed + report.embedded
            if failed or changes or problems != last:
                yield report
            failed, last, told = None, problems, {}  # these options apply once
            folder.wait(LOOK_SECONDS)


class _Place(NamedTuple):
    """The folder to watch: the root or, where that is a file or missing, the folder it is in."""

    folder: Path
    device: int
    inode: int


class FolderWatch:
    """Watch a folder or file in a thread, from entering the ``with`` block to leaving it.

    When another folder takes the place of the watched one, the thread watches the new one.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._changed, self._stop, self._is_watching = Event(), Event(), Event()
        self._problem = self._told = ""
        self._thread = Thread(target=self._watch, daemon=True)

    def has_changed(self) -> bool:
        """Return whether something changed since the last :meth:`wait`."""
        return self._changed.is_set()

    def wait(self, seconds: float) -> None:
        """Wait for a change since the last call, at most ``seconds``."""
        self._changed.wait(seconds)
        self._changed.clear()
        problem, self._problem = self._problem, ""
        if problem not in ("", self._told):
            complain(
                f"warning: changes are not reported ({problem}), so the folder is listed every "
                f"{RETRY_SECONDS:g} s instead"
            )
            self._told = problem

    def _watch(self) -> None:
        while not self._stop.is_set():
            place = self._find_place()
            pause = TICK_SECONDS
            try:
                if place is not None:
                    self._watch_place(place)
            except Exception as error:  # noqa: BLE001 - told by wait()
                if self._find_place() == place:
                    self._problem, pause = str(error), RETRY_SECONDS
            if place is not None:
                self._changed.set()
            self._is_watching.set()
            self._stop.wait(pause)

    def _watch_place(self, place: _Place) -> None:
        """Note changes until another folder is in this place, or the watch is stopped."""
        from watchfiles import watch

        is_new = self._is_watching.is_set()
        for changes in watch(
            place.folder,
            watch_filter=None,
            stop_event=self._stop,
            rust_timeout=int(TICK_SECONDS * 1000),
            yield_on_timeout=True,
            raise_interrupt=False,
            recursive=place.folder == self._root,
            ignore_permission_denied=True,
        ):
            self._is_watching.set()
            paths = [Path(path) for _, path in changes]
            if is_new or self._concerns(paths, place):
                self._changed.set()
            is_new = False
            # A system may give the number of a deleted folder to the next one.
            if place.folder in paths or self._find_place() != place:
                return

    def _find_place(self) -> _Place | None:
        try:
            folder = self._root if self._root.is_dir() else self._root.parent
            info = folder.stat()
        except OSError:
            return None
        return _Place(folder, info.st_dev, info.st_ino)

    def _concerns(self, paths: Iterable[Path], place: _Place) -> bool:
        """Return whether an update may read one of the paths."""
        if place.folder != self._root:
            return any(path.name == self._root.name or _is_about_files(path.name) for path in paths)
        depth = len(place.folder.parts)
        return any(_may_be_read(path.parts[depth:]) for path in paths)

    def __enter__(self) -> FolderWatch:
        """Return when changes are recorded, or if they cannot be."""
        self._thread.start()
        self._is_watching.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()


def _may_be_read(parts: Sequence[str]) -> bool:
    *folders, name = parts or ("",)
    if any(is_passed_over(folder, is_folder=True) for folder in folders):
        return False
    return not is_passed_over(name, is_folder=True) or _is_about_files(name)


def _is_about_files(name: str) -> bool:
    """Return whether a file holds ignore rules or metadata of other files."""
    return name in IGNORE_FILES or is_metadata(name)
