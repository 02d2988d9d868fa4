"""``logs/retrieval.log`` in a home: which steps of searches failed, were repeated or degraded."""

from __future__ import annotations

import logging
import time
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from threading import Lock
from typing import TYPE_CHECKING

from catalog.core.files import make_folder, make_private
from catalog.core.retrieval_events import LOGGER, current_home

if TYPE_CHECKING:
    from pathlib import Path

_log = logging.getLogger(__name__)
_LOCK = Lock()
_OPEN: dict[str, tuple[_RetrievalFile, int]] = {}


class RetrievalLog:
    """Write the events of a home's searches to its file while it is open, if ``is_on``.

    Libraries of one home share the file; so do processes, each line being written at once. The file
    may be moved away at any time (``logrotate``): the next line makes a new one. One that cannot be
    written to costs a warning, never a search.
    """

    def __init__(self, home: Path, *, is_on: bool) -> None:
        self._home = str(home) if is_on else None
        if self._home is None:
            return
        with _LOCK:
            handler, users = _OPEN.get(self._home) or (_RetrievalFile(home), 0)
            _OPEN[self._home] = handler, users + 1
            LOGGER.addHandler(handler)  # which adds one once

    def close(self) -> None:
        """Close the file with the last library of the home; safe to call twice."""
        home, self._home = self._home, None
        if home is None:
            return
        with _LOCK:
            handler, users = _OPEN.pop(home)
            if users > 1:
                _OPEN[home] = handler, users - 1
                return
            LOGGER.removeHandler(handler)
        handler.close()


class _RetrievalFile(WatchedFileHandler):
    """Append events of one home, and those outside any search, to its file."""

    def __init__(self, home: Path) -> None:
        self._file = home / "logs" / "retrieval.log"
        self._home = str(home)
        self._is_warned = False
        super().__init__(self._file, encoding="utf-8", delay=True)
        form = logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
        form.converter = time.gmtime
        self.setFormatter(form)

    def filter(self, record: logging.LogRecord) -> bool:
        """Let through what is of this home."""
        del record
        return current_home() in ("", self._home)

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line; the base class lets an error of looking for the file out."""
        try:
            super().emit(record)
        except OSError:
            self.handleError(record)

    def _open(self) -> TextIOWrapper:
        make_folder(self._file.parent)
        stream = super()._open()
        make_private(self._file)
        return stream

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the base class's name
        """Say once that lines are lost, in place of a traceback for each."""
        del record
        level = logging.DEBUG if self._is_warned else logging.WARNING
        self._is_warned = True
        _log.log(level, "%s cannot be written to: events of searches are lost", self._file)
