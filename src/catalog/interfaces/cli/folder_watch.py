"""Following a folder: updates at each change, also at one that comes while texts are embedded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

from catalog.interfaces.cli.output import TerminalProgress, complain

if TYPE_CHECKING:
    from catalog.ingest.sync_report import SyncReport
    from catalog.library.indexing import Indexer


def follow(indexer: Indexer, dataset: str, told: dict[str, bool]) -> Iterator[SyncReport]:
    """Yield the report of an update as ``told``, and of one after each change, without an end.

    A change that comes while texts are embedded goes before those: it is found by its words at
    once, however much is left to embed.
    """
    root = Path(indexer.stats(dataset).root)
    with FolderWatch(root) as folder:
        complain(f"watching {root}; stop with Ctrl-C")
        while True:
            with TerminalProgress() as progress:
                report = indexer.update(
                    dataset, **told, progress=progress, pause=folder.has_changed
                )
            yield report
            told = {}  # what was asked for once
            folder.wait()


class FolderWatch:
    """Watch a folder in a thread of its own, from entering the ``with`` block to leaving it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._changed, self._stop = Event(), Event()
        self._error: Exception | None = None
        self._thread = Thread(target=self._watch, daemon=True)

    def has_changed(self) -> bool:
        """Tell whether something changed since the last :meth:`wait`."""
        return self._changed.is_set()

    def wait(self) -> None:
        """Return when something has changed since the last call; raise why the watch ended."""
        self._changed.wait()
        self._changed.clear()
        if self._error is not None:
            raise self._error

    def _watch(self) -> None:
        from watchfiles import watch

        try:
            for _ in watch(self._root, stop_event=self._stop, raise_interrupt=False):
                self._changed.set()
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            self._error = error
            self._changed.set()

    def __enter__(self) -> FolderWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
